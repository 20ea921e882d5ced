"""Weights that a trainer sends to all servers at once: they stand still meanwhile, and go on whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from groupwise.core.errors import EngineFault
from groupwise.engines.engine import Request, VersionSpan
from groupwise.engines.remote.replica import Replica
from groupwise.engines.vllm.server_group import ServerGroup
from tests.unit.engines.remote.conftest import OpenEngine, StartServer
from tests.unit.engines.remote.toy_model import write_weights

REQUEST = Request(prompt_ids=(1, 2, 3), seed=5, max_tokens=4)


def test_servers_stand_still_while_weights_are_sent_and_then_sample_with_them(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [start_server(), start_server()]
    engine = open_engine(*servers)
    path = write_weights(tmp_path, 7)
    monkeypatch.setattr(ServerGroup, "_ask_world_size", lambda self, client: 1)

    def send(replicas: Sequence[Replica], label: str) -> None:
        assert [server.is_paused for server in servers] == [True, True]
        group = ServerGroup([replica.client for replica in replicas], seconds=5)
        group.label = label
        group.start_weight_update()
        group.update_weights({"path": str(path)})
        group.finish_weight_update()

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
