"""docs/environments.md: its example runs and passes the checker, and its transcripts are what the environments say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.envs import ENVS, SPLITS
from groupwise.envs.checker import RULES

PAGE = (Path(__file__).parents[3] / "docs" / "environments.md").read_text(encoding="utf-8")
KINDS = [kind for kind in ENVS if kind != "gymnasium"]


def block(pattern: str) -> str:
    found = re.search(pattern + r"\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1].strip()


def transcript(part: Any) -> str:
    environment = part.open(part.panel("test")[0])
    first = environment.observe()
    lines = [*([f"(goal: {first.goal})"] if first.goal else []), first.text]
    while True:
        action = environment.expert()
        outcome = environment.act(action)
        lines += [f"> {action}", outcome.observation.text]
        if outcome.ended:
            return "\n".join([*lines, f"(reward {outcome.reward}, success {outcome.success})"])


def test_the_example_passes_the_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "guess", raising=False)
    (tmp_path / "guess.py").write_text(block("```python"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["check", "env", "guess:Guess"])
    assert ran.exit_code == 0, ran.stdout
    shown = [line.strip() for line in ran.stdout.splitlines()]
    written = [line.strip() for line in block("<!-- report -->\n```text").splitlines()]
    assert shown[:-1] == written[:-1], "the last line is the speed"


@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_are_what_happens(kind: str) -> None:
    part: Any = ENVS[kind]()
    assert block(f"<!-- transcript: {kind} -->\n```text") == transcript(part)


@pytest.mark.parametrize("kind", KINDS)
def test_panel_sizes_are_true(kind: str) -> None:
    part: Any = ENVS[kind]()
    assert f"| {kind} | {' | '.join(f'{len(part.panel(split)):,}' for split in SPLITS)} |" in PAGE


def test_every_rule_is_listed_with_its_reason() -> None:
    page = " ".join(PAGE.split())
    for rule in RULES:
        assert f"- `{rule.__name__}`: {' '.join((rule.__doc__ or '').split())}" in page
