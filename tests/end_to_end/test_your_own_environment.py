"""docs/learn/own_environment.md does what it says: its environment passes the checker, and its run learns."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise.cli.main import make_app

pytestmark = pytest.mark.more

PAGE = (Path(__file__).parents[2] / "docs" / "learn" / "own_environment.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    block = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    return block[1]


def call(*words: str) -> str:
    ran = CliRunner().invoke(make_app(), list(words))
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def success(line: str) -> float:
    share = re.search(r"success ([\d.]+) %", line)
    assert share is not None
    return float(share[1])


def test_the_page_can_be_followed_from_the_file_to_the_dialogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "thermostat", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thermostat.py").write_text(block("python"), encoding="utf-8")
    (tmp_path / "thermostat.toml").write_text(block("toml"), encoding="utf-8")
    assert call("check", "env", "thermostat:Thermostat").splitlines()[0] == block("text").strip()
    lines = call("train", "thermostat.toml").splitlines()
    assert lines[0].startswith("warm start: loss ")
    before, after = (success(line) for line in lines if line.startswith(("before", "after")))
    assert after > before + 10
    groups = call("inspect", "runs/thermostat", "--update", "1")
    task = re.search(r"thermostat-train-[0-9a-f]+", groups)
    assert task is not None
    dialogue = call("inspect", "runs/thermostat", "--update", "1", "--task", task[0], "--rollout", "0")
    assert "Make the room just right." in dialogue or "degrees, too" in dialogue
