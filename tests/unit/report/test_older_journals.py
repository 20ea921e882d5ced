"""Journals of before a step said apart whether it was well formed and accepted: read, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise import RecordError, StepTable, Trajectory, methods
from groupwise.data.step_columns import make_rows
from groupwise.report.derived_credit import DerivedCredit, UnderivableCredit, derive_credit
from groupwise.report.groups import read_groups
from groupwise.store import journal as journal_module
from groupwise.store.formats import open_rollouts
from groupwise.store.journal import Journal
from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import play_update, write_run

WITHOUT = methods.hgpo(invalid_penalty=0.0)


def rows_of_before(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Rows as another recorder may write them: `valid`, always, and nothing finer."""
    finer = {"well_formed", "accepted"}
    return [
        {name: row[name] for name in row if name not in finer} | {"valid": all(row[name] for name in finer)}
        for row in make_rows(trajectory)
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journal_module, "make_rows", rows_of_before)
    return write_run(tmp_path / "run", algorithm=WITHOUT, updates=1)


PLAYED = play_update(1, tasks=4, rollouts=4, skill=0.6)
VALID = sorted((rollout.task.id, rollout.rollout, [bool(step.valid) for step in rollout.steps]) for rollout in PLAYED)


def test_inspection_says_invalid_where_it_cannot_say_more(run: Path) -> None:
    assert not all(valid for *_, flags in VALID for valid in flags)
    with RunFolder(run) as folder:
        groups = read_groups(folder, 1)
    flaws = [
        (group.task, rollout.rollout, [step.flaw for step in rollout.steps])
        for group in groups
        for rollout in group.rollouts
    ]
    words = [(task, rollout, ["" if valid else "invalid" for valid in flags]) for task, rollout, flags in VALID]
    assert sorted(flaws) == words


def test_past_rollouts_come_back_with_what_is_known_of_them(run: Path) -> None:
    with Journal(run / "journal.sqlite", read_only=True) as journal:
        trajectories = [
            journal.past_rollouts.read(past) for past in journal.past_rollouts.newest(max_rollouts=99, after=0)
        ]
    assert {(step.well_formed, step.accepted) for rollout in trajectories for step in rollout.steps} == {(None, None)}
    assert (
        sorted((rollout.task.id, rollout.rollout, [step.valid for step in rollout.steps]) for rollout in trajectories)
        == VALID
    )


def test_an_audit_refuses_the_penalty_by_name_and_computes_everything_else(run: Path) -> None:
    (chunk,) = open_rollouts(run).chunks()
    table = chunk.table()
    assert {"valid"} == {"well_formed", "accepted", "valid"} & set(table.extra)
    with pytest.raises(RecordError, match="has a column 'valid' but no 'well_formed', which the penalty of"):
        methods.hgpo().advantage(table)
    assert WITHOUT.advantage(table).compared.any()


def test_credit_is_computed_again_without_a_penalty_and_never_with_another_number(run: Path) -> None:
    with Journal(run / "journal.sqlite", read_only=True) as journal:
        trajectories = list(journal.trajectories(1))
    again = derive_credit(trajectories, WITHOUT)
    assert isinstance(again, DerivedCredit)
    assert again.credit.values.tolist() == again.recorded
    other = derive_credit(trajectories, methods.hgpo())
    assert isinstance(other, UnderivableCredit)
    assert other.reason.startswith("the table has a column 'valid' but no 'well_formed'")


def test_rollouts_of_before_beside_new_ones_leave_what_both_say(run: Path) -> None:
    with Journal(run / "journal.sqlite", read_only=True) as journal:
        (past,) = journal.past_rollouts.newest(max_rollouts=1, after=0)
        replayed = journal.past_rollouts.read(past)
    table = StepTable.from_trajectories([*(rollout for rollout in PLAYED if rollout.task.id != past.task), replayed])
    assert {"valid"} == {"well_formed", "accepted", "valid"} & set(table.extra)
