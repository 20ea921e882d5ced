"""Rollouts that are not admitted leave the statistics too, and are not forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from groupwise import ConfigError, StepTable, StopReason, Trajectory, methods
from groupwise.cli.main import make_app
from groupwise.credit import AtMost, WithoutTruncated
from groupwise.parts.part import Part
from groupwise.parts.slots import Draw
from groupwise.report.groups import read_groups
from groupwise.training.collect.collect import admit_rollouts, collect_update
from groupwise.training.config.run_file import decode_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run_reader import RunFolder
from tests.unit.pasts import make_draw, rollout
from tests.unit.training.runs import small_config


class Nobody(Part, slot="rollout_filter"):
    """Admits nobody."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return []


class Replacing(Part, slot="rollout_filter"):
    """Gives back rollouts that did not come."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return [rollout(0)]


def config_with(*rollout_filters: Part, updates: int = 2) -> Any:
    config = small_config(updates=updates)
    return config.model_copy(
        update={"algorithm": config.algorithm.model_copy(update={"rollout_filters": rollout_filters})}
    )


def test_each_rollout_filter_sees_what_the_one_before_left() -> None:
    ends = [StopReason.TRUNCATED] * 3 + [StopReason.TERMINATED] * 3
    group = [rollout(number, stop=stop) for number, stop in enumerate(ends)]
    left, set_aside = admit_rollouts([group], [WithoutTruncated(), AtMost(rollouts=2)], draw=make_draw())
    assert len(left[0]) == 2
    assert {each.trajectory.rollout for each in set_aside if "without_truncated" in each.by} == {0, 1, 2}
    assert [each.by for each in set_aside[3:]] == ["the rollout filter at_most"]


def test_the_statistics_are_those_of_the_admitted(tmp_path: Path) -> None:
    rollouts = collect_update(open_run(config_with(AtMost(rollouts=5)), tmp_path), 1)
    assert (len(rollouts.survivors), len(rollouts.chosen), len(rollouts.set_aside)) == (16, 10, 6)
    assert rollouts.rejected_fraction == pytest.approx(6 / 16)
    credit = methods.dr_grpo().advantage(StepTable.from_trajectories(rollouts.chosen)).values
    by_task: dict[str, float] = {}
    for trajectory, value in zip(rollouts.chosen, credit.tolist(), strict=True):
        by_task[trajectory.task.id] = by_task.get(trajectory.task.id, 0.0) + value
    assert all(abs(total) < 1e-9 for total in by_task.values()), "credit is relative to the mean of those left"


def test_the_journal_the_metrics_and_inspect_say_who_was_left_out(tmp_path: Path) -> None:
    config = config_with(AtMost(rollouts=5))
    train(open_run(config, tmp_path))
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config.config()), encoding="utf-8")
    with RunFolder(tmp_path) as folder:
        assert [value for _, value in folder.journal.curve("rollout/filtered_out")] == [6 / 16] * 2
        groups = read_groups(folder, 2)
    assert [(len(group.rollouts), len(group.set_aside)) for group in groups] == [(5, 3)] * 2
    assert all(len({each.rollout for each in (*g.rollouts, *g.set_aside)}) == 8 for g in groups)
    assert groups[0].num_compared == 5, "credit is derived again without those who were left out"
    numbers = [each.rollout for each in groups[0].set_aside]
    sentence = f"rollouts {', '.join(map(str, numbers))} left out by the rollout filter at_most"
    call = ["inspect", str(tmp_path), "--update", "2"]
    assert f"{groups[0].task}: {sentence}" in call_command(call)
    shown = call_command([*call, "--task", groups[0].task, "--rollout", str(numbers[0])])
    assert sentence in shown
    data = json.loads(call_command([*call, "--json"]))
    assert [each["by"] for each in data["groups"][0]["set_aside"]] == ["the rollout filter at_most"] * 3


def call_command(call: Sequence[str]) -> str:
    answer = CliRunner().invoke(make_app(), call, env={"COLUMNS": "240"}, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_an_update_in_which_nobody_is_admitted_learns_nothing_and_goes_on(tmp_path: Path) -> None:
    run = open_run(config_with(Nobody()), tmp_path)
    train(run)
    assert run.journal.update_numbers() == [1, 2]
    assert [value for _, value in run.journal.curve("rollout/filtered_out")] == [1.0, 1.0]
    assert run.journal.curve("learner/tokens") == [(1, 0.0), (2, 0.0)]
    assert len(run.journal.set_aside(1)) == 16
    with RunFolder(tmp_path) as folder:
        assert [len(group.set_aside) for group in read_groups(folder, 1)] == [8, 8]
    assert "left out by the rollout filter" in call_command(["inspect", str(tmp_path), "--update", "1"])


def test_an_rollout_filter_that_gives_back_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        collect_update(open_run(config_with(Replacing()), tmp_path), 1)
    assert str(raised.value).startswith(f"the rollout filter {__name__}:Replacing: of the 8 rollouts of ")
    assert str(raised.value).endswith("return some of the given rollouts, unchanged")


def test_a_run_file_names_rollout_filters_beside_a_method_and_a_config_without_any_says_nothing() -> None:
    content = {
        "algorithm": {"method": "grpo", "rollout_filters": [{"kind": "at_most", "rollouts": 3}, "without_truncated"]},
        "env": {"kind": "identity"},
        "model": {"kind": "tiny"},
    }
    config = decode_run(content)
    assert config.algorithm.rollout_filters == (AtMost(rollouts=3), WithoutTruncated())
    assert config.config()["algorithm"]["rollout_filters"][1] == {"kind": "without_truncated"}
    assert "rollout_filters" not in methods.grpo().config()
