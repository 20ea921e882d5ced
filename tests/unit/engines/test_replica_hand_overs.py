"""Several servers as one: weight syncs that they die or hang in, and what they answer over one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines.http_client import ServerFault
from groupwise.system.errors import EngineFault
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.replica_requests import BOTH, PATIENCE, STREAM, list_prompts, make_requests, submit
from tests.unit.engines.scripted_server import ScriptedServer, die, hang, say
from tests.unit.engines.toy_model import write_weights

SYNC = ["/pause", "/init_weight_transfer_engine", "/start_weight_update", "/update_weights"]
SYNC += ["/finish_weight_update", "/reset_prefix_cache", "/resume", "/weight_info"]


@BOTH
@pytest.mark.parametrize("route", SYNC)
def test_a_server_that_dies_in_a_sync_is_out_and_the_other_goes_on(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, route: str, takes_batches: bool
) -> None:
    servers = [start_server(takes_batches=takes_batches) for _ in range(2)]
    engine = open_engine(*servers)
    servers[0].trouble(route, die)
    engine.load_file(write_weights(tmp_path, 1), version=1)
    assert [replica.number for replica in engine.replicas] == [1]
    assert {g.versions[0].version for g in engine.generate(make_requests(8))} == {1}
    assert engine.take_metrics()["replicas/alive"] == 1


@pytest.mark.parametrize(
    ("route", "content", "complaint"),
    [
        ("/update_weights", {"error": "no such file"}, "did not read weights from {path} (status 500: "),
        ("/reset_prefix_cache", None, "did not reset its prefix cache (it says so); check its log"),
        ("/weight_info", None, "has the weights '3', but '"),
    ],
)
def test_a_sync_that_fails_is_one_sentence_and_leaves_nobody_standing(
    start_server: StartServer,
    open_engine: OpenEngine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    route: str,
    content: Any,
    complaint: str,
) -> None:
    server = start_server()
    engine = open_engine(server)
    answers = {
        "/update_weights": say(content, 500),
        "/reset_prefix_cache": say({"success": False}),
        "/weight_info": say({"weight_version": "3"}),
    }
    server.trouble(route, answers[route])
    path = write_weights(tmp_path, 1)
    with pytest.raises(EngineFault) as caught:
        engine.load_file(path, version=1)
    begin = f"the engine's server is out; the last reason: the server {server.url} {complaint.format(path=path)}"
    assert str(caught.value).startswith(begin)
    assert not caplog.messages  # nothing is said twice
    assert not server.is_paused


@pytest.mark.parametrize("is_updating", [False, True], ids=["paused", "in the middle of an update"])
@BOTH
def test_a_server_that_a_run_left_in_a_sync_serves_the_next_one(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, takes_batches: bool, is_updating: bool
) -> None:
    server = start_server(takes_batches=takes_batches)
    server.is_paused, server.is_updating = True, is_updating
    states = list[tuple[bool, bool]]()
    server.trouble(
        STREAM, lambda _, handler, answer: (states.append((server.is_paused, server.is_updating)), answer)[1]
    )
    engine = open_engine(server)
    assert states == ([] if takes_batches else [(False, False)]), (
        "it is asked nothing that it would wait with, or die of"
    )
    engine.load_file(write_weights(tmp_path, 1), version=1)
    assert {g.versions[0].version for g in engine.generate(make_requests(2))} == {1}


def test_a_sync_that_hangs_is_not_left_open(start_server: StartServer, open_engine: OpenEngine, tmp_path: Path) -> None:
    server = start_server()
    engine = open_engine(server, sync_timeout=0.5)
    server.trouble("/update_weights", hang)
    with pytest.raises(EngineFault, match=r"did not read weights from .* within"):
        engine.load_file(write_weights(tmp_path, 1), version=1)
    assert (server.is_paused, server.is_updating) == (False, False)
    engine.load_file(write_weights(tmp_path, 2), version=2)
    assert [replica.version for replica in engine.replicas] == [2]


def test_a_sync_that_hangs_ends_in_time(start_server: StartServer, open_engine: OpenEngine, tmp_path: Path) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers, sync_timeout=0.5)
    servers[1].trouble("/update_weights", hang)
    engine.load_file(write_weights(tmp_path, 1), version=1)
    assert [replica.number for replica in engine.replicas] == [0]


@BOTH
def test_a_server_that_was_out_answers_nothing_before_it_is_admitted(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, takes_batches: bool
) -> None:
    servers = [start_server(takes_batches=takes_batches) for _ in range(2)]
    engine = open_engine(*servers)
    servers[0].kill()
    engine.generate(make_requests(8))
    servers[0].start()
    engine.generate(make_requests(8))  # it is well again, and nobody knows
    assert list_prompts(servers[0]) == set()
    engine.load_file(write_weights(tmp_path, 1), version=1)
    engine.generate(make_requests(8))  # it has the weights, and did not prove it
    assert list_prompts(servers[0]) == set()
    [back, _] = engine.replicas
    engine.admit(back.name)
    assert {g.versions[0].version for g in engine.generate(make_requests(8))} == {1}
    assert list_prompts(servers[0])
    metrics = engine.take_metrics()
    assert [metrics[f"replicas/{name}"] for name in ("alive", "left", "readmitted")] == [2, 1, 1]


def test_a_server_that_comes_back_with_another_model_stays_out(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers)
    servers[0].kill()
    engine.generate(make_requests(8))
    servers[0].info["vocabulary"] = 7
    servers[0].start()
    engine.load_file(write_weights(tmp_path, 1), version=1)
    assert [replica.number for replica in engine.replicas] == [1]


@pytest.mark.parametrize("sums", [({"a": "1"}, {"a": "2"}), ({"a": "1"}, {"a": "1"}), ({"a": "1"}, {"b": "2"})])
def test_servers_that_hold_other_weights_by_checksum_are_found_when_they_begin(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path, sums: tuple[dict[str, str], dict[str, str]]
) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers)
    for server, checksums in zip(servers, sums, strict=True):
        server.trouble("/weight_checker", say({"checksums": checksums}))
    engine.load_file(write_weights(tmp_path, 1), version=0)
    are_other = sums == ({"a": "1"}, {"a": "2"})
    assert [replica.number for replica in engine.replicas] == ([0] if are_other else [0, 1])
    asked = [server.calls["/weight_checker"] for server in servers]
    engine.load_file(write_weights(tmp_path, 2), version=1)
    if not are_other:
        assert [server.calls["/weight_checker"] for server in servers] == asked  # not at every weight sync


def test_weights_that_come_while_a_request_is_under_way_are_its_own(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    engine = open_engine(server)
    engine.load_file(write_weights(tmp_path, 1), version=1)
    gate, begun = threading.Event(), threading.Event()

    def answer_late(_: ScriptedServer, handler: object, answer: Any) -> Any:
        begun.set()
        gate.wait(PATIENCE)
        num = len(answer[1]["choices"][0]["token_ids"])
        spans = [(old, 0, 1), (server.label, 1, num)]
        answer[1]["choices"][0]["weight_versions"] = [
            {"version": label, "start": start, "end": end} for label, start, end in spans
        ]
        return answer

    old = server.label
    server.trouble(STREAM, answer_late)
    [future] = submit(engine, make_requests(1))
    assert begun.wait(PATIENCE)
    engine.load_file(write_weights(tmp_path, 2), version=2)
    gate.set()
    assert [span.version for span in future.result(PATIENCE).versions] == [1, 2]


def test_one_that_does_not_say_versions_cannot_answer_over_a_sync(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    server.says_versions = False
    engine = open_engine(server)
    gate, begun = threading.Event(), threading.Event()
    late: Callable[..., Any] = lambda _, handler, answer: (begun.set(), gate.wait(PATIENCE), answer)[2]  # noqa: E731
    server.trouble(STREAM, late)
    [future] = submit(engine, make_requests(1))
    assert begun.wait(PATIENCE)
    engine.load_file(write_weights(tmp_path, 1), version=1)
    gate.set()
    with pytest.raises(EngineFault, match="does not report weight versions, and a weight sync happened"):
        future.result(PATIENCE)


def test_an_answer_without_versions_from_before_a_server_left_is_refused(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    server.says_versions = False
    engine = open_engine(server)
    for version in (1, 2):
        engine.load_file(write_weights(tmp_path, version), version=version)
    [replica] = engine.replicas

    def leave(_: ScriptedServer, handler: object, answer: Any) -> Any:
        replica.look_again(lambda client: replica.info)
        return answer

    server.trouble(STREAM, leave)
    with pytest.raises(ServerFault, match="does not report weight versions, and a weight sync happened"):
        replica.generate(make_requests(1)[0])
