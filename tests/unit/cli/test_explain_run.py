"""`groupwise explain` on the folder of a run: what trained each update, to the number, or plainly another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from groupwise import Algorithm, StepTable, methods
from groupwise.store.journal import Journal, Update
from tests.unit.cli.conftest import Run
from tests.unit.report.rescue_runs import FAILED, REPLAYED, write_rescue_run
from tests.unit.report.run_folders import play_update, settings, write_run


def write_run_of(folder: Path, algorithm: Algorithm, *, updates: int, **changes: Any) -> Path:
    """A run of an algorithm whose updates differ, each with the credit that the algorithm gave that update."""
    folder.mkdir()
    (folder / "config.toml").write_text(tomli_w.dumps(settings(algorithm, **changes)), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        for number in range(1, updates + 1):
            trajectories = play_update(number, tasks=3, rollouts=4, skill=0.2 * number)
            values = iter(algorithm.credit(StepTable.from_trajectories(trajectories)).values.tolist())
            credit = [[next(values) for _ in trajectory.steps] for trajectory in trajectories]
            journal.write(Update(number=number, version=number, metrics={}, trajectories=trajectories, credit=credit))
    return folder


def read_recorded(folder: Path, number: int) -> list[tuple[str, int, int, float]]:
    """Task, rollout, step and credit of every step of an update."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        return [
            (record["task"], record["rollout"], row["step"], value)
            for record in journal.trajectories(number)
            for row, value in zip(record["steps"], record["credit"], strict=True)
        ]


@pytest.mark.parametrize("rollout", [(0, FAILED), (4, REPLAYED)])
@pytest.mark.parametrize("method", [(), ("--method", "run/config.toml"), ("--method", "r3:alpha=2.0")])
def test_a_group_that_a_past_rollout_joined_has_the_journals_credit(
    groupwise: Run, tmp_path: Path, rollout: tuple[int, float], method: tuple[str, ...]
) -> None:
    write_rescue_run(tmp_path / "run")
    number, credit = rollout
    ran = groupwise("explain", "run", "--task", "t@2", "--rollout", str(number), "--step", "0", *method, "--json")
    data = json.loads(ran.out)
    assert ran.status == 0
    assert data["is_what_trained"] is True
    assert data["value"] == data["recorded"] == pytest.approx(credit)


@pytest.mark.more
def test_a_method_that_compares_across_tasks_does_so_within_an_update(groupwise: Run, tmp_path: Path) -> None:
    folder = write_run_of(tmp_path / "run", methods.build("reinforce_pp_baseline"), updates=3)
    for number in (1, 2, 3):
        for task, rollout, index, credit in read_recorded(folder, number)[::7]:
            step = ("--task", f"{task}@{number}", "--rollout", str(rollout), "--step", str(index))
            data = json.loads(groupwise("explain", "run", *step, "--json").out)
            assert data["value"] == pytest.approx(credit, rel=1e-9, abs=1e-9)


def test_another_method_is_said_not_to_be_what_trained(groupwise: Run, tmp_path: Path) -> None:
    written = {"method": "dr_grpo"}
    folder = write_run_of(tmp_path / "run", methods.build("dr_grpo"), updates=1, made_by=written)
    task, rollout, index, credit = read_recorded(folder, 1)[0]
    step = ("--task", f"{task}@1", "--rollout", str(rollout), "--step", str(index))
    own = groupwise("explain", "run", *step).out
    assert "under dr_grpo" in own
    assert f"the journal has {credit:+.9f}: the same number" in own
    other = groupwise("explain", "run", *step, "--method", "hgpo")
    assert other.status == 0
    assert "under hgpo" in other.out
    assert (
        f"this is not the number of the training: the run trained with dr_grpo, and its journal has {credit:+.9f}"
        in other.out
    )
    assert json.loads(groupwise("explain", "run", *step, "--method", "hgpo", "--json").out)["is_what_trained"] is False


def test_an_rollout_of_a_run_is_found_by_task_and_update(groupwise: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "run", updates=2, tasks=1, rollouts=2)
    ran = groupwise("explain", "run", "--rollout", "0", "--step", "0")
    assert ran.status != 0
    assert "rollout '0' exists in 2 tasks; add --task, one of:" in ran.err
    assert "there is no rollout '9'" in groupwise("explain", "run", "--rollout", "9", "--step", "0").err
    assert "there is no task 'x'" in groupwise("explain", "run", "--rollout", "0", "--task", "x", "--step", "0").err


def test_a_task_of_a_run_may_be_given_by_its_beginning_as_for_inspect(groupwise: Run, tmp_path: Path) -> None:
    folder = write_run_of(tmp_path / "run", methods.build("dr_grpo"), updates=2)
    [task, other] = [read_recorded(folder, number)[0][0] for number in (1, 2)]
    assert task != other
    digest = task.rpartition("-")[2]
    step = ("--rollout", "0", "--step", "0", "--json")
    whole = groupwise("explain", "run", "--task", f"{task}@1", *step)
    assert whole.status == 0
    for beginning in (f"{digest[:8]}@1", f"{task[:-4]}@1", digest[:8], task):
        assert groupwise("explain", "run", "--task", beginning, *step) == whole
    inspected = ("inspect", "run", "--update", "1", "--task", digest[:8], "--rollout", "0", "--step", "0", "--json")
    assert groupwise(*inspected) == whole
    assert f"there is no task '{digest[:8]}@2'" in groupwise("explain", "run", "--task", f"{digest[:8]}@2", *step).err


def test_a_beginning_that_fits_many_tasks_names_five(groupwise: Run, tmp_path: Path) -> None:
    folder = write_run_of(tmp_path / "run", methods.build("dr_grpo"), updates=2)
    scopes = sorted({f"{task}@{number}" for number in (1, 2) for task, *_ in read_recorded(folder, number)})
    assert len(scopes) == 6
    for options, advice in (
        (("--task", "household"), "'household' matches all: give more of the id"),
        ((), "add --task"),
    ):
        ran = groupwise("explain", "run", *options, "--rollout", "0", "--step", "0")
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == (
            f"error: rollout '0' exists in 6 tasks; {advice}, one of: {', '.join(scopes[:5])}, ... (6 in all)\n"
        )
