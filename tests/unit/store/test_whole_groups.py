"""Parts hold whole groups, whatever the order of the rows and however little memory there is."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise import methods
from groupwise.store import RolloutsChunk, RolloutsFile, write_rollouts
from groupwise.system.errors import FileError
from tests.unit.store.rows import HEADER, ROW, write_lines

CHUNK_BYTES = 4 << 10
NAMES = ("rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet")


def make_shuffled_rows(seed: int = 0, *, num_tasks: int = 40) -> list[dict[str, Any]]:
    """Rows of many groups, shuffled: texts and lists as states, tokens, an extra column that few rows have."""
    rng = random.Random(seed)
    rows = []
    for task in range(num_tasks):
        for rollout in range(4):
            outcome = float(rng.randint(0, 1))
            for index in range(rng.randint(1, 6)):
                row: dict[str, Any] = {
                    "task": f"task {task}",
                    "group": f"task {task}, update {rollout % 2}",
                    "rollout": rollout,
                    "step": index,
                    "state": rng.choice(("hall", "kitchen", ["cellar", rng.randint(0, 2)], None)),
                    "observation": f"task {task}, rollout {rollout % 3}" if index == 0 else "later",
                    "reward": rng.random(),
                    "outcome": outcome,
                    "action": "look " * rng.randint(0, 9),
                    "response_ids": [1] * rng.randint(0, 5),
                }
                if task == 7 and rollout == 0:
                    row |= {"extra": {"rare": index}, "segment": 0, "origin": "hinted"}
                rows.append(row)
    rng.shuffle(rows)
    return rows


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    write_rollouts(path, make_shuffled_rows())
    return path


def by_line(chunks: list[RolloutsChunk]) -> dict[int, dict[str, Any]]:
    """Every row of some chunks by its line, with all its columns."""
    rows = {}
    for chunk in chunks:
        for position, line in enumerate(chunk.lines):
            entries = {name: column[position] for name, column in chunk.columns.items()}
            rows[line] = entries | {"(task)": chunk.tasks[position]}
    return rows


def test_a_small_file_is_one_part(path: Path) -> None:
    assert len(list(RolloutsFile.open(path).chunks())) == 1


def test_spilled_parts_hold_what_the_one_part_holds(path: Path) -> None:
    file = RolloutsFile.open(path)
    (whole,) = file.chunks()
    chunks = list(file.chunks(chunk_bytes=CHUNK_BYTES))
    assert len(chunks) > 5
    assert sum(len(chunk) for chunk in chunks) == len(whole)
    assert by_line(chunks) == by_line([whole])
    assert [sorted(chunk.columns) for chunk in chunks] == [sorted(whole.columns)] * len(chunks)


def test_every_group_is_whole(path: Path) -> None:
    chunks = list(RolloutsFile.open(path).chunks(chunk_bytes=CHUNK_BYTES))
    chunks_of = Counter(scope for chunk in chunks for scope in set(chunk.columns["task"]))
    assert len(chunks_of) == 80
    assert set(chunks_of.values()) == {1}


def test_credit_by_parts_is_the_credit_of_the_whole(path: Path) -> None:
    file = RolloutsFile.open(path)
    algorithm = methods.gigpo()
    (whole,) = file.chunks()
    expected = dict(zip(whole.lines, algorithm.advantage(whole.table()).values.tolist(), strict=True))
    credit = {}
    for chunk in file.chunks(chunk_bytes=CHUNK_BYTES):
        credit |= dict(zip(chunk.lines, algorithm.advantage(chunk.table()).values.tolist(), strict=True))
    assert credit == expected
    assert np.any(np.array(list(credit.values())) != 0)


def test_the_columns_of_a_part(tmp_path: Path) -> None:
    rows = [
        {
            "task": "t",
            "group": "g",
            "rollout": 0,
            "step": 0,
            "state": {"b": 2, "a": ["x"]},
            "observation": "You are here.",
            "reward": 0,
            "prompt_ids": [1, 2],
            "response_ids": [3],
            "logp_behaviour": [-0.5],
            "extra": {"level": 3},
        },
        {"task": "t", "group": "g", "rollout": 0, "step": 1, "observation": "There.", "reward": 1}
        | {"response_ids": [], "stop": "terminated", "origin": "replayed", "segment": 2, "action": "go"},
    ]
    write_rollouts(tmp_path / "rollouts.jsonl", rows)
    (chunk,) = RolloutsFile.open(tmp_path / "rollouts.jsonl").chunks()
    assert chunk.columns == {
        "task": ["g", "g"],
        "rollout": [0, 0],
        "step": [0, 1],
        "state": ['{"a":["x"],"b":2}', None],
        "reward": [0, 1],
        "tokens": [1, 0],
        "first_observation": [hashlib.blake2b(b"You are here.", digest_size=12).hexdigest(), None],
        "level": [3, None],
        "segment": [0, 2],
        "action": [None, "go"],
        "stop": [None, "terminated"],
        "origin": ["fresh", "replayed"],
    }
    assert (chunk.tasks, chunk.lines, len(chunk)) == (["t", "t"], [2, 3], 2)


def test_empty_lists_of_sampled_tokens_are_no_record_of_tokens(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "rollouts.jsonl", [ROW | {"response_ids": []}])
    (chunk,) = RolloutsFile.open(tmp_path / "rollouts.jsonl").chunks()
    assert sorted(chunk.columns) == ["reward", "rollout", "state", "step", "task"]


def test_a_group_larger_than_a_part_is_still_one_part(tmp_path: Path) -> None:
    rows = [ROW | {"step": i, "action": "a" * 100} for i in range(2000)]
    rows += [ROW | {"task": f"small {i}"} for i in range(50)]
    write_rollouts(tmp_path / "rollouts.jsonl", rows)
    chunks = list(RolloutsFile.open(tmp_path / "rollouts.jsonl").chunks(chunk_bytes=CHUNK_BYTES))
    assert sorted(len(chunk) for chunk in chunks)[-1] >= 2000
    assert sum(len(chunk) for chunk in chunks) == len(rows)


def test_more_runs_than_can_be_merged_at_a_time_are_merged_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.store.rollouts_file.MAX_RUNS", 2)
    write_rollouts(tmp_path / "rollouts.jsonl", make_shuffled_rows())
    file = RolloutsFile.open(tmp_path / "rollouts.jsonl")
    (whole,) = file.chunks()
    chunks = list(file.chunks(chunk_bytes=CHUNK_BYTES))
    assert len(chunks) > 5
    assert by_line(chunks) == by_line([whole])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_temporary_files_are_removed_at_the_end(tmp_path: Path, temporary: Path) -> None:
    write_rollouts(tmp_path / "rollouts.jsonl", make_shuffled_rows())
    chunks = RolloutsFile.open(tmp_path / "rollouts.jsonl").chunks(chunk_bytes=CHUNK_BYTES)
    next(chunks)
    assert len(list(temporary.rglob("*"))) > 2
    for _ in chunks:
        pass
    assert list(temporary.iterdir()) == []


def test_temporary_files_are_removed_when_the_caller_stops(tmp_path: Path, temporary: Path) -> None:
    write_rollouts(tmp_path / "rollouts.jsonl", make_shuffled_rows())
    chunks = RolloutsFile.open(tmp_path / "rollouts.jsonl").chunks(chunk_bytes=CHUNK_BYTES)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert list(temporary.iterdir()) == []


def test_temporary_files_are_removed_on_an_error(tmp_path: Path, temporary: Path) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, *make_shuffled_rows(), {"task": 1}])
    with pytest.raises(FileError, match="no key 'rollout'"):
        list(RolloutsFile.open(path).chunks(chunk_bytes=CHUNK_BYTES))
    assert list(temporary.iterdir()) == []


def test_a_temporary_folder_without_room(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "rollouts.jsonl", [HEADER, *make_shuffled_rows()])

    def full(**options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("groupwise.store.rollouts_file.NamedTemporaryFile", full)
    with pytest.raises(FileError) as caught:
        list(RolloutsFile.open(path).chunks(chunk_bytes=CHUNK_BYTES))
    folder = str(caught.value).split(":")[0]
    assert str(caught.value) == (
        f"{folder}: cannot write temporary files (No space left on device); "
        "make room there, or set TMPDIR to a folder with as much room as the rollouts file takes"
    )
    assert list(temporary.iterdir()) == []


def test_progress_ends_at_the_size_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.store.rollout_lines._PROGRESS_BYTES", 1000)
    file = RolloutsFile.open(path)
    for read in (file.rows, lambda progress: file.chunks(progress, chunk_bytes=CHUNK_BYTES)):
        done: list[int] = []
        for _ in read(done.append):
            pass
        assert len(done) > 1
        assert done == sorted(done)
        assert done[-1] == file.size
