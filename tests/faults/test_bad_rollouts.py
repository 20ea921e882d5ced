"""Rollouts that nobody meant: every one is refused in one sentence that names the line, within bounds."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store import rollout_lines as lines
from groupwise.store import rollouts_file as reduced_rows
from groupwise.store.formats import open_rollouts
from groupwise.system.errors import FileError, GroupwiseError
from tests.faults.mutations import mutate_bytes, mutate_json_lines
from tests.unit.store.rows import HEADER, ROW, write_lines

DATA = Path(__file__).parents[1] / "unit" / "store" / "data"
TAKES = "it takes text, finite numbers, true, false, null, and lists and objects of these"


def write_text(path: Path, row: str) -> Path:
    """A rollouts file whose second line is this text."""
    path.write_text(f"{json.dumps(HEADER)}\n{row}\n", encoding="utf-8")
    return path


def messages(path: Path) -> set[str]:
    """What reading the rows of a file says, and what reading its chunks says."""
    texts = set()
    for read in (lambda file: list(file.rows()), lambda file: [chunk.table() for chunk in file.chunks()]):
        with pytest.raises(FileError) as caught:
            read(open_rollouts(path))
        texts.add(str(caught.value))
    return texts


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            '{"task": "t", "rollout": 0, "step": 0, "reward": 0, "reward": 1}',
            "the key 'reward' appears twice in one object; repair or drop the line",
        ),
        (
            '{"task": "t", "rollout": 0, "step": 0, "reward": 0, "state": [{"x": 1, "x": 1}]}',
            "the key 'x' appears twice in one object; repair or drop the line",
        ),
        (
            '{"task": "t", "rollout": 0, "step": 0, "reward": 0, "extra": {"\\ud800": 1, "\\\\ud800": 2}}',
            "the key '\\\\ud800' appears twice in one object; repair or drop the line",
        ),
        (
            '{"task": "t", "rollout": 0, "step": 0, "reward": 0, "state": ' + "[" * 50_000 + "]" * 50_000 + "}",
            "its lists and objects are nested too deep; repair or drop the line",
        ),
        (
            '{"task": "t", "rollout": 0, "step": 0, "reward": 0, "state": ' + "9" * 5000 + "}",
            "a number in it has thousands of digits; repair or drop the line",
        ),
    ],
)
def test_json_that_has_no_one_meaning(tmp_path: Path, row: str, reason: str) -> None:
    path = write_text(tmp_path / "rollouts.jsonl", row)
    assert messages(path) == {f"{path}, line 2: {reason}"}


@pytest.mark.parametrize(
    ("key", "value", "inside"),
    [
        ("state", ["room", float("nan")], "holds NaN"),
        ("state", {"a": [{"b": float("inf")}]}, "holds an infinity"),
        ("next_state", [[-float("inf")]], "holds an infinity"),
        ("extra", {"advantage": float("nan")}, "holds NaN"),
    ],
)
def test_nan_inside_a_value(tmp_path: Path, key: str, value: Any, inside: str) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW | {key: value}])
    assert messages(path) == {f"{path}, line 2: key {key!r} {inside}; {TAKES}"}


def test_a_number_beyond_every_float_inside_a_state(tmp_path: Path) -> None:
    path = write_text(tmp_path / "rollouts.jsonl", json.dumps(ROW).replace('"kitchen"', '["kitchen", 1e999]'))
    assert messages(path) == {f"{path}, line 2: key 'state' holds an infinity; {TAKES}"}


def test_a_state_nested_deeper_than_anything_that_is_meant(tmp_path: Path) -> None:
    deep: Any = "room"
    for _ in range(101):
        deep = [deep]
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, ROW | {"state": deep}])
    assert messages(path) == {f"{path}, line 2: key 'state' is nested more than 100 deep; {TAKES}"}
    wide = [[number] for number in range(500)]
    (row,) = RolloutsFile.open(write_lines(tmp_path / "wide.jsonl", [HEADER, ROW | {"state": wide}])).rows()
    assert row["state"] == wide


def test_an_integer_without_a_float_among_log_probabilities(tmp_path: Path) -> None:
    row = ROW | {"response_ids": [1, 2], "logp_behaviour": [10**400, -0.5]}
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, row])
    (message,) = messages(path)
    assert message.startswith(f"{path}, line 2: key 'logp_behaviour' is [1000")
    assert message.endswith("; it takes a list of finite numbers")
    huge = ROW | {"response_ids": [1, 2], "logp_behaviour": [-1e308, -1e308]}
    assert list(RolloutsFile.open(write_lines(tmp_path / "huge.jsonl", [HEADER, huge])).rows()) == [huge]


def test_nan_in_the_notes(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER | {"meta": {"score": [float("nan")]}}, ROW])
    with pytest.raises(FileError) as caught:
        open_rollouts(path)
    assert str(caught.value) == (
        f"{path}, line 1: 'meta' in the header holds NaN; it takes text, finite numbers, lists and objects"
    )


def test_names_that_are_new_on_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduced_rows, "MAX_COLUMNS", 20)
    rows = [ROW | {"step": index, "extra": {f"x{index}": 1}} for index in range(30)]
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, *rows])
    with pytest.raises(FileError) as caught:
        list(open_rollouts(path).chunks())
    assert str(caught.value) == (
        f"{path}, line 17: with this row the file has more than 20 columns in 'extra'; use few names, and put what "
        "differs between rows into values"
    )


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.jsonl.gz"])
def test_a_line_that_is_too_long(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    content = (json.dumps(HEADER) + "\n" + json.dumps(ROW) + "\n").encode() + b" " * (3 << 20) + b"\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert messages(path) == {
        f"{path}, line 3: the line is longer than 1 MiB; a line holds a step or an episode: check the program that "
        "wrote it"
    }


@pytest.mark.parametrize(
    ("magic", "program"),
    [(b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh9", "bzip2"), (b"\xfd7zXZ", "xz"), (b"PK\x03\x04", "zip")],
)
def test_files_that_another_program_compressed(tmp_path: Path, magic: bytes, program: str) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(magic + b"\x00\xff")
    with pytest.raises(FileError) as caught:
        open_rollouts(path)
    assert str(caught.value) == (f"{path}: the file is compressed by {program}; unpack it, or compress it with gzip")


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    for open_file in (RolloutsFile.open, open_rollouts):
        with pytest.raises(FileError) as caught:
            open_file(path)
        assert str(caught.value) == (
            f"{path}: this is a pipe or a device, and is read more than once; copy it into a file"
        )


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(FileError):
        open_rollouts(name)


def test_half_a_character_is_read_as_its_escape_everywhere(tmp_path: Path) -> None:
    texts = {"task": "t\\ud83d", "action": "go \\udc00", "observation": "\\ud83d\\ude00 \\ud83d"}
    row = ", ".join(f'"{key}": "{text}"' for key, text in texts.items())
    path = write_text(
        tmp_path / "rollouts.jsonl", f'{{{row}, "rollout": 0, "step": 0, "reward": 1, "state": ["\\udfff"]}}'
    )
    (row_read,) = RolloutsFile.open(path).rows()
    assert (row_read["task"], row_read["action"], row_read["observation"]) == ("t\\ud83d", "go \\udc00", "😀 \\ud83d")
    assert row_read["state"] == ["\\udfff"]
    write_rollouts(tmp_path / "again.parquet", [row_read], meta={"half": "\ud83d"})
    assert RolloutsFile.open(tmp_path / "again.parquet").meta == {"half": "\\ud83d"}


def test_messages_can_be_written_whatever_was_found(tmp_path: Path) -> None:
    path = write_text(tmp_path / "rollouts.jsonl", '{"\\ud800\\u001b[2J' + "x" * 5000 + '": 1}')
    with pytest.raises(FileError) as caught:
        list(open_rollouts(path).rows())
    message = str(caught.value)
    message.encode()
    assert message.isprintable()
    assert len(message) < 1000


def test_spoilt_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    rows = [ROW | {"rollout": rollout, "step": index, "extra": {"x": 1}} for rollout in range(2) for index in range(2)]
    write_rollouts(tmp_path / "good.parquet", rows)
    good = [path.read_text() for path in sorted(DATA.glob("*.jsonl"))]
    packed = (tmp_path / "good.parquet").read_bytes()
    said: list[str] = []
    for seed in range(400):
        rng = Random(seed)
        path = tmp_path / "spoilt.jsonl"
        text = mutate_json_lines(rng.choice(good), rng).encode("utf-8", "surrogatepass")
        path.write_bytes(mutate_bytes(packed, rng) if seed % 4 == 0 else text)
        try:
            for chunk in open_rollouts(path).chunks(chunk_bytes=500):
                chunk.table()
        except GroupwiseError as error:
            said.append(str(error))
    assert 100 < len(said) < 400
    assert [message for message in said if "\n" in message or len(message.encode()) > 3000] == []
