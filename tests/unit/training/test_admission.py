"""Attempts that are not admitted leave the statistics too, and are not forgotten."""

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
from groupwise.cli.main import app
from groupwise.credit import AtMost, WithoutTruncated
from groupwise.parts.part import Part
from groupwise.parts.slots import Draw
from groupwise.report.groups import read_groups
from groupwise.training.collect.collect import admit_attempts, collect_update
from groupwise.training.config.run_file import decode_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run_reader import RunFolder
from tests.unit.pasts import attempt, make_draw
from tests.unit.training.runs import small_config


class Nobody(Part, slot="admission"):
    """Admits nobody."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return []


class Replacing(Part, slot="admission"):
    """Gives back attempts that did not come."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return [attempt(0)]


def config_with(*admissions: Part, updates: int = 2) -> Any:
    config = small_config(updates=updates)
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"admissions": admissions})})


def test_each_admission_sees_what_the_one_before_left() -> None:
    ends = [StopReason.TRUNCATED] * 3 + [StopReason.TERMINATED] * 3
    group = [attempt(number, stop=stop) for number, stop in enumerate(ends)]
    left, set_aside = admit_attempts([group], [WithoutTruncated(), AtMost(attempts=2)], draw=make_draw())
    assert len(left[0]) == 2
    assert {each.trajectory.attempt for each in set_aside if "without_truncated" in each.by} == {0, 1, 2}
    assert [each.by for each in set_aside[3:]] == ["the admission at_most"]


def test_the_statistics_are_those_of_the_admitted(tmp_path: Path) -> None:
    attempts = collect_update(open_run(config_with(AtMost(attempts=5)), tmp_path), 1)
    assert (len(attempts.survivors), len(attempts.chosen), len(attempts.set_aside)) == (16, 10, 6)
    assert attempts.rejected_fraction == pytest.approx(6 / 16)
    credit = methods.dr_grpo().advantage(StepTable.from_trajectories(attempts.chosen)).values
    by_task: dict[str, float] = {}
    for trajectory, value in zip(attempts.chosen, credit.tolist(), strict=True):
        by_task[trajectory.task.id] = by_task.get(trajectory.task.id, 0.0) + value
    assert all(abs(total) < 1e-9 for total in by_task.values()), "credit is relative to the mean of those left"


def test_the_journal_the_metrics_and_inspect_say_who_was_left_out(tmp_path: Path) -> None:
    config = config_with(AtMost(attempts=5))
    train(open_run(config, tmp_path))
    (tmp_path / "config.toml").write_text(tomli_w.dumps(config.config()), encoding="utf-8")
    with RunFolder(tmp_path) as folder:
        assert [value for _, value in folder.journal.curve("rollout/not_admitted")] == [6 / 16] * 2
        groups = read_groups(folder, 2)
    assert [(len(group.attempts), len(group.set_aside)) for group in groups] == [(5, 3)] * 2
    assert all(len({each.attempt for each in (*g.attempts, *g.set_aside)}) == 8 for g in groups)
    assert groups[0].num_compared == 5, "credit is derived again without those who were left out"
    numbers = [each.attempt for each in groups[0].set_aside]
    sentence = f"rollouts {', '.join(map(str, numbers))} left out by the admission at_most"
    call = ["inspect", str(tmp_path), "--update", "2"]
    assert f"{groups[0].task}: {sentence}" in call_command(call)
    shown = call_command([*call, "--task", groups[0].task, "--attempt", str(numbers[0])])
    assert sentence in shown
    data = json.loads(call_command([*call, "--json"]))
    assert [each["by"] for each in data["groups"][0]["set_aside"]] == ["the admission at_most"] * 3


def call_command(call: Sequence[str]) -> str:
    answer = CliRunner().invoke(app, call, env={"COLUMNS": "240"}, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_an_update_in_which_nobody_is_admitted_learns_nothing_and_goes_on(tmp_path: Path) -> None:
    run = open_run(config_with(Nobody()), tmp_path)
    train(run)
    assert run.journal.update_numbers() == [1, 2]
    assert [value for _, value in run.journal.curve("rollout/not_admitted")] == [1.0, 1.0]
    assert run.journal.curve("learner/tokens") == [(1, 0.0), (2, 0.0)]
    assert len(run.journal.set_aside(1)) == 16
    with RunFolder(tmp_path) as folder:
        assert [len(group.set_aside) for group in read_groups(folder, 1)] == [8, 8]
    assert "left out by the admission" in call_command(["inspect", str(tmp_path), "--update", "1"])


def test_an_admission_that_gives_back_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        collect_update(open_run(config_with(Replacing()), tmp_path), 1)
    assert str(raised.value).startswith(f"the admission {__name__}:Replacing: of the 8 rollouts of ")
    assert str(raised.value).endswith("return some of the given rollouts, unchanged")


def test_a_run_file_names_admissions_beside_a_recipe_and_a_config_without_any_says_nothing() -> None:
    content = {
        "algorithm": {"recipe": "grpo", "admissions": [{"kind": "at_most", "attempts": 3}, "without_truncated"]},
        "env": {"kind": "identity"},
        "model": {"kind": "tiny"},
    }
    config = decode_run(content)
    assert config.algorithm.admissions == (AtMost(attempts=3), WithoutTruncated())
    assert config.config()["algorithm"]["admissions"][1] == {"kind": "without_truncated"}
    assert "admissions" not in methods.grpo().config()
