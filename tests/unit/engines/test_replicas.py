"""Several servers as one: routing, back-pressure, and the end."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future

import pytest

from groupwise.engines.client import Replicas, choose_replica, name_session
from groupwise.engines.engine import Generation
from groupwise.engines.http_client import ServerFault
from groupwise.engines.replica import Replica
from groupwise.system.errors import EngineFault
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.replica_requests import BATCH, BOTH, PATIENCE, STREAM, list_prompts, make_requests, submit
from tests.unit.engines.scripted_server import hang


@BOTH
def test_a_session_stays_at_its_server(start_server: StartServer, open_engine: OpenEngine, takes_batches: bool) -> None:
    servers = [start_server(takes_batches=takes_batches) for _ in range(3)]
    engine = open_engine(*servers)
    for turn in range(3):
        engine.generate(make_requests(20, turn=turn))
    shares = [list_prompts(server) for server in servers]
    assert all(shares)
    assert sum(map(len, shares)) == 20  # each session at one server, three times
    for number, request in enumerate(make_requests(20)):
        assert number in shares[choose_replica(name_session(request), range(3))]


@BOTH
def test_when_a_server_leaves_only_its_own_sessions_move(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool
) -> None:
    servers = [start_server(takes_batches=takes_batches) for _ in range(3)]
    engine = open_engine(*servers)
    engine.generate(make_requests(20))
    before = [list_prompts(server) for server in servers]
    servers[1].kill()
    engine.generate(make_requests(20, turn=1))
    assert list_prompts(servers[0]) >= before[0]
    moved = (list_prompts(servers[0]) - before[0]) | (list_prompts(servers[2]) - before[2])
    assert moved == before[1]


def test_no_more_is_under_way_at_a_server_than_it_may(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server()
    engine = open_engine(server, max_in_flight=3)
    threads = threading.active_count()
    gate = threading.Event()
    server.trouble(STREAM, *[lambda _, handler, answer: (gate.wait(PATIENCE), answer)[1]] * 3)
    futures = submit(engine, make_requests(12))
    server.wait_for_calls(STREAM, 2 + 3)  # two were asked when it was opened
    assert threading.active_count() <= threads + 3 + 3  # ours, and the server's
    assert sum(future.running() for future in futures) == 3
    gate.set()
    assert all(future.result(PATIENCE).response_ids for future in futures)
    assert server.max_under_way == 3


def test_threads_that_wait_do_not_hold_up_new_ones(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server()
    engine = open_engine(server, max_in_flight=4)
    engine.generate(make_requests(1))  # one thread is there now, and waits
    asked, gate = server.calls[STREAM], threading.Event()
    server.trouble(STREAM, *[lambda _, handler, answer: (gate.wait(PATIENCE), answer)[1]] * 4)
    futures = submit(engine, make_requests(8))
    server.wait_for_calls(STREAM, asked + 4)  # four are under way at once
    gate.set()
    assert all(future.result(PATIENCE).response_ids for future in futures)


def test_what_was_to_go_to_a_server_that_left_meanwhile_goes_elsewhere(
    start_server: StartServer, open_engine: OpenEngine
) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers, max_in_flight=1)
    number = choose_replica(name_session(make_requests(1)[0]), range(2))
    gate, server, other = threading.Event(), servers[number], servers[1 - number]
    asked, asked_elsewhere = server.calls[STREAM], other.calls[STREAM]
    server.trouble(STREAM, lambda _, handler, answer: (gate.wait(PATIENCE), answer)[1])
    futures = [*submit(engine, make_requests(1)), *submit(engine, make_requests(1, turn=1))]
    server.wait_for_calls(STREAM, asked + 1)
    engine.dismiss(engine.replicas[number].name, "it failed its weight check")
    assert all(future.result(PATIENCE).response_ids for future in futures)
    assert (server.calls[STREAM], other.calls[STREAM]) == (asked + 1, asked_elsewhere + 2)
    gate.set()


def test_what_finds_its_server_out_is_no_fault_of_that_server(
    start_server: StartServer, open_engine: OpenEngine
) -> None:
    [replica] = open_engine(start_server()).replicas
    replicas = Replicas([replica], max_in_flight=1)
    replicas.dismiss(replica, "it failed its weight check")
    future = replicas.submit_to(replica, lambda asked: asked.version)
    with pytest.raises(ServerFault, match=r"^it failed its weight check$"):
        future.result(PATIENCE)
    assert replicas.take_metrics()["replicas/0/faults"] == 0
    replicas.close()


@pytest.mark.parametrize("fails", [False, True], ids=["an answer", "a fault"])
def test_what_comes_late_from_before_a_server_left_says_nothing_of_it(
    start_server: StartServer, open_engine: OpenEngine, fails: bool
) -> None:
    replicas = Replicas(open_engine(start_server(), start_server()).replicas, max_in_flight=1)
    gate, begun, asked = threading.Event(), threading.Event(), list[Replica]()

    def ask(replica: Replica) -> str:
        asked.append(replica)
        if len(asked) == 1:
            begun.set()
            gate.wait(PATIENCE)
            if fails:
                raise ServerFault("no connection in time")
        return f"answer {len(asked)}"

    future = replicas.submit("a session", ask)
    assert begun.wait(PATIENCE)
    replicas.dismiss(asked[0], "it died")
    replicas.put_on_trial(asked[0])
    replicas.admit(asked[0])
    gate.set()
    assert future.result(PATIENCE) == "answer 2"
    metrics = replicas.take_metrics()
    assert [metrics[f"replicas/{name}"] for name in ("alive", "left", "readmitted")] == [2, 1, 1]
    assert metrics[f"replicas/{asked[0].number}/faults"] == 0
    replicas.close()


def test_many_threads_may_submit_at_once(start_server: StartServer, open_engine: OpenEngine) -> None:
    engine = open_engine(start_server(), start_server())
    answers: dict[int, list[Generation]] = {}

    def play(turn: int) -> None:
        answers[turn] = engine.generate(make_requests(8, turn=turn))

    threads = [threading.Thread(target=play, args=(turn,), daemon=True) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    alone = {turn: engine.generate(make_requests(8, turn=turn)) for turn in range(4)}
    assert answers == alone


def test_whoever_is_called_back_may_submit(start_server: StartServer, open_engine: OpenEngine) -> None:
    engine = open_engine(start_server(), max_in_flight=1)
    done, chain = threading.Event(), list[Future[Generation]]()

    def go_on(_: Future[Generation]) -> None:
        if len(chain) == 5:
            done.set()
            return
        [future] = submit(engine, make_requests(1, turn=len(chain)))
        chain.append(future)
        future.add_done_callback(go_on)

    go_on(Future())
    assert done.wait(PATIENCE)
    assert all(future.result().response_ids for future in chain)


def test_a_future_that_was_cancelled_is_not_asked_for(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server()
    engine = open_engine(server, max_in_flight=1)
    gate = threading.Event()
    server.trouble(STREAM, lambda _, handler, answer: (gate.wait(PATIENCE), answer)[1])
    _, second, third = submit(engine, make_requests(3))
    server.wait_for_calls(STREAM, 2 + 1)
    assert second.cancel()
    gate.set()
    assert third.result(PATIENCE).response_ids
    assert server.calls[STREAM] == 2 + 2


@BOTH
def test_closing_ends_whoever_waits(start_server: StartServer, open_engine: OpenEngine, takes_batches: bool) -> None:
    server = start_server(takes_batches=takes_batches)
    engine = open_engine(server, max_in_flight=1)
    route = BATCH if takes_batches else STREAM
    opened = server.calls[route]
    server.trouble(route, hang)
    ends: list[type[BaseException]] = []

    def ask() -> None:
        try:
            engine.generate(make_requests(3))
        except (EngineFault, CancelledError) as end:
            ends.append(type(end))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    server.wait_for_calls(route, opened + 1)
    engine.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(ends) == 2
    with pytest.raises(EngineFault, match="the engine is closed"):
        engine.generate(make_requests(1))
    engine.close()  # once more is no harm
