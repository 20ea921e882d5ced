"""Formats are recognised by their first line, or named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import Step, Task, Trajectory
from groupwise.store import write_rollouts
from groupwise.store.formats import list_formats, open_rollouts
from groupwise.store.journal import Journal, Update
from groupwise.system.errors import ConfigError, FileError

DATA = Path(__file__).parent / "data"
ROW = {"task": "t", "rollout": 0, "step": 0, "reward": 1.0}


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.jsonl.gz", "rollouts.parquet"])
@pytest.mark.parametrize("format", ["auto", "groupwise"])
def test_groupwise_files(tmp_path: Path, name: str, format: str) -> None:
    write_rollouts(tmp_path / name, [ROW], meta={"a": 1})
    file = open_rollouts(tmp_path / name, format=format)
    assert (list(file.rows()), file.meta, file.size) == ([ROW], {"a": 1}, (tmp_path / name).stat().st_size)


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("verl_agent_steps.jsonl", "verl_agent"),
        ("verl_generations.jsonl", "verl generations"),
        ("verl_generations_with_uid.jsonl", "verl generations"),
        ("verifiers_traces.jsonl", "verifiers"),
    ],
)
def test_foreign_files_are_recognised_plain_and_compressed(tmp_path: Path, name: str, read_as: str) -> None:
    plain = open_rollouts(DATA / name)
    (tmp_path / name).write_bytes(gzip.compress((DATA / name).read_bytes()))
    compressed = open_rollouts(tmp_path / name)
    assert plain.meta == compressed.meta == {"read_as": read_as}
    assert list(plain.rows()) == list(compressed.rows())


def test_formats() -> None:
    assert list_formats() == ("auto", "groupwise", "verl_agent", "verifiers")


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_rollouts(tmp_path / "rollouts.jsonl", format="verl-agent")
    assert str(caught.value) == (
        "unknown rollouts format 'verl-agent'; did you mean 'verl_agent'? Valid: auto, groupwise, verifiers, verl_agent"
    )


@pytest.mark.parametrize(
    ("first", "content"),
    [
        ({"prompt": "x", "answer": "y"}, "an object with prompt, answer"),
        ({f"k{i}": i for i in range(9)}, "an object with k0, k1, k2, k3, k4, k5, k6, k7, …"),
        ({}, "an empty object"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_file_of_no_known_format(tmp_path: Path, first: Any, content: str) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(first) + "\n")
    with pytest.raises(FileError) as caught:
        open_rollouts(path)
    assert str(caught.value) == (
        f"{path}, line 1: found {content}, which is of no format that groupwise recognises; name "
        "the format (groupwise, verl_agent, verifiers), map its columns (`--map task=prompt_id,reward=score`), or "
        "write the file with groupwise.store.write_rollouts"
    )


def test_a_missing_and_an_empty_and_a_blank_file(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    for content, expected in (
        (None, "there is no such file; check the path"),
        ("", "the file is empty; check that the run that wrote it finished its first step"),
        ("\n", "the file holds only blank lines; check the run that wrote it"),
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(FileError) as caught:
            open_rollouts(path)
        assert str(caught.value) == f"{path}: {expected}"


def test_a_runs_folder_is_read_from_its_journal(tmp_path: Path) -> None:
    task = Task(id="t")
    steps = (Step(index=0, reward=1.0, response_ids=(5,)), Step(index=1, reward=0.0, response_ids=(6, 7)))
    with Journal(tmp_path / "journal.sqlite") as journal:
        for number in (1, 2):
            played = [
                Trajectory(id="t/0", task=task, rollout=0, steps=steps),
                Trajectory(id="t/1", task=task, rollout=1, steps=()),
            ]
            journal.write(
                Update(number=number, version=number, metrics={}, trajectories=played, credit=[[0.5, 0.5], []])
            )
    file = open_rollouts(tmp_path)
    assert [(row["task"], row["group"], row["rollout"], row["step"], row["reward"]) for row in file.rows()] == [
        ("t", "t@1", 0, 0, 1.0),
        ("t", "t@1", 0, 1, 0.0),
        ("t", "t@2", 0, 0, 1.0),
        ("t", "t@2", 0, 1, 0.0),
    ]
    assert file.left_out == {"rollouts without a step": 2}
    (chunk,) = file.chunks()
    assert chunk.columns["tokens"] == [1, 2, 1, 2]
