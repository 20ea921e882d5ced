"""Credit channel by channel: `explain` on a file, `inspect --step` on a run."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise import Algorithm, methods
from groupwise.credit import ByTask, NoScale, Relative, StepRewardSignal
from groupwise.report.groups import read_groups
from groupwise.training.run_reader import RunFolder
from tests.unit.cli.conftest import Run
from tests.unit.report.run_folders import write_run

TEMPO = Relative(by=ByTask(), of=StepRewardSignal(), scale=NoScale(), average="step")
METHOD = """
[algorithm]
method = "dr_grpo"

[algorithm.channels.tempo]
kind = "relative"
by = "by_task"
of = "step_reward"
scale = "no_scale"
average = "step"
"""
AT_TASK_T = ("--task", "t", "--rollout", "a", "--step", "1", "--method", "method.toml")


def test_explain_shows_each_channel_and_derives_it_again(groupwise: Run, rollouts: str, tmp_path: Path) -> None:
    """Task t: rewards 0, 1, 0, 0, so that the step of reward 1 lies 0.75 above the mean; its rollout 0.5."""
    (tmp_path / "method.toml").write_text(METHOD, encoding="utf-8")
    text = groupwise("explain", rollouts, *AT_TASK_T).out
    before, _, channel = text.partition("channel tempo: advantage +0.750000000")
    assert "advantage +0.500000000; derived again by hand" in before
    assert "(1 - 0.25) / 1 = 0.75" in channel
    assert "rollout a, step 1: 1 (this step)" in channel


def test_explain_json_holds_the_channels_by_name(groupwise: Run, rollouts: str, tmp_path: Path) -> None:
    (tmp_path / "method.toml").write_text(METHOD, encoding="utf-8")
    data = json.loads(groupwise("explain", rollouts, *AT_TASK_T, "--json").out)
    assert data["value"] == 0.5
    assert {name: inner["value"] for name, inner in data["channels"].items()} == {"tempo": 0.75}
    plain = json.loads(groupwise("explain", rollouts, *AT_TASK_T[:-1], "dr_grpo", "--json").out)
    assert "channels" not in plain


def test_why_explains_the_channels_of_a_run(groupwise: Run, tmp_path: Path) -> None:
    made = methods.dr_grpo()
    algorithm = Algorithm(advantage=made.advantage, loss=made.loss, channels={"tempo": TEMPO})
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=4, algorithm=algorithm)
    with RunFolder(folder) as run:
        (group,) = read_groups(run, 1)
    rewards = [[step.reward for step in rollout.steps] for rollout in group.rollouts]
    every = [reward for own in rewards for reward in own]
    arguments = ("inspect", "run", "--update", "1", "--task", group.task, "--rollout", "1", "--step", "0")
    data = json.loads(groupwise(*arguments, "--json").out)
    expected = rewards[1][0] - sum(every) / len(every)
    assert abs(data["channels"]["tempo"]["value"] - expected) < 1e-9
    assert f"channel tempo: advantage {expected:+.9f}" in groupwise(*arguments).out
