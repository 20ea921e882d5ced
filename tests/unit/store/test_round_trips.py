"""What is written is what is read: rows through each format, trajectories through a file into a table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from groupwise import StepTable
from groupwise.data.records import Origin, StopReason, Trajectory
from groupwise.store import RolloutsFile, write_rollouts
from tests.unit.store.rows import ROW, file_rows, in_order, trajectories, without_nulls


def write_and_read(name: str, rows: Any, **options: Any) -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        assert write_rollouts(path, rows, **options) == len(rows)
        return [dict(row) for row in RolloutsFile.open(path).rows()]


@given(rows=file_rows())
def test_rows_survive_json_lines(rows: list[dict[str, Any]]) -> None:
    read = write_and_read("rollouts.jsonl", rows)
    assert read == rows
    assert [list(row) for row in read] == [in_order(row) for row in rows]


@given(rows=file_rows())
def test_rows_survive_gzip(rows: list[dict[str, Any]]) -> None:
    assert write_and_read("rollouts.jsonl.gz", rows) == rows


@given(rows=file_rows())
def test_rows_survive_parquet_but_for_nulls(rows: list[dict[str, Any]]) -> None:
    assert without_nulls(write_and_read("rollouts.parquet", rows)) == without_nulls(rows)


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet"])
def test_types_survive(name: str) -> None:
    states = [True, 1, 1.5, "1", ["1"], {"b": [1], "a": None}, None]
    read = write_and_read(name, [ROW | {"step": i, "state": state} for i, state in enumerate(states)])
    assert [(type(row["state"]), row["state"]) for row in read] == [(type(state), state) for state in states]


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet"])
def test_meta_survives(name: str, tmp_path: Path) -> None:
    meta = {"env": "ALFWorld", "model": "größer", "seeds": [1, 2]}
    write_rollouts(tmp_path / name, [ROW], meta=meta)
    assert RolloutsFile.open(tmp_path / name).meta == meta


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet"])
def test_half_a_surrogate_pair_comes_back_as_the_text_of_its_escape(name: str) -> None:
    row = write_and_read(name, [ROW | {"action": "go \ud800", "state": ["\udfff", "\ud83d\ude00"]}])[0]
    assert (row["action"], row["state"]) == ("go \\ud800", ["\\udfff", "😀"])


def test_values_of_numpy_enums_and_tuples_are_written_as_what_they_stand_for() -> None:
    row = {
        "task": np.int64(7),
        "rollout": np.int64(0),
        "step": np.int32(2),
        "state": ("hall", np.int64(2)),
        "reward": np.float32(0.5),
        "well_formed": np.bool_(True),
        "stop": StopReason.TRUNCATED,
        "response_ids": np.array([3, 4]),
        "logp_behaviour": [np.float32(-0.5), -1.0],
        "origin": Origin.HINTED,
    }
    assert write_and_read("rollouts.jsonl", [row]) == [
        {
            "task": 7,
            "rollout": 0,
            "step": 2,
            "state": ["hall", 2],
            "reward": 0.5,
            "well_formed": True,
            "stop": "truncated",
            "response_ids": [3, 4],
            "logp_behaviour": [-0.5, -1.0],
            "origin": "hinted",
        }
    ]


def test_the_same_rows_give_the_same_gzip_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_rollouts(tmp_path / name, [ROW])
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_gzip_is_recognised_by_content_whatever_the_name(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "rollouts.jsonl.gz", [ROW])
    (tmp_path / "rollouts.txt").write_bytes((tmp_path / "rollouts.jsonl.gz").read_bytes())
    assert list(RolloutsFile.open(tmp_path / "rollouts.txt").rows()) == [ROW]


def test_blank_lines_a_byte_order_mark_and_a_last_line_without_its_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [ROW, ROW | {"step": 1}])
    lines = path.read_text().splitlines()
    path.write_bytes(b"\xef\xbb\xbf" + f"{lines[0]}\n\n{lines[1]}\n \n{lines[2]}".encode())
    (chunk,) = RolloutsFile.open(path).chunks()
    assert (chunk.columns["step"], chunk.lines) == ([0, 1], [3, 5])


def test_a_large_parquet_file_has_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("groupwise.store.parquet._GROUP_ROWS", 100)
    rows = [ROW | {"step": i} for i in range(450)]
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, rows)
    assert pyarrow_parquet.ParquetFile(path).num_row_groups == 5
    assert list(RolloutsFile.open(path).rows()) == rows


def assert_same(table_read: StepTable, expected: StepTable) -> None:
    for name in ("task", "rollout", "step", "state", "reward", "step_of_row"):
        assert np.array_equal(getattr(table_read, name), getattr(expected, name)), name
    assert (table_read.task_ids, table_read.rollout_ids) == (expected.task_ids, expected.rollout_ids)
    for name, column in expected.extra.items():
        # A column of nothing but None says nothing, and a file does not hold it.
        if any(value is not None for value in column.tolist()):
            assert table_read.extra[name].tolist() == column.tolist(), name


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.parquet"])
@given(rollouts=trajectories())
def test_trajectories_through_a_file_give_the_table_of_the_trajectories(name: str, rollouts: list[Trajectory]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write_rollouts(path, rollouts)
        (chunk,) = RolloutsFile.open(path).chunks()
    assert_same(chunk.table(), StepTable.from_trajectories(rollouts))
    last = [step is trajectory.steps[-1] for trajectory in rollouts for step in trajectory.steps]
    assert [stop is not None for stop in chunk.columns["stop"]] == last


def test_a_file_written_here_is_the_documented_text(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "rollouts.jsonl", [{"reward": 1, "step": 0, "rollout": 0, "task": "t"}], meta={"a": 1})
    assert (tmp_path / "rollouts.jsonl").read_text() == (
        '{"format": "groupwise.rollouts", "version": 2, "meta": {"a": 1}}\n'
        '{"task": "t", "rollout": 0, "step": 0, "reward": 1}\n'
    )


def test_gzip_files_hold_the_same_text(tmp_path: Path) -> None:
    for name in ("rollouts.jsonl", "rollouts.jsonl.gz"):
        write_rollouts(tmp_path / name, [ROW])
    assert gzip.decompress((tmp_path / "rollouts.jsonl.gz").read_bytes()) == (tmp_path / "rollouts.jsonl").read_bytes()


def test_parquet_names_the_columns_it_holds_as_json_text(tmp_path: Path) -> None:
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, [ROW | {"state": ["a"], "role": "x"}, ROW | {"role": "y", "extra": {"b": 1}}])
    schema = pyarrow_parquet.read_schema(path)
    assert json.loads(schema.metadata[b"groupwise.rollouts"])["json"] == ["state", "extra"]
    assert [str(schema.field(name).type) for name in ("state", "role", "extra")] == ["string"] * 3
