"""Every field of the table lives through rows, files, journal and read-back, and gives tables one and the same column.

The rollouts are drawn from the table itself: a field that is added to it is under these laws at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from groupwise import Step, StepTable, Task, Trajectory
from groupwise.data.field_kinds import make_hashable
from groupwise.data.step_columns import make_rows, read_step
from groupwise.data.step_fields import STEP_FIELDS
from groupwise.report.derived_credit import make_step_table
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store.journal import Journal, Update
from groupwise.store.rollout_rows import find_row_fault
from tests.laws.recorded_steps import HELD, rollouts

VERSION = 9
"""Of the weights that learn."""


def rows_of(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Rows as a journal gives them back: through JSON, where tuples become lists."""
    rows: list[dict[str, Any]] = json.loads(json.dumps([row for one in trajectories for row in make_rows(one)]))
    return rows


def columns_of(table: StepTable) -> dict[str, Any]:
    """A table as plain values; states by their codes, since the keys of one may be tuples and of the other texts."""
    own = {"task": table.task, "rollout": table.rollout, "step": table.step, "state": table.state}
    return {name: column.tolist() for name, column in {**own, "reward": table.reward, **table.extra}.items()}


def test_the_table_holds_every_field_of_a_step() -> None:
    made_elsewhere = {"shaped", "versions"}  # a part of the reward; which weights sampled what, told by the rollout
    assert {field.name for field in fields(Step)} == HELD.keys() | made_elsewhere
    assert len({field.name for field in STEP_FIELDS}) == len(STEP_FIELDS)


@given(rollouts())
def test_a_row_is_proper_and_gives_its_step_back(trajectories: list[Trajectory]) -> None:
    for one in trajectories:
        for row, step in zip(rows_of([one]), one.steps, strict=True):
            assert find_row_fault(row) is None
            assert read_step(row, ()) == replace(step, shaped=0.0, versions=())


@given(rollouts())
def test_a_row_holds_a_field_where_the_step_says_it(trajectories: list[Trajectory]) -> None:
    for one in trajectories:
        for row, step in zip(rows_of([one]), one.steps, strict=True):
            for field in HELD.values():
                if not field.made:
                    held = getattr(step, field.step)
                    assert (field.name in row) == (held != field.absent)
                    assert make_hashable(row.get(field.name, field.absent)) == make_hashable(held)


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.parquet"])
@given(trajectories=rollouts())
def test_a_file_gives_back_its_rows_and_the_columns_of_its_rollouts(name: str, trajectories: list[Trajectory]) -> None:
    expected = rows_of(trajectories)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_rollouts(path, trajectories)
        assert [without_nulls(row) for row in RolloutsFile.open(path).rows()] == [
            without_nulls(row) for row in expected
        ]
        (chunk,) = RolloutsFile.open(path).chunks()
        columns = columns_of(chunk.table())
    not_in_rows = {field.name for field in STEP_FIELDS if not field.in_rows}
    made = columns_of(StepTable.from_trajectories(trajectories))
    for column in made.keys() - not_in_rows:
        assert columns.get(column, [None] * len(expected)) == made[column], column


def without_nulls(row: Any) -> dict[str, Any]:
    """A row less its nulls, which Parquet does not tell from absent keys."""
    return {name: value for name, value in row.items() if value is not None}


@given(rollouts())
def test_the_journal_gives_back_its_rows_and_its_steps(trajectories: list[Trajectory]) -> None:
    with TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        credit = [[0.0] * len(one.steps) for one in trajectories]
        journal.write(Update(number=VERSION, version=VERSION, metrics={}, trajectories=trajectories, credit=credit))
        written = {(one["task"], one["rollout"]): one["steps"] for one in journal.trajectories(VERSION)}
        back = [
            journal.past_rollouts.read(journal.past_rollouts.find(one.task.id, number=VERSION, rollout=one.rollout))
            for one in trajectories
        ]
    for one, read_back in zip(trajectories, back, strict=True):
        assert written[one.task.id, one.rollout] == rows_of([one])
        assert read_back.steps == tuple(replace(step, shaped=0.0) for step in one.steps)
        assert read_back.versions == one.versions


@given(rollouts())
def test_credit_done_again_reads_the_columns_that_it_read_before(trajectories: list[Trajectory]) -> None:
    before = columns_of(StepTable.from_trajectories(trajectories, version=VERSION))
    assert columns_of(make_step_table(rows_of(trajectories), version=VERSION)) == before


def test_credit_done_again_reads_the_state_that_a_step_led_to() -> None:
    rows = [
        {"task": "t", "rollout": 0, "step": i, "reward": 0.0, "next_state": ["b", i] if i else None} for i in (0, 1)
    ]
    assert make_step_table(rows).column("next_state").tolist() == [None, '["b",1]']


def test_a_hinted_prompt_comes_back_with_the_one_that_has_no_hint() -> None:
    step = Step(index=0, prompt_ids=(1, 2, 3), unhinted_prompt_ids=(3,))
    (row,) = rows_of([Trajectory(id="t/0", task=Task(id="t"), rollout=0, steps=(step,))])
    assert row["unhinted_prompt_ids"] == [3]
    assert read_step(row, ()).unhinted_prompt_ids == (3,)
