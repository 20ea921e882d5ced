"""Values of a user's own classes, and numbers without end, in the columns of a table and in rows that are written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise import StepTable
from groupwise.store import write_rollouts
from groupwise.store.formats import open_rollouts
from groupwise.store.journal_file import pack_blob
from groupwise.system.errors import FileError, RecordError
from tests.unit.store.rows import ROW

COLUMNS: dict[str, Any] = {"task": ["t", "t"], "rollout": [0, 1], "step": [0, 0], "reward": [1.0, 0.0]}


class Unruly:
    """Cannot be compared, and cannot be printed."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no\x1b[2J")

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise RuntimeError("no")


def message(**columns: Any) -> str:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(**COLUMNS | columns)
    return str(caught.value)


@pytest.mark.parametrize("name", ["rollout", "step", "reward", "outcome", "valid", "tokens", "age"])
def test_values_that_no_column_takes(name: str) -> None:
    for value in (Unruly(), 10**5000, "x" * 100_000, np.array([1, 2]), b"\xff", 1j):
        if name == "rollout" and type(value) is int:
            continue  # an id may be any integer
        said = message(**{name: [value, 0]})
        assert said.startswith(f"column {name!r}")
        assert len(said) < 400


def test_values_that_no_column_takes_in_the_segments_of_a_step() -> None:
    for value in (Unruly(), np.array([1, 2])):
        said = message(rollout=[0, 0], segment=[0, 1], outcome=[value, value])
        assert said.startswith("column 'outcome'")


def test_states_that_cannot_be_compared() -> None:
    assert message(state=[Unruly(), Unruly()]) == (
        "column 'state' holds keys that cannot be compared (RuntimeError: no\\x1b[2J); use text, a number, a tuple of "
        "these, or None for 'not comparable'"
    )


def test_rows_that_hold_themselves(tmp_path: Path) -> None:
    circle: list[Any] = []
    circle.append(circle)
    for rows, meta in (([ROW | {"state": circle}], {}), ([ROW], {"notes": circle})):
        with pytest.raises(RecordError):
            write_rollouts(tmp_path / "rollouts.jsonl", rows, meta=meta)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [5, None, ("a",)])
def test_rows_with_keys_that_are_no_text(tmp_path: Path, key: Any) -> None:
    with pytest.raises(RecordError) as caught:
        write_rollouts(tmp_path / "rollouts.jsonl", [ROW | {key: 1}])
    assert str(caught.value).startswith(f"row 0: unknown key {key!r}; ")


@pytest.mark.parametrize("steps", [5, {"task": 1}, [1], [{}]])
def test_a_journal_whose_steps_are_none(tmp_path: Path, steps: Any) -> None:
    pytest.importorskip("torch")
    from tests.faults.damaged_runs import make_run

    make_run(tmp_path, updates=1)
    with sqlite3.connect(tmp_path / "journal.sqlite") as database:
        database.execute("UPDATE trajectories SET steps = ?", (pack_blob(steps),))
    with pytest.raises(FileError) as caught:
        list(open_rollouts(tmp_path).chunks())
    assert str(caught.value).startswith(f"{tmp_path / 'journal.sqlite'}: ")
