"""Examples run whole: what was run of an example that has changed since counts as not run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import example_metrics
from benchmarks.example_metrics import digest_file, join_parts, play_apart

NAME = "small/first"
PART = "small.first.json"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run file that stands for an example."""
    path = tmp_path / "examples" / f"{NAME}.toml"
    path.parent.mkdir(parents=True)
    path.write_text("seed = 0\n", encoding="utf-8")
    monkeypatch.setattr(example_metrics, "EXAMPLES", tmp_path / "examples")
    return path


def test_a_part_counts_while_its_example_says_the_same(example: Path, tmp_path: Path) -> None:
    part = {"file": digest_file(example), "seconds": 1}
    (tmp_path / PART).write_text(json.dumps(part), encoding="utf-8")
    example.write_text("seed = 0  # no other run\n", encoding="utf-8")
    assert join_parts([NAME], tmp_path, {})["examples"] == {NAME: part}
    example.write_text("seed = 1\n", encoding="utf-8")
    joined = join_parts([NAME], tmp_path, {})
    assert (joined["examples"], joined["missing"]) == ({}, {NAME: "it was not run"})
    recorded = {"file": digest_file(example), "seconds": 2}
    assert join_parts([NAME], tmp_path, {NAME: recorded})["examples"] == {NAME: recorded}


def test_an_example_that_has_changed_is_run_again(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        runs.append(command)
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="no package")

    monkeypatch.setattr(subprocess, "run", run)
    (tmp_path / PART).write_text(json.dumps({"file": digest_file(example)}), encoding="utf-8")
    play_apart(NAME, tmp_path)
    assert runs == []
    example.write_text("seed = 1\n", encoding="utf-8")
    play_apart(NAME, tmp_path)
    assert len(runs) == 1
    assert capsys.readouterr().out == f"{NAME} failed: no package\n"  # the old part is no result of this run
    assert join_parts([NAME], tmp_path, {})["missing"] == {NAME: "no package"}
