"""Several servers as one: routing, back-pressure, hand-overs that servers die in, and the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest

from groupwise.core.errors import EngineFault
from groupwise.engines.engine import Generation, Request, SubmittingEngine
from groupwise.engines.remote.engine import ServerEngine
from groupwise.engines.remote.http_client import ServerFault
from groupwise.engines.remote.replica import Replica
from groupwise.engines.remote.replicas import Replicas, choose_replica, name_session
from tests.unit.engines.remote.conftest import OpenEngine, StartServer
from tests.unit.engines.remote.scripted_server import ScriptedServer, die, hang, say
from tests.unit.engines.remote.toy_model import write_weights

STREAM, BATCH = "/inference/v1/generate", "/groupwise/v1/generate"
PATIENCE = 20.0
BOTH = pytest.mark.parametrize("takes_batches", [False, True], ids=["a request a call", "in batches"])


def make_requests(num: int, *, turn: int = 0) -> list[Request]:
    return [
        Request(prompt_ids=(1, number % 20), seed=100 * turn + number, max_tokens=4, session=f"attempt {number}")
        for number in range(num)
    ]


def submit(engine: ServerEngine, requests: list[Request]) -> list[Future[Generation]]:
    assert isinstance(engine, SubmittingEngine)
    return list(engine.submit(requests))


def list_prompts(server: ScriptedServer) -> set[int]:
    """The last tokens of the prompts that a server was asked to go on with."""
    asked = set()
    for path, question in server.questions:
        if path == BATCH:
            asked |= {row["prompt_ids"][-1] for row in question["requests"]}
        elif path == STREAM and "logit_bias" not in question["sampling_params"]:
            asked.add(question["token_ids"][-1])
    return asked


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
    engine.dismiss(engine.replicas[number].name, "it failed its canary")
    assert all(future.result(PATIENCE).response_ids for future in futures)
    assert (server.calls[STREAM], other.calls[STREAM]) == (asked + 1, asked_elsewhere + 2)
    gate.set()


def test_what_finds_its_server_out_is_no_fault_of_that_server(
    start_server: StartServer, open_engine: OpenEngine
) -> None:
    [replica] = open_engine(start_server()).replicas
    replicas = Replicas([replica], max_in_flight=1)
    replicas.dismiss(replica, "it failed its canary")
    future = replicas.submit_to(replica, lambda asked: asked.version)
    with pytest.raises(ServerFault, match=r"^it failed its canary$"):
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
    with pytest.raises(EngineFault, match="the engine is closed, and answers no requests"):
        engine.generate(make_requests(1))
    engine.close()  # once more is no harm


HAND_OVER = ["/pause", "/init_weight_transfer_engine", "/start_weight_update", "/update_weights"]
HAND_OVER += ["/finish_weight_update", "/reset_prefix_cache", "/resume", "/weight_info"]


@BOTH
@pytest.mark.parametrize("route", HAND_OVER)
def test_a_server_that_dies_in_a_hand_over_is_out_and_the_other_goes_on(
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
        ("/reset_prefix_cache", None, "did not forget what old weights computed (it says so); look into its log"),
        ("/weight_info", None, "holds the weights '3', but '"),
    ],
)
def test_a_hand_over_that_fails_is_one_sentence_and_leaves_nobody_standing(
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
def test_a_server_that_a_run_left_in_a_hand_over_serves_the_next_one(
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


def test_a_hand_over_that_hangs_is_not_left_open(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    engine = open_engine(server, handover_timeout=0.5)
    server.trouble("/update_weights", hang)
    with pytest.raises(EngineFault, match=r"did not read weights from .* within"):
        engine.load_file(write_weights(tmp_path, 1), version=1)
    assert (server.is_paused, server.is_updating) == (False, False)
    engine.load_file(write_weights(tmp_path, 2), version=2)
    assert [replica.version for replica in engine.replicas] == [2]


def test_a_hand_over_that_hangs_ends_in_time(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers, handover_timeout=0.5)
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
    servers[0].facts["vocabulary"] = 7
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
        assert [server.calls["/weight_checker"] for server in servers] == asked  # not at every hand-over


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


def test_one_that_does_not_say_versions_cannot_answer_over_a_hand_over(
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
    with pytest.raises(EngineFault, match="does not say which weights sampled which token, and new ones came"):
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
        replica.look_again(lambda client: replica.facts)
        return answer

    server.trouble(STREAM, leave)
    with pytest.raises(ServerFault, match="does not say which weights sampled which token, and new ones came"):
        replica.generate(make_requests(1)[0])
