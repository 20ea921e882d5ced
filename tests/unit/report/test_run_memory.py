"""Credit that came from a memory: derived again from what the update began with, or said to be out of reach."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import tomli_w

from groupwise import Algorithm, RecordError, StepTable
from groupwise.credit import AbovePrior, ByTask, NoBaseline, NoScale, Relative
from groupwise.parts.stateful import StateBefore, join_columns
from groupwise.report.derived_credit import RememberedColumn, explain_run_step
from groupwise.report.groups import read_groups
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import play_update, settings

ALGORITHM = Algorithm(advantage=Relative(by=ByTask(), of=AbovePrior(), baseline=NoBaseline(), scale=NoScale()))
PLAYED = play_update(1, tasks=2, rollouts=3, skill=0.5)
TASK = PLAYED[0].task.id
PRIORS = {1: 0.5, 2: 0.125, 3: 0.75}
"""What was remembered of every task when each update began."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose three updates saw the same rollouts, and expected something else of them each time."""
    (tmp_path / "config.toml").write_text(tomli_w.dumps(settings(ALGORITHM)), encoding="utf-8")
    with Journal(tmp_path / "journal.sqlite") as journal:
        for number, prior in PRIORS.items():
            state = StateBefore(
                path="algorithm.advantage.of",
                kind="above_prior",
                state={"tasks": {}},
                columns={"prior": {trajectory.task.id: prior for trajectory in PLAYED}},
            )
            table = join_columns(StepTable.from_trajectories(PLAYED), [state])
            values = iter(ALGORITHM.advantage(table).values.tolist())
            credit = [[next(values) for _ in trajectory.steps] for trajectory in PLAYED]
            journal.write(
                Update(number=number, version=number, metrics={}, trajectories=PLAYED, credit=credit, states=[state])
            )
    return tmp_path


def forget(folder: Path, number: int) -> None:
    with sqlite3.connect(folder / "journal.sqlite") as database:
        database.execute("DELETE FROM part_states WHERE number = ?", (number,))


@pytest.mark.parametrize("number", PRIORS)
def test_each_update_is_explained_with_what_it_began_with(folder: Path, number: int) -> None:
    with RunFolder(folder) as run:
        explanation = explain_run_step(run, number=number, task=TASK, rollout=0, step=0)
    assert explanation.agrees
    assert explanation.explanation.value == explanation.recorded
    assert explanation.remembered == (
        RememberedColumn(path="algorithm.advantage.of", column="prior", value=PRIORS[number]),
    )


def test_a_report_that_lacks_the_memory_says_so_and_shows_no_other_number(folder: Path) -> None:
    forget(folder, 2)
    with RunFolder(folder) as run:
        with pytest.raises(RecordError) as error:
            explain_run_step(run, number=2, task=TASK, rollout=0, step=0)
        assert str(error.value) == (
            f"{folder}: update 2 has no saved state of algorithm.advantage.of, so its advantages cannot be computed "
            "again; `groupwise inspect` shows the recorded ones"
        )
        groups, others = read_groups(run, 2), read_groups(run, 1)
        recorded = {(record["task"], record["rollout"]): record["credit"] for record in run.journal.trajectories(2)}
    assert [group.num_compared for group in others] == [sum(len(t.steps) for t in group.rollouts) for group in others]
    assert [group.num_compared for group in groups] == [None, None], "who was compared is not known here"
    shown = {(a.task, a.rollout): [step.credit for step in a.steps] for group in groups for a in group.rollouts}
    assert shown == recorded


def test_a_memory_that_gives_another_number_does_not_pass_for_the_journals(folder: Path) -> None:
    with sqlite3.connect(folder / "journal.sqlite") as database:
        database.execute(
            "UPDATE part_states SET columns = (SELECT columns FROM part_states WHERE number = 3) WHERE number = 2"
        )
    with RunFolder(folder) as run:
        explanation = explain_run_step(run, number=2, task=TASK, rollout=0, step=0)
        assert [group.num_compared for group in read_groups(run, 2)] == [None, None]
    assert not explanation.agrees
    assert explanation.gap == pytest.approx(0.625)
