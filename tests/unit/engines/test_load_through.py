"""Weights that a trainer sends to all servers at once: they stand still meanwhile, and go on whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from groupwise.engines.engine import Request, VersionSpan
from groupwise.engines.replica import Replica
from groupwise.learner.nccl import ServerGroup
from groupwise.system.errors import EngineFault
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.scripted_server import die, say
from tests.unit.engines.toy_model import write_weights

REQUEST = Request(prompt_ids=(1, 2, 3), seed=5, max_tokens=4)


def send_file(path: Path, replicas: Sequence[Replica], label: str) -> None:
    """Send weights as a trainer does, with a file for the wire."""
    group = ServerGroup([replica.client for replica in replicas], seconds=5)
    group.label = label
    group.start_weight_update()
    group.update_weights({"path": str(path)})
    group.finish_weight_update()


def test_servers_stand_still_while_weights_are_sent_and_then_sample_with_them(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [start_server(), start_server()]
    engine = open_engine(*servers)
    monkeypatch.setattr(ServerGroup, "_ask_world_size", lambda self, client: 1)
    path = write_weights(tmp_path, 7)

    def send(replicas: Sequence[Replica], label: str) -> None:
        assert [server.is_paused for server in servers] == [True, True]
        send_file(path, replicas, label)

    engine.load_through(send, version=3)
    assert [server.is_paused for server in servers] == [False, False]
    assert [server.calls["/reset_prefix_cache"] for server in servers] == [1, 1]
    assert engine.version == 3
    [answer] = engine.generate([REQUEST])
    assert answer.versions == (VersionSpan(3, len(answer.response_ids)),)


def test_servers_go_on_where_sending_fails(start_server: StartServer, open_engine: OpenEngine) -> None:
    servers = [start_server(), start_server()]
    engine = open_engine(*servers)

    def fail(replicas: Sequence[Replica], label: str) -> None:
        raise EngineFault("the wire broke")

    with pytest.raises(EngineFault, match="the wire broke"):
        engine.load_through(fail, version=1)
    assert [server.is_paused for server in servers] == [False, False]
    assert engine.version == 0


@pytest.mark.parametrize("route", ["/pause", "/reset_prefix_cache", "/resume", "/weight_info"])
def test_a_server_that_dies_beside_the_sending_is_out_and_the_others_go_on(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    monkeypatch.setattr(ServerGroup, "_ask_world_size", lambda self, client: 1)
    servers = [start_server(), start_server(), start_server()]
    engine, send = open_engine(*servers), partial(send_file, write_weights(tmp_path, 7))
    servers[1].trouble(route, die)
    engine.load_through(send, version=3)
    assert [replica.number for replica in engine.replicas] == [0, 2]
    assert [servers[number].is_paused for number in (0, 2)] == [False, False]
    assert [answer.versions[0].version for answer in engine.generate([REQUEST])] == [3]
    for server in servers:
        server.kill()
    with pytest.raises(EngineFault, match=r"^all 3 servers of the engine are out; the last reason: the server http"):
        engine.load_through(send, version=4)
    assert engine.version == 3


def test_a_server_that_holds_other_weights_after_the_first_sending_is_out(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerGroup, "_ask_world_size", lambda self, client: 1)
    servers = [start_server(), start_server()]
    for number, server in enumerate(servers):
        server.trouble("/weight_checker", say({"checksums": {"a": str(number)}}))
    engine = open_engine(*servers)
    engine.load_through(partial(send_file, write_weights(tmp_path, 7)), version=0)
    assert [replica.number for replica in engine.replicas] == [0]
