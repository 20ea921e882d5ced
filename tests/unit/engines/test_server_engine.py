"""An engine over servers: what it answers, how it takes weights, and whom it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines.client import open_server_engine
from groupwise.engines.engine import (
    ClosingEngine,
    MeasuredEngine,
    ReplicatedEngine,
    Request,
    SubmittingEngine,
    VersionSpan,
)
from groupwise.engines.http_client import ServerFault
from groupwise.system.errors import ConfigError, EngineFault
from tests.unit.engines.conftest import OpenEngine, StartServer
from tests.unit.engines.scripted_server import ScriptedServer, Trouble, break_off, change, die, hang, say
from tests.unit.engines.toy_model import ToyModel, make_source, make_weights, write_weights

REQUESTS = [
    Request(prompt_ids=(1, 2, 3 + number), seed=number, max_tokens=5, stop_ids=(7,), session=f"rollout {number}")
    for number in range(12)
]
STREAM, BATCH = "/inference/v1/generate", "/groupwise/v1/generate"
BOTH = pytest.mark.parametrize("takes_batches", [False, True], ids=["a request a call", "in batches"])


def answer(request: Request, seed: int = 0) -> tuple[int, ...]:
    """What weights of a seed say to a request."""
    model = ToyModel(make_weights(seed))
    return tuple(model.sample(request.prompt_ids, request.seed, request.max_tokens, 1.0, request.stop_ids)[0])


@BOTH
def test_requests_are_answered_in_their_order(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool
) -> None:
    engine = open_engine(start_server(takes_batches=takes_batches))
    generations = engine.generate(REQUESTS)
    assert [generation.response_ids for generation in generations] == [answer(request) for request in REQUESTS]
    assert all(sum(span.tokens for span in g.versions) == len(g.response_ids) for g in generations)
    assert isinstance(engine, SubmittingEngine) is not takes_batches
    assert isinstance(engine, ClosingEngine)
    assert isinstance(engine, ReplicatedEngine)
    assert isinstance(engine, MeasuredEngine)
    assert (engine.context, engine.version) == (96, 0)


def test_a_list_of_requests_is_one_batch(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server(takes_batches=True)
    open_engine(server).generate(REQUESTS)
    assert server.calls[BATCH] == 1
    [question] = [question for path, question in server.questions if path == BATCH]
    assert [row["seed"] for row in question["requests"]] == list(range(12))
    assert open_engine(server).generate([]) == []


@BOTH
def test_weights_are_handed_over_step_by_step(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool, tmp_path: Path
) -> None:
    server = start_server(takes_batches=takes_batches)
    engine = open_engine(server)
    start = len(server.questions)
    engine.load_file(write_weights(tmp_path, 1), version=4)
    engine.load_file(write_weights(tmp_path, 2), version=5)
    steps = [path for path, _ in server.questions[start:]]
    update = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache", "/resume"]
    assert steps == [
        *("/pause", "/init_weight_transfer_engine", *update, "/weight_info"),
        *("/pause", *update, "/weight_info"),
    ]
    assert engine.version == 5
    [generation] = engine.generate(REQUESTS[:1])
    assert generation.response_ids == answer(REQUESTS[0], seed=2)
    assert generation.versions == (VersionSpan(5, len(generation.response_ids)),)
    assert [replica.version for replica in engine.replicas] == [5]


@BOTH
def test_scores_are_those_of_the_weights_at_any_temperature(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool
) -> None:
    engine, model = open_engine(start_server(takes_batches=takes_batches)), ToyModel(make_weights(0))
    full = tuple(range(20)) * 4
    pairs = [((1, 2, 3), (4, 5)), ((9,), (1, 2, 3)), ((5, 5), ()), (full, full[:16])]
    for temperature in (1.0, 0.7):
        expected = [pytest.approx(model.score(*pair, temperature)) for pair in pairs]
        assert engine.score(pairs, temperature=temperature) == expected
        [replica] = engine.replicas
        assert replica.score(pairs, temperature=temperature) == expected


@BOTH
def test_an_adapter_is_handed_over_beside_the_model(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool, tmp_path: Path
) -> None:
    server = start_server(takes_batches=takes_batches)
    engine = open_engine(server)
    for version, seed in enumerate((5, 6, 7)):
        folder = tmp_path / str(version)
        folder.mkdir()
        write_weights(folder, seed)
        engine.load_adapter(folder, version=version)
        [replica] = engine.replicas
        assert (engine.version, replica.version) == (version, version)
        [generation] = engine.generate(REQUESTS[:1])
        assert generation.response_ids == answer(REQUESTS[0], seed)
        assert generation.versions == (VersionSpan(version, len(generation.response_ids)),)
        assert engine.score([((1, 2), (3, 4))]) == [pytest.approx(ToyModel(make_weights(seed)).score((1, 2), (3, 4)))]
    if not takes_batches:  # the last two: a request under way goes on with the one that it began with
        assert [name.rpartition("-")[2][-1] for name in server.adapters] == ["1", "2"]
        # Log-probs of prompts beside requests that decode kill a server with adapters.
        assert not any("prompt_logprobs" in (q or {}).get("sampling_params", ()) for _, q in server.questions)


def test_weights_below_an_adapter_that_are_not_ours_are_found(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    engine = open_engine(server)
    (tmp_path / "adapter").mkdir()
    write_weights(tmp_path / "adapter", 5)
    engine.load_adapter(tmp_path / "adapter", version=1)
    open_engine(server).load_file(write_weights(tmp_path, 1), version=1)
    with pytest.raises(EngineFault, match=r"does another run use this server\?$"):
        engine.generate(REQUESTS[:1])


GARBAGE: list[tuple[str, Trouble]] = [
    ("nothing", say(b"")),
    ("no JSON", say(b"<html>")),
    ("another JSON", say([1, 2])),
    ("status 500", say({"error": "boom"}, 500)),
    ("status 404", say({"error": "gone"}, 404)),
    ("half an answer", break_off),
    ("no answer", hang),
    ("death", die),
]
IN_CHOICES: list[tuple[str, Callable[[Any], None]]] = [
    ("too few log-probs", lambda a: a["choices"][0]["logprobs"]["content"].pop()),
    ("NaN", lambda a: a["choices"][0]["logprobs"]["content"][0].update(logprob=float("nan"))),
    ("ids that are none", lambda a: a["choices"][0].update(token_ids=["4", "5"])),
    ("another's weights", lambda a: a["choices"][0]["weight_versions"][0].update(version="3")),
]
IN_ROWS: list[tuple[str, Callable[[Any], None]]] = [
    ("too few log-probs", lambda a: a["generations"][0]["logp"].pop()),
    ("NaN", lambda a: a["generations"][0].update(logp=[float("nan")])),
    ("too few answers", lambda a: a["generations"].pop()),
    ("another's weights", lambda a: a["generations"][0]["versions"][0].__setitem__(0, 3)),
]


def list_troubles() -> list[Any]:
    """Each trouble with the route that it is for."""
    both = [
        pytest.param(route, trouble, id=f"{name} {route}") for name, trouble in GARBAGE for route in (STREAM, BATCH)
    ]
    singles = [pytest.param(STREAM, change(edit), id=f"{name} {STREAM}") for name, edit in IN_CHOICES]
    return both + singles + [pytest.param(BATCH, change(edit), id=f"{name} {BATCH}") for name, edit in IN_ROWS]


@pytest.mark.few(8)
@pytest.mark.parametrize(("route", "trouble"), list_troubles())
def test_trouble_with_one_of_two_servers_changes_no_answer(
    start_server: StartServer, open_engine: OpenEngine, route: str, trouble: Trouble
) -> None:
    servers = [start_server(takes_batches=route == BATCH) for _ in range(2)]
    engine = open_engine(*servers, request_timeout=0.5 if trouble is hang else 10.0)
    servers[0].trouble(route, trouble)
    generations = engine.generate(REQUESTS)
    assert [generation.response_ids for generation in generations] == [answer(request) for request in REQUESTS]
    metrics = engine.take_metrics()
    assert (metrics["replicas/alive"], metrics["replicas/left"]) == (1.0, 1.0)
    assert metrics["replicas/sent_again"] > 0
    assert metrics["replicas/0/faults"] >= 1
    assert metrics["replicas/1/faults"] == 0


@pytest.mark.few(7)
@pytest.mark.parametrize(("route", "trouble"), list_troubles())
def test_trouble_with_the_only_server_is_one_sentence(
    start_server: StartServer, open_engine: OpenEngine, route: str, trouble: Trouble
) -> None:
    server = start_server(takes_batches=route == BATCH)
    engine = open_engine(server, request_timeout=0.5 if trouble is hang else 10.0)
    server.trouble(route, trouble)
    with pytest.raises(EngineFault) as caught:
        engine.generate(REQUESTS)
    assert str(caught.value).startswith(f"the engine's server is out; the last reason: the server {server.url} ")
    assert "\n" not in str(caught.value)


def test_a_request_that_a_server_refuses_puts_no_server_out(start_server: StartServer, open_engine: OpenEngine) -> None:
    servers = [start_server() for _ in range(2)]
    engine = open_engine(*servers)
    for server in servers:
        server.trouble(STREAM, say({"error": "too long"}, 400))
    with pytest.raises(EngineFault, match=r"refused to answer a request \(status 400: .*too long"):
        engine.generate(REQUESTS[:1])
    assert engine.take_metrics()["replicas/alive"] == 2


def test_a_server_without_versions_has_those_that_it_was_handed(
    start_server: StartServer, open_engine: OpenEngine, tmp_path: Path
) -> None:
    server = start_server()
    server.says_versions = False
    engine = open_engine(server)
    engine.load_file(write_weights(tmp_path, 1), version=9)
    [generation] = engine.generate(REQUESTS[:1])
    assert generation.versions == (VersionSpan(9, len(generation.response_ids)),)


@BOTH
def test_another_run_at_the_same_server_is_found(
    start_server: StartServer, open_engine: OpenEngine, takes_batches: bool, tmp_path: Path
) -> None:
    server = start_server(takes_batches=takes_batches)
    engine, other = open_engine(server), open_engine(server)
    engine.load_file(write_weights(tmp_path, 1), version=3)
    other.load_file(write_weights(tmp_path, 2), version=3)  # the same number, other weights
    with pytest.raises(EngineFault, match=r"were synced; does another run use this server\?$"):
        engine.generate(REQUESTS)


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        (
            {"vocabulary": 23},
            "does not have the 24 tokens of the run's model; start it with the run's model",
        ),
        (
            {"vocabulary": 25},
            "does not have the 24 tokens of the run's model; start it with the run's model",
        ),
        (
            {"vocabulary": 23, "takes_batches": True},
            "has a vocabulary of 23 tokens, but the run's model has 24; start it with",
        ),
        (
            {"dtype": "bfloat16"},
            "computes in bfloat16, but engine.precision is float32; start the server with that dtype",
        ),
        (
            {"dtype": "bfloat16", "takes_batches": True},
            "computes in bfloat16, but engine.precision is float32; start the",
        ),
        ({"max_model_len": 1}, "has a context of 1 tokens, too small for a prompt and a response"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(
    start_server: StartServer, open_engine: OpenEngine, info: dict[str, Any], complaint: str
) -> None:
    server = start_server(**info)
    with pytest.raises(ConfigError) as caught:
        open_engine(server)
    assert str(caught.value).startswith(f"engine.urls: the server {server.url} {complaint}")


def test_log_probs_of_another_kind_are_refused(start_server: StartServer, open_engine: OpenEngine) -> None:
    server = start_server()
    described = {"vllm_config": {"model_config": {"logprobs_mode": "raw_logprobs"}}}
    server.trouble("/server_info", say(described))
    with pytest.raises(
        ConfigError, match=r"reports raw_logprobs, .* start it with --logprobs-mode processed_logprobs$"
    ):
        open_engine(server)


@pytest.mark.parametrize(
    ("route", "trouble", "complaint"),
    [
        (
            "/v1/models",
            say({}),
            "did not say which model it serves (data: field required, found a dict of 0); is it a server",
        ),
        (
            "/v1/models",
            say(b"hello"),
            "did not say which model it serves (invalid JSON: expected value at line 1 column 1, found 'hello');",
        ),
        (
            "/weight_info",
            say({}, 404),
            "has no routes for weight syncs; start it with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out",
        ),
        (
            "/weight_info",
            say({"weight_version": 3}),
            "did not say which weights it holds (weight_version: input should be a valid string, found 3)",
        ),
        ("/v1/models", die, "did not say which model it serves (Remote end closed connection without response)"),
    ],
)
def test_a_server_that_is_none_is_refused(
    start_server: StartServer, open_engine: OpenEngine, route: str, trouble: Trouble, complaint: str
) -> None:
    server = start_server()
    server.trouble(route, trouble)
    with pytest.raises(ServerFault) as caught:
        open_engine(server)
    assert str(caught.value).startswith(f"the server {server.url} {complaint}")


def open_urls(urls: list[str], **more: Any) -> Any:
    settings = {"request_timeout": 1.0, "sync_timeout": 1.0, "max_in_flight": 1} | more
    return open_server_engine(urls, source=make_source(), precision="float32", **settings)


def test_servers_are_named_once_and_are_of_one_kind(start_server: StartServer, open_engine: OpenEngine) -> None:
    server, own = start_server(), start_server(takes_batches=True)
    with pytest.raises(ConfigError, match=r"occurs 2 times; name each server once$"):
        open_urls([server.url, f"{server.url}/"])
    with pytest.raises(ConfigError, match=r"^engine\.urls: no server is named; give at least one URL$"):
        open_urls([])
    with pytest.raises(ConfigError, match="groupwise and vLLM servers are mixed"):
        open_engine(server, own)


class Started:
    """A server that was started here, as the engine knows it; its process takes a moment to end."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server, self.url, self.is_stopped, self.starts = server, server.url, False, 0
        self._last_looks = 2
        self.is_back = threading.Event()

    def is_running(self) -> bool:
        self._last_looks -= not self._server.is_up
        return self._last_looks >= 0

    def start_again(self) -> None:
        self.starts += 1
        self._server.start()
        self.is_back.set()

    def stop(self) -> None:
        self.is_stopped = True


def test_servers_that_were_started_here_are_stopped(start_server: StartServer) -> None:
    processes = [Started(start_server()) for _ in range(2)]
    engine = open_urls([process.url for process in processes], processes=processes)
    assert not any(process.is_stopped for process in processes)
    engine.close()
    assert all(process.is_stopped for process in processes)
    other = Started(start_server(vocabulary=3))
    with pytest.raises(ConfigError):
        open_urls([other.url], processes=[other])
    assert other.is_stopped


def test_a_server_that_was_started_here_and_died_is_started_again_and_readmitted(
    start_server: StartServer, tmp_path: Path
) -> None:
    servers = [start_server() for _ in range(2)]
    processes = [Started(server) for server in servers]
    engine = open_urls([server.url for server in servers], processes=processes, request_timeout=10.0)
    servers[0].trouble(STREAM, die)
    engine.generate(REQUESTS)
    assert processes[0].is_back.wait(20)
    assert [process.starts for process in processes] == [1, 0]
    engine.load_file(write_weights(tmp_path, 1), version=1)
    assert [replica.state for replica in engine.replicas] == ["on trial", "in"]
    engine.close()
