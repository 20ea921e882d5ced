"""Parquet files that are damaged, or hold what no row takes: one sentence, never a word of pyarrow's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from groupwise.store import RolloutsFile, write_rollouts
from groupwise.system.errors import FileError
from tests.faults.mutations import mutate_bytes
from tests.unit.store.rows import HEADER, ROW

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

COLUMNS: dict[str, Any] = {"task": ["t"], "rollout": [0], "step": [0], "reward": [1.0]}


def write(path: Path, *, header: dict[str, Any] | bytes = HEADER, **columns: Any) -> Path:
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    table = pyarrow.table({**COLUMNS, **columns}).replace_schema_metadata({"groupwise.rollouts": written})
    parquet.write_table(table, path)
    return path


def message(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        [chunk.table() for chunk in RolloutsFile.open(path).chunks()]
    return str(caught.value)


@pytest.mark.parametrize("coded", [5, "state", ["state", 3], [["state"]], ["stat"], {"state": 1}])
def test_a_header_whose_columns_of_json_are_none(tmp_path: Path, coded: Any) -> None:
    path = write(tmp_path / "rollouts.parquet", header=HEADER | {"json": coded})
    assert message(path) == f"{path}, header: 'json' in the header is {json.dumps(coded)}; it takes a list of columns"


@pytest.mark.parametrize("text", [b"\xff", b'{"format": 1, "format": 2}', b"[" * 100_000, b"9" * 5000])
def test_a_header_that_is_no_json(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path / "rollouts.parquet", header=text)
    assert message(path).startswith(f"{path}: the header in the file's metadata is not JSON (")


@pytest.mark.parametrize("text", ["[1, NaN", '{"a": 1, "a": 1}', "[" * 100_000, b"\xff"])
def test_json_columns_that_hold_none(tmp_path: Path, text: str | bytes) -> None:
    path = write(tmp_path / "rollouts.parquet", header=HEADER | {"json": ["state"]}, state=[text])
    assert message(path).startswith(
        f"{path}, row 1: column 'state' is declared as JSON text in the header, but is not ("
    )


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: [[1.5, float("nan")]], "key 'state' holds NaN"),
        (lambda: pyarrow.array([{"at": 0}], pyarrow.struct({"at": pyarrow.timestamp("s")})), "holds a datetime"),
        (lambda: pyarrow.array([10**30], pyarrow.decimal128(38)), "is a Decimal"),
        (lambda: [b"\xff"], "is a bytes"),
        (lambda: pyarrow.array([2**60], pyarrow.timestamp("ms")), "the Parquet file is cut off or corrupt ("),
    ],
)
def test_states_that_are_no_json(tmp_path: Path, make: Callable[[], Any], complaint: str) -> None:
    assert complaint in message(write(tmp_path / "rollouts.parquet", state=make()))


def test_text_that_is_no_utf_8(tmp_path: Path) -> None:
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00"), pyarrow.py_buffer(b"\xff")]
    )
    path = write(tmp_path / "rollouts.parquet", action=broken)
    assert message(path).startswith(f"{path}: the Parquet file is cut off or corrupt (")


def test_dictionaries_and_columns_of_nulls_are_read_as_what_they_hold(tmp_path: Path) -> None:
    columns = {"action": pyarrow.array(["go"]).dictionary_encode(), "state": pyarrow.nulls(1), "role": pyarrow.nulls(1)}
    (row,) = RolloutsFile.open(write(tmp_path / "rollouts.parquet", **columns)).rows()
    assert (row["action"], row["state"]) == ("go", None)


def test_damaged_files(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "good.parquet", [ROW | {"step": index, "action": "go"} for index in range(50)])
    good = (tmp_path / "good.parquet").read_bytes()
    path = tmp_path / "damaged.parquet"
    said: list[str] = []
    for seed in range(300):
        path.write_bytes(b"PAR1" + mutate_bytes(good, Random(seed))[4:])
        try:
            for chunk in RolloutsFile.open(path).chunks():
                chunk.table()
        except FileError as error:
            said.append(str(error))
    assert 100 < len(said) < 300
    assert [each for each in said if "\n" in each or len(each.encode()) > 1000] == []
