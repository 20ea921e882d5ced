"""Every way in which a file cannot be written, with the whole sentence, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.data.records import Step, Task, Trajectory
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.system.errors import GroupwiseError, RecordError
from tests.unit.store.rows import ROW

NAMES = ("rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet")


def trajectory(**fields: Any) -> Trajectory:
    return Trajectory(**({"id": "first", "task": Task(id="t"), "rollout": 0, "steps": (Step(index=0),)} | fields))


CASES: list[tuple[list[Any], str]] = [
    ([], "there are no rows to write; record at least one step"),
    ([trajectory(steps=())], "there are no rows to write; record at least one step"),
    (
        [ROW, ROW | {"reward": float("nan")}],
        "row 1: key 'reward' is NaN; it takes a finite number "
        "(a missing score is not a zero: score the rollout or leave it out)",
    ),
    ([ROW, 7], "row 1: found 7, but a row is a JSON object with task, rollout, step and reward"),
    ([ROW, ROW | {"outcome": 1}], "row 1: has 'outcome', but row 0 has none; give it to every row or to none"),
    (
        [ROW | {"state": frozenset("a")}],
        "row 0: key 'state' is a frozenset; it takes text, a finite number, true or false, a list, an object, "
        "or null for 'not comparable'",
    ),
    (
        [ROW | {"extra": {"bad": {1, 2}}}],
        "row 0: key 'extra' holds a set; it takes text, finite numbers, true, false, null, and lists and "
        "objects of these",
    ),
    (
        [ROW | {"extra": {"bad": {(1, 2): 3}}}],
        "row 0: key 'extra' has a key that is not text; it takes text, finite numbers, true, false, null, and lists "
        "and objects of these",
    ),
    (
        [ROW | {"state": [float("inf")]}],
        "row 0: key 'state' holds an infinity; it takes text, finite numbers, true, false, null, and lists and objects "
        "of these",
    ),
    (
        [trajectory(), trajectory(id="second", steps=(Step(index=0, state_key=frozenset("a")),))],
        "trajectory 'second', step 0: key 'state' is a frozenset; it takes text, a finite number, true or false, "
        "a list, an object, or null for 'not comparable'",
    ),
    (
        [trajectory(outcome=1.0), trajectory(id="second")],
        "trajectory 'second', step 0: no 'outcome', but row 0 has one; give it to every row or to none",
    ),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "expected"), CASES)
def test_bad_rows(tmp_path: Path, name: str, rows: list[Any], expected: str) -> None:
    with pytest.raises(RecordError) as caught:
        write_rollouts(tmp_path / name, rows)
    assert str(caught.value) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_error_of_the_rows_themselves_leaves_the_old_file_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_rollouts(path, [ROW])

    def rows() -> Iterator[dict[str, Any]]:
        yield ROW | {"step": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rollouts(path, rows())
    assert list(tmp_path.iterdir()) == [path]
    assert list(RolloutsFile.open(path).rows()) == [ROW]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("rollouts.txt", {}, "{path}: the name has no known ending; use .jsonl, .jsonl.gz or .parquet"),
        ("no/rollouts.jsonl", {}, "{path}: the folder {path.parent} does not exist; create it first"),
        (
            "rollouts.jsonl",
            {"meta": {"when": {1}}},
            "meta cannot be written as JSON (Object of type set is not JSON serializable); "
            "use text, numbers, lists and objects",
        ),
    ],
)
def test_bad_arguments(tmp_path: Path, name: str, options: dict[str, Any], expected: str) -> None:
    path = tmp_path / name
    with pytest.raises(GroupwiseError) as caught:
        write_rollouts(path, [ROW], **options)
    assert str(caught.value) == expected.format(path=path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW | {"task": 2**70}, "Python int too large to convert to C long"),
    ],
)
def test_what_does_not_fit_into_parquet(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(RecordError) as caught:
        write_rollouts(tmp_path / "rollouts.parquet", [row])
    message = str(caught.value)
    assert message.startswith("the rows do not fit into Parquet columns (")
    assert reason in message
    assert message.endswith("); write JSON Lines (`.jsonl`) instead")
    assert list(tmp_path.iterdir()) == []
