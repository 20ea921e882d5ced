"""Secrets reach no config, journal, report, screen, log or tracker; a run file names them instead of holding them."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise import ConfigError
from groupwise.data.records import StopReason, Task, Trajectory
from groupwise.envs import Observation, Openenv, Outcome
from groupwise.parts.part import Part
from groupwise.report.page import render_page
from groupwise.store.journal import Journal, Update
from groupwise.store.run_folder import RunPaths
from groupwise.system.secrets import check_no_secret, redact, redact_all, resolve_references
from groupwise.training.config.run_file import decode_run, read_run_file
from groupwise.training.run_reader import RunFolder
from groupwise.training.trackers import Trackers
from tests.unit.cli.conftest import Run, groupwise
from tests.unit.cli.run_files import SMALL
from tests.unit.report.run_folders import write_run
from tests.unit.rollout.scripted_episodes import play

__all__ = ["groupwise"]

SECRET = "9d2f1c7a55e0b3aa41"
URL = f"https://agent:{SECRET}@example.org/api?access_token={SECRET}&page=2"
HIDDEN = "https://***@example.org/api?access_token=***&page=2"


@pytest.fixture(autouse=True)
def _secret_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", SECRET)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"refused: {SECRET}!", "refused: ***!"),
        (URL, HIDDEN),
        ("https://token1234@example.org", "https://***@example.org"),
        ("wss://example.org/ws?api_key=abc&x=1", "wss://example.org/ws?api_key=***&x=1"),
        ("GET /?x=1&token=abc#there", "GET /?x=1&token=***#there"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic dXNlcjpwYXNz', 'n': 1}", "{'authorization': 'Basic ***', 'n': 1}"),
        ("x-api-key: 12345678", "x-api-key: ***"),
        ("key hf_abcdefghijklmnopqrstuvwx failed", "key *** failed"),
        ("sk-proj-abcdefghijklmnopqrstuvwx", "***"),
        ("mail me@example.org, max_tokens=5, bearer of news", "mail me@example.org, max_tokens=5, bearer of news"),
        ("http://127.0.0.1:8000/ws?seed=3&split=test", "http://127.0.0.1:8000/ws?seed=3&split=test"),
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, hidden: str) -> None:
    assert redact(text) == hidden


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("WANDB_API_KEY", True),
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("db_password", True),
        ("SERVICE_CREDENTIALS", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("HOME", False),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str, is_secret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a-value-of-its-own")
    assert (redact("a-value-of-its-own") == "***") is is_secret


def test_a_short_value_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUM_KEYS", "5")
    assert redact("5 apples") == "5 apples"


@pytest.mark.parametrize("piece", ["://", "?token", "&api_key=", "authorization: ", "bearer ", "sk-", "x" * 9, "@:/"])
def test_hiding_takes_time_in_proportion(piece: str) -> None:
    began = time.monotonic()
    redact(piece * (10**6 // len(piece)))
    assert time.monotonic() - began < 5


# run files


@pytest.mark.parametrize(
    "settings",
    [
        {"env": {"url": "https://me:word@example.org"}},
        {"env": {"url": "https://example.org/?token=abc"}},
        {"env": {"reset_rest": {"api_key": "abc"}}},
        {"env": {"kwargs": {"hf_token": "abc"}}},
        {"env": {"kwargs": {"token": "5f0c1b2a99d84e37"}}},
        {"trackers": [{"kind": "mlflow", "uri": "https://abc@example.org"}]},
        {"env": {"about": f"use {SECRET}"}},
        {"env": {"headers": {"x": "Authorization: Bearer abcdef"}}},
    ],
    ids=str,
)
def test_a_run_file_that_holds_a_secret_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="this is a secret, and the run folder would store it; put it into an environment variable"
    ) as raised:
        decode_run({"algorithm": {"method": "grpo"}} | settings)
    assert SECRET not in str(raised.value)
    assert "${NAME}" in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "https://${USER}:${WORD}@example.org?token=${TOKEN}"},
        {"url": "https://me:${WORD}@example.org"},
        {"reset_rest": {"api_key": "${KEY}"}},
        {"key_field": "state", "token_budget": "4096", "max_tokens": 8, "password": ""},
        {"end_token": "</s>", "token": "O", "secret": "elephant"},
    ],
    ids=str,
)
def test_a_run_file_may_name_one(settings: dict[str, Any]) -> None:
    check_no_secret({"env": settings})


def test_every_example_is_without_a_secret() -> None:
    paths = sorted((Path(__file__).parents[2] / "examples").rglob("*.toml"))
    assert len(paths) > 20
    for path in paths:
        content = read_run_file(path).content
        check_no_secret(content)
        with pytest.raises(ConfigError):  # and one would be seen there
            check_no_secret(content | {"env": {"api_key": "sk-0123456789abcdef0123456789"}})


def test_an_override_with_a_secret_is_refused_and_not_repeated(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    ran = groupwise("train", "run.toml", "--set", f"env.url={URL}")
    assert ran.status == 2
    assert ": env.url: this is a secret" in ran.err
    assert SECRET not in ran.err
    assert not (tmp_path / "runs").exists()


def test_a_reference_is_looked_up_where_it_is_used_and_kept_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "127.0.0.1:9")
    part = Openenv(url="http://${PLACE}", world="w", reset_rest={"api_key": "${EXAMPLE_API_KEY}"}, timeout=1.0)
    assert part.config()["url"] == "http://${PLACE}"
    task = part.task_set("train")[0]
    assert SECRET not in json.dumps(dict(task.payload))
    assert resolve_references(part.reset_rest) == {"api_key": SECRET}
    pytest.importorskip("websockets")
    with pytest.raises(Exception, match=r"openenv http://\$\{PLACE\}: cannot open a session"):
        part.open(task)
    with pytest.raises(ConfigError, match="the environment variable MISSING is not set"):
        resolve_references({"a": ["${MISSING}"]})


def test_what_is_sent_to_a_server_holds_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.envs import openenv as openenv_client

    sent: list[Mapping[str, Any]] = []

    class Session:
        def __init__(self, url: str, *, timeout: float) -> None:
            self.close = lambda: None

        def ask(self, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
            sent.append(content)
            return {"observation": {"text": "here"}, "done": kind == "step", "reward": 1.0}

    monkeypatch.setattr(openenv_client, "Session", Session)
    key = {"api_key": "${EXAMPLE_API_KEY}"}
    part = Openenv(url="http://127.0.0.1:9", world="w", reset_rest=key, action_rest=key)
    part.open(part.task_set("train")[0]).act("go")
    assert [content["api_key"] for content in sent] == [SECRET, SECRET]


# sinks


class Leaking:
    """An environment that says a secret when it breaks, or in its note at the end."""

    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, task: Task) -> Leaking:
        if self.where == "open":
            raise RuntimeError(f"at {URL}")
        return self

    def observe(self) -> Observation:
        return Observation(text="w0")

    def act(self, action: str) -> Outcome:
        if self.where == "act":
            raise RuntimeError(f"at {URL}")
        return Outcome(observation=self.observe(), terminated=True, success=False, note=f"RuntimeError: at {URL}")


@pytest.mark.parametrize("where", ["open", "act", "note"])
def test_the_error_of_an_rollout_goes_into_the_journal_without_it(where: str, tmp_path: Path) -> None:
    [trajectory] = play(Leaking(where), [Task(id="t")])
    assert trajectory.stop is (StopReason.TERMINATED if where == "note" else StopReason.ERROR)
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.write(Update(number=1, version=1, metrics={}, faults=[trajectory]))
        assert [each["error"] for each in journal.faults(1)] == [f"RuntimeError: at {HIDDEN}"]
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_report_and_a_screen_hide_what_an_older_journal_holds(tmp_path: Path, groupwise: Run) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, note=URL)
    fault = Trajectory(id="t/9", task=Task(id="t"), rollout=9, steps=(), stop=StopReason.ERROR, error=f"at {URL}")
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(Update(number=2, version=2, metrics={}, faults=[fault]))
    with RunFolder(folder) as run:
        page = render_page(run, method="m")
    assert SECRET not in page
    assert "https://***@example.org" in page
    for more in ((), ("--json",)):
        ran = groupwise("inspect", "run", "--update", "2", *more)
        assert SECRET not in ran.out + ran.err
        assert HIDDEN in ran.out.replace("\n", "")


def test_errors_warnings_and_logs_hide_it(groupwise: Run, capsys: pytest.CaptureFixture[str]) -> None:
    ran = groupwise("inspect", f"run-{SECRET}")
    assert SECRET not in ran.err
    assert "run-***" in ran.err
    logger = logging.getLogger("somebody.else")
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    logger.error("cannot reach %s", URL)
    logger.removeHandler(handler)
    assert HIDDEN in capsys.readouterr().err


class Listener(Part, slot="tracker"):
    """Keeps what it is told."""

    @property
    def package(self) -> str:
        return ""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> Any:
        heard.append(config)
        return SimpleNamespace(run_id="r", log=lambda number, metrics: None, finish=lambda: None)


heard: list[Mapping[str, Any]] = []


def test_a_tracker_is_told_settings_without_secrets(tmp_path: Path) -> None:
    with Trackers([Listener()], {"env": {"url": URL}, "list": [URL, 3]}, tmp_path):
        pass
    assert heard == [{"env": {"url": HIDDEN}, "list": [HIDDEN, 3]}]
    assert redact_all(("a", {"b": URL})) == ["a", {"b": HIDDEN}]


def test_the_config_of_a_run_holds_the_name_only(tmp_path: Path) -> None:
    env = {"kind": "openenv", "url": "https://me:${EXAMPLE_API_KEY}@example.org", "world": "w"}
    config = decode_run({"algorithm": {"method": "grpo"}, "env": env, "model": {"kind": "tiny"}})
    RunPaths(tmp_path).write_config(config.config())
    written = (tmp_path / "config.toml").read_text()
    assert 'url = "https://me:${EXAMPLE_API_KEY}@example.org"' in written
    assert SECRET not in written
