"""Scripted servers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from groupwise.engines.client import ServerEngine, open_server_engine
from tests.unit.engines.scripted_server import ScriptedServer
from tests.unit.engines.toy_model import make_source

StartServer = Callable[..., ScriptedServer]
OpenEngine = Callable[..., ServerEngine]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts a scripted server."""
    servers: list[ScriptedServer] = []

    def start(**info: Any) -> ScriptedServer:
        servers.append(ScriptedServer(**info))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def open_engine() -> Iterator[OpenEngine]:
    """Opens an engine over servers."""
    engines: list[ServerEngine] = []

    def open_over(*servers: ScriptedServer, **more: Any) -> ServerEngine:
        settings: dict[str, Any] = {"request_timeout": 10.0, "sync_timeout": 10.0, "max_in_flight": 4} | more
        urls = [server.url for server in servers]
        engines.append(open_server_engine(urls, source=make_source(), precision="float32", **settings))
        return engines[-1]

    yield open_over
    for engine in engines:
        engine.close()
