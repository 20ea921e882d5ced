"""docs/howto/agents/state_rules.md shows what its command prints, and its Python runs."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from groupwise.agents import CATALOGUE, ExchangeStateRule
from groupwise.agents.recorded_sessions import open_sessions
from groupwise.cli.main import make_app
from groupwise.parts.part import Slot

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "agents" / "state_rules.md").read_text(encoding="utf-8")
CODE, USE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(make_app(), arguments, catch_exceptions=False).stdout


def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"```sh\ngroupwise (audit .*)\n```", PAGE)
    lines = {" ".join(line.split()) for line in invoke(*shlex.split(command)).splitlines()}
    shown = re.findall(r"<!-- audit: \w+ -->\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(shown) == 3
    assert [line for line in "".join(shown).splitlines() if " ".join(line.split()) not in lines] == []


def test_every_rule_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| (?!\d)", PAGE, re.MULTILINE)) == set(CATALOGUE["state_rule"])


def test_the_settings_fill_the_slot() -> None:
    (settings,) = re.findall(r"```text\n(kind = .*?)```", PAGE, flags=re.DOTALL)
    rule = Slot("state_rule").fill(tomllib.loads(settings))
    assert rule == ExchangeStateRule(writes=("send_mail", "delete_*"))


def test_the_rule_of_the_page_runs_and_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"__name__": "my_rules"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in (CODE, USE):
            exec(compile(block, "my_rules", "exec", dont_inherit=True), names)
    (shown,) = re.findall(r"print\(rule.*?```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert printed.getvalue() == shown
    module = ModuleType("my_rules")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "my_rules", module)
    sessions = str(ROOT / "examples" / "sessions.jsonl")
    found = json.loads(invoke("audit", sessions, "--state", "exchange,my_rules:OpenFile", "--trust", "--json"))
    assert [(rule["name"], rule["keys"] > 0) for rule in found["rules"]] == [
        ("exchange", True),
        ("my_rules:OpenFile", False),
    ]


def test_the_line_of_the_page_is_a_session(tmp_path: Path) -> None:
    (line,) = re.findall(r"```jsonl\n(.*?)```", PAGE, flags=re.DOTALL)
    path = tmp_path / "sessions.jsonl"
    path.write_text(line, encoding="utf-8")
    (call,) = open_sessions(path).calls(None)
    assert (call.task, call.rollout, call.reward) == ("cancel-tent", 0, 1.0)
