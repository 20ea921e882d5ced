"""What the commands do with files that come in several chunks, and what they show while they read."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.screen import file_progress
from groupwise.report import explained_step
from groupwise.report.explain import Explanation
from groupwise.store import RolloutsChunk, RolloutsFile
from tests.unit.cli.conftest import Run
from tests.unit.cli.files import row, write

TASKS = [f"task {number}" for number in range(12)]
ROWS = [
    row(task, f"{rollout}-{number}", index, f"s{index % 2}", float((number * rollout + index) % 5))
    for number, task in enumerate(TASKS)
    for rollout in range(3)
    for index in range(rollout + 1)
]


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes every file too large for one chunk; holds the sizes of the chunks that were read."""
    whole, sizes = RolloutsFile.chunks, []

    def chunks(self: RolloutsFile, progress: Any = None, **options: Any) -> Iterator[RolloutsChunk]:
        # Read to the end first: the traceback that pytest keeps would hold the temporary files of a reader halfway.
        for part in list(whole(self, progress, chunk_bytes=256, **options)):
            sizes.append(len(part))
            yield part

    monkeypatch.setattr(RolloutsFile, "chunks", chunks)
    return sizes


def test_the_audit_of_a_file_in_parts_counts_what_the_audit_of_the_whole_counts(
    groupwise: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write(tmp_path / "large.jsonl", ROWS)
    whole = json.loads(groupwise("audit", "large.jsonl", "--json").out)
    sizes = request.getfixturevalue("in_chunks")
    parts = json.loads(groupwise("audit", "large.jsonl", "--json").out)
    assert len(sizes) > 3
    assert sum(sizes) == len(ROWS)
    assert parts["census"] == whole["census"]
    assert [level["compared_steps"] for level in parts["levels"]] == [
        level["compared_steps"] for level in whole["levels"]
    ]
    assert [column["flips"] for column in parts["methods"]] == [column["flips"] for column in whole["methods"]]


def test_a_step_of_a_file_in_parts_is_explained_as_in_the_whole(
    groupwise: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write(tmp_path / "large.jsonl", ROWS)
    step = ("--rollout", "2-7", "--step", "1")
    whole = groupwise("explain", "large.jsonl", *step)
    request.getfixturevalue("in_chunks")
    assert whole.status == 0
    assert groupwise("explain", "large.jsonl", *step) == whole


def test_an_id_comes_before_longer_ids_wherever_they_stand_in_a_file_in_parts(
    groupwise: Run, tmp_path: Path, in_chunks: list[int]
) -> None:
    """Tasks t2, t and t3; t3 alone has a rollout 2."""
    tasks = (("t2", 2), ("t", 2), ("t3", 3))
    write(tmp_path / "large.jsonl", [row(t, str(a), i, "s", a) for t, num in tasks for a in range(num) for i in (0, 1)])
    step = ("explain", "large.jsonl", "--step", "0", "--method", "dr_grpo", "--task")
    explained = json.loads(groupwise(*step, "t", "--rollout", "1", "--json").out)
    assert len(in_chunks) == 1
    assert {member["task"] for member in explained["members"]} == {"t"}
    assert groupwise(*step, "t", "--rollout", "2").err == ("error: there is no rollout '2' at task 't'; Valid: 0, 1\n")
    assert json.loads(groupwise(*step, "t3", "--rollout", "2", "--json").out)["value"] == 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("explain", "large.jsonl", "--rollout", "2-7", "--step", "1", "--method", "dgpo"),
            "the method compares across tasks and the file is too large to hold; use a smaller file",
        ),
        (
            ("audit", "large.jsonl", "--method", "dgpo"),
            "method 'dgpo' compares across tasks and needs the whole file in memory, which is too large for that; "
            "leave it out, or audit a smaller file",
        ),
    ],
)
def test_a_method_across_tasks_refuses_a_file_in_parts(
    arguments: tuple[str, ...], message: str, groupwise: Run, tmp_path: Path, in_chunks: list[int]
) -> None:
    write(tmp_path / "large.jsonl", ROWS)
    ran = groupwise(*arguments)
    assert (ran.status, ran.out, ran.err) == (2, "", f"error: {message}\n")


def test_an_explanation_that_does_not_agree_says_so_with_status_1(
    groupwise: Run, rollouts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = explained_step.explain_step

    def off_by_a_little(*arguments: Any, **options: Any) -> Explanation:
        explanation = honest(*arguments, **options)
        return replace(explanation, by_hand=explanation.by_hand + 2e-9)

    monkeypatch.setattr(explained_step, "explain_step", off_by_a_little)
    ran = groupwise("explain", rollouts, "--rollout", "c", "--step", "0", "--method", "dr_grpo")
    assert ran.status == 1
    assert "derived again by hand from the members, it does not agree (gap" in ran.out


def test_a_step_without_state_or_action_is_explained_without_them(groupwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "bare.jsonl", [row("t", "a", 0, None, 1.0), row("t", "b", 0, None, 0.0)])
    ran = groupwise("explain", "bare.jsonl", "--rollout", "a", "--step", "0", "--method", "dr_grpo")
    assert ran.out.splitlines()[:2] == [
        "task 't', rollout 'a', step 0 under dr_grpo",
        "EpisodeReturn compared ByTask, Mean / NoScale: (1 - 0.5) / 1 = 0.5",
    ]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("size", "is_shown"), [(8 * 2**20, True), (8 * 2**20 - 1, False)])
def test_a_bar_is_shown_on_a_terminal_for_files_that_take_a_while(
    size: int, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with file_progress(size, "reading rollouts.jsonl") as progress:
        progress(size // 2)
    assert ("reading rollouts.jsonl" in stream.getvalue()) == is_shown


def test_no_bar_is_shown_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with file_progress(2**30, "reading rollouts.jsonl") as progress:
        progress(2**29)
    assert stream.getvalue() == ""
