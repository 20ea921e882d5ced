"""`groupwise serve`: servers with the right flags, their URLs, and refusals before anything starts."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import serve
from groupwise.engines.http_client import ServerClient
from groupwise.training.config.run_file import load_run
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small

TARGETS = ("--lora-targets", "q_proj,v_proj")
HEALTH_SERVER = Path(__file__).parents[1] / "engines" / "health_server.py"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 128, "num_attention_heads": 4}))
    return folder


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handler")
def test_servers_are_up_while_it_stays_and_gone_after(
    groupwise: Run, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def make_command(model: str, *, port: int, options: Any) -> Any:
        asked.append((model, dict(options)))
        return [sys.executable, str(HEALTH_SERVER), str(port)], {}

    urls: list[str] = []

    def interrupt(processes: Any) -> None:
        for process in processes:
            urls.append(process.url)
            ServerClient(process.url).get("/health", what="be healthy", timeout=5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr("groupwise.engines.server_processes.groupwise_command", make_command)
    monkeypatch.setattr(serve, "need_trainer", lambda: None)
    monkeypatch.setattr(serve, "_watch", interrupt)
    ran = groupwise("serve", str(model), "--engine", "groupwise", "--replicas", "2", "--lora-rank", "8", *TARGETS)
    assert ran.status == 0, ran.err
    options = {"precision": "float32", "lora-rank": 8, "lora-targets": "q_proj,v_proj", "host": "127.0.0.1"}
    assert asked == [(str(model), options)] * 2
    lines = ran.out.splitlines()
    assert lines[:2] == urls
    assert lines[-1] == "stopped"
    for url in urls:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0
    settings = ran.out[ran.out.index("[engine]") : ran.out.index("\nLogs are in")]
    small(tmp_path)
    (tmp_path / "small.toml").write_text((tmp_path / "small.toml").read_text() + "\n" + settings)
    engine = load_run(tmp_path / "small.toml").engine
    assert (type(engine).__name__, list(engine.urls)) == ("ServerEngineConfig", urls)  # type: ignore[attr-defined]


def refuse(groupwise: Run, *arguments: str) -> str:
    ran = groupwise("serve", *arguments)
    assert (ran.status, ran.out) == (2, "")
    return re.sub(r"\s+", " ", ran.err).strip()


def test_what_cannot_be_served_is_refused_before_anything_starts(groupwise: Run, model: Path, tmp_path: Path) -> None:
    assert "nowhere is not a folder; give a model folder in the Hugging Face layout" in refuse(groupwise, "nowhere")
    (tmp_path / "empty").mkdir()
    assert "empty has no config.json; give a model folder" in refuse(groupwise, "empty")
    assert "/no/such/python does not run as a Python interpreter" in refuse(
        groupwise, str(model), "--python", "/no/such/python"
    )
    assert "has no vLLM; install it there" in refuse(groupwise, str(model), "--python", sys.executable)
    assert "2 servers from port 65535 exceed 65535" in refuse(
        groupwise, str(model), "--replicas", "2", "--port", "65535"
    )
    assert "'float16' is not one of 'float32', 'bfloat16'" in refuse(groupwise, str(model), "--precision", "float16")
    assert "--max-model-len works with vLLM only" in refuse(
        groupwise, str(model), "--engine", "groupwise", "--max-model-len", "64"
    )


def test_heads_that_vllm_refuses(groupwise: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "config.json").write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 4}))
    monkeypatch.setattr("groupwise.engines.vllm.command.find_vllm", lambda python: None)
    assert "its attention heads have width 16, but vLLM on a CPU needs at least 32" in refuse(groupwise, str(model))


@pytest.mark.usefixtures("handler")
def test_servers_for_other_machines_are_printed_by_the_machines_name(
    groupwise: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[str] = []

    def make_command(model: str, *, port: int, options: Any) -> Any:
        hosts.append(options["host"])
        return [sys.executable, str(HEALTH_SERVER), str(port)], {}

    ports: list[int] = []

    def interrupt(processes: Any) -> None:
        ports.extend(process.port for process in processes)
        raise KeyboardInterrupt

    monkeypatch.setattr("groupwise.engines.server_processes.groupwise_command", make_command)
    monkeypatch.setattr(serve, "need_trainer", lambda: None)
    monkeypatch.setattr(serve, "_watch", interrupt)
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    ran = groupwise("serve", str(model), "--engine", "groupwise", "--host", "0.0.0.0")
    assert ran.status == 0, ran.err
    assert hosts == ["0.0.0.0"]
    assert ran.out.splitlines()[0] == f"http://node7:{ports[0]}"
    message = refuse(groupwise, str(model), "--engine", "groupwise", "--host", "192.0.2.1", "--port", "8101")
    assert "port 8101 of 192.0.2.1 cannot be taken (Cannot assign requested address)" in message


@pytest.mark.usefixtures("handler")
def test_a_port_that_is_taken(groupwise: Run, model: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        message = refuse(groupwise, str(model), "--engine", "groupwise", "--port", str(port))
    assert f"port {port} of 127.0.0.1 cannot be taken (Address already in use)" in message


@pytest.mark.parametrize("options", [(), ("--engine", "groupwise"), ("--lora-rank", "8")])
def test_targets_are_those_of_an_adapter_of_our_own_engine(
    groupwise: Run, model: Path, options: tuple[str, ...]
) -> None:
    ran = groupwise("serve", str(model), *TARGETS, *options)
    assert ran.status == 2
    assert "--lora-targets needs --lora-rank and --engine groupwise" in " ".join(ran.err.split())
