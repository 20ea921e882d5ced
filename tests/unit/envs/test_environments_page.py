"""docs/reference/environments.md: its example passes the checker, its transcripts are true."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise import ConfigError
from groupwise.cli.main import app
from groupwise.envs import SPLITS
from groupwise.envs.checker import RULES
from groupwise.parts.part import load_catalogue

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "environments.md").read_text(encoding="utf-8")
OUTSIDE = {
    "gymnasium",
    "alfworld",
    "textworld",
    "textworld_express",
    "scienceworld",
    "bfcl",
    "babyai",
    "sokoban",
    "textarena",
    "gem",
    "openenv",
    "reasoning_gym",
    "math",
    "data_set",
    "mixture",
    "webshop",
}
"""Kinds whose tasks come from a package, from files or from other kinds."""
KINDS = [kind for kind in load_catalogue("env") if kind not in OUTSIDE]


def block(pattern: str) -> str:
    match = re.search(pattern + r"\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return match[1].strip()


def as_it_comes(kind: str) -> Any:
    """The environment with its defaults; leave the test where its extra is not installed."""
    part: Any = load_catalogue("env")[kind]()
    try:
        environment = part.open(part.task_set("test")[0])
        environment.act(environment.expert())
    except ConfigError as error:
        if "needs a package that is not installed" not in str(error):
            raise
        pytest.skip(str(error))
    return part


def transcript(part: Any) -> str:
    environment = part.open(part.task_set("test")[0])
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
    assert block(f"<!-- transcript: {kind} -->\n```text") == transcript(as_it_comes(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_task_set_sizes_are_true(kind: str) -> None:
    part = as_it_comes(kind)
    assert f"| {kind} | {' | '.join(f'{len(part.task_set(split)):,}' for split in SPLITS)} |" in PAGE


def test_every_rule_is_listed_with_its_reason() -> None:
    page = " ".join(PAGE.split())
    for rule in RULES:
        assert f"- `{rule.__name__}`: {' '.join((rule.__doc__ or '').split())}" in page


def test_the_reasoning_gym_transcript_is_what_happens() -> None:
    pytest.importorskip("reasoning_gym", reason="the extra `reasoning` is not installed")
    part: Any = load_catalogue("env")["reasoning_gym"](family="chain_sum", options={"max_terms": 3, "max_digits": 2})
    assert block("<!-- transcript: reasoning_gym -->\n```text") == transcript(part)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["bfcl", "babyai", "sokoban"])
def test_transcripts_from_packages_are_what_happens(kind: str) -> None:
    assert block(f"<!-- transcript: {kind} -->\n```text") == transcript(as_it_comes(kind))
