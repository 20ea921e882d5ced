"""`groupwise check engine`: the report, its exit status, its settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.cli.main import make_app
from groupwise.engines.conformance import RULES

RUN = """
[algorithm]
method = "grpo"

[env]
kind = "identity"
num_words = 6
length = 1

[model]
kind = "tiny"
hidden = 16
layers = 1
heads = 2
context = 64
"""

STALE = """
from groupwise.training import LocalEngine


class Stale(LocalEngine):
    '''An engine whose weights stay as they were.'''

    def open(self, source):
        engine = super().open(source)
        load = engine.load
        engine.load = lambda weights, *, version: load({}, version=version)
        return engine
"""


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN, encoding="utf-8")


def test_the_engine_of_a_run_file_passes() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "engine", "run.toml", "--set", "engine.batch_tokens=512"])
    assert ran.exit_code == 0, ran.output
    lines = ran.stdout.splitlines()
    assert lines[0] == f"LocalEngine(batch_tokens=512): {len(RULES)} rules, 0 broken, 1 not tested"
    assert sum(line.startswith(" ok ") for line in lines) == len(RULES) - 1


def test_a_broken_one_of_your_own_is_named_with_the_reason() -> None:
    Path("my_stale_engine.py").write_text(STALE, encoding="utf-8")
    Path("run.toml").write_text(RUN + '\n[engine]\nkind = "my_stale_engine:Stale"\n', encoding="utf-8")
    ran = CliRunner().invoke(make_app(), ["check", "engine", "run.toml", "--json"])
    assert ran.exit_code == 1, ran.output
    said = json.loads(ran.stdout)
    assert said["engine"]["kind"] == "my_stale_engine:Stale"
    assert [rule["rule"] for rule in said["rules"] if rule["status"] == "broken"] == ["weights_are_taken_over"]


def test_an_engine_that_is_not_there_is_one_sentence() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "engine", "run.toml", "--set", "engine.kind=ours"])
    assert isinstance(ran.exception, ConfigError)
    assert str(ran.exception).endswith("there is no engine 'ours'; Valid: local, server, vllm, vllm_in_process")
