"""Worlds behind an OpenEnv server: a real one, and one that says what a test wants it to."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from groupwise import ConfigError, RecordError, StopReason
from groupwise.envs import Household, Openenv, check_environment
from groupwise.envs.openenv import socket_url
from groupwise.rollout.environment_runner import Fault, InProcess
from groupwise.rollout.worker_pool import Workers
from groupwise.system.errors import EnvironmentFault
from tests.unit.envs.openenv_servers import FIELDS, Server, server

NOWHERE = Openenv(url="http://127.0.0.1:9", **FIELDS)


def test_task_sets_are_seeds_and_do_not_depend_on_the_address() -> None:
    elsewhere = Openenv(url="https://worlds.example", **FIELDS)
    for split, first in (("train", 0), ("validation", 1_000_000), ("test", 2_000_000)):
        tasks = NOWHERE.task_set(split)
        assert [task.seed for task in tasks[:3]] == [first, first + 1, first + 2]
        assert tasks == elsewhere.task_set(split)
    assert tasks != Openenv(url="x", **FIELDS | {"world": "cellar"}).task_set("test")
    with pytest.raises(ConfigError, match="there is no split 'tset'; did you mean 'test'"):
        NOWHERE.task_set("tset")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", "ws://127.0.0.1:8000/ws"),
        ("https://worlds.example/corridor/", "wss://worlds.example/corridor/ws"),
        ("ws://worlds.example:80", "ws://worlds.example:80/ws"),
    ],
)
def test_sessions_are_opened_beside_the_other_routes(url: str, expected: str) -> None:
    assert socket_url(url) == expected


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://worlds.example", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    part = Openenv(url=url, **FIELDS)
    with pytest.raises(ConfigError) as raised:
        part.open(part.task_set("train")[0])
    assert str(raised.value) == (
        f"openenv: {url!r} is not the address of a server; use one such as 'http://127.0.0.1:8000'"
    )


def test_its_absence_gives_one_sentence_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.sync.client", None)
    with pytest.raises(ConfigError) as raised:
        NOWHERE.open(NOWHERE.task_set("train")[0])
    assert str(raised.value) == (
        "the environment 'openenv' needs a package that is not installed; pip install 'groupwise[openenv]'"
    )


def test_a_task_of_another_environment_is_refused() -> None:
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        NOWHERE.open(Household().task_set("test")[0])


Answer = Callable[[dict[str, Any]], str | None]


@contextmanager
def serve_answers(answer: Answer) -> Iterator[Openenv]:
    """A part whose server answers as it is told; None = it hangs up."""
    serving = pytest.importorskip("websockets.sync.server", reason="pip install 'groupwise[openenv]'")

    def handle(socket: Any) -> None:
        for said in socket:
            message = json.loads(said)
            reply = None if message["type"] == "close" else answer(message)
            if reply is None:
                return
            socket.send(reply)

    with serving.serve(handle, "127.0.0.1", 0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        port = running.socket.getsockname()[1]
        yield Openenv(url=f"http://127.0.0.1:{port}", world="told", max_steps=5, timeout=2.0)
        running.shutdown()


def observation_message(observation: Any, **rest: Any) -> str:
    return json.dumps({"type": "observation", "data": {"observation": observation, **rest}})


def error(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"code": code, "message": message}})


def open_first(part: Openenv) -> Any:
    return part.open(part.task_set("train")[0])


class TestWhatIsSaid:
    def test_the_messages_are_the_protocols(self) -> None:
        heard: list[Any] = []

        def answer(message: dict[str, Any]) -> str:
            heard.append(message)
            return observation_message({"a": 1}, reward=None, done=False)

        with serve_answers(answer) as part:
            part = Openenv(
                **part.model_dump() | {"action_field": "move", "action_rest": {"n": 2}, "reset_rest": {"x": 1}}
            )
            open_first(part).act("up")
        assert heard[:2] == [
            {"type": "reset", "data": {"seed": 0, "x": 1}},
            {"type": "step", "data": {"n": 2, "move": "up"}},
        ]

    def test_without_fields_all_of_it_is_shown_as_json(self) -> None:
        with serve_answers(lambda _: observation_message({"b": [1], "a": "x"}, reward=None, done=False)) as part:
            seen = open_first(part).observe()
        assert seen.text == seen.state_key == '{"a": "x", "b": [1]}'
        assert (seen.admissible, seen.goal) == (None, "")

    def test_success_is_by_the_last_reward_or_by_the_total(self) -> None:
        rewards = iter([None, 2.0, 0.0, None, 2.0, 0.0])

        def answer(message: dict[str, Any]) -> str:
            reward = next(rewards)
            return observation_message("on", reward=reward, done=reward == 0.0)

        with serve_answers(answer) as part:
            for more, success in (({}, False), ({"success_return": 2.0}, True)):
                environment = open_first(Openenv(**part.model_dump() | more))
                assert (environment.act("up").reward, environment.act("up").success) == (2.0, success)

    def test_fields_are_found_in_the_metadata_too(self) -> None:
        with serve_answers(
            lambda _: observation_message("on", done=True, metadata={"won": 1, "where": ["a", 2]})
        ) as part:
            part = Openenv(**part.model_dump() | {"success_field": "won", "key_field": "where"})
            outcome = open_first(part).act("up")
        assert (outcome.success, outcome.observation.state_key) == (True, '["a", 2]')

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (lambda _: "hello", "the answer to 'reset' was 'hello', which is not OpenEnv's protocol"),
            (lambda _: "[1]", "the answer to 'reset' was '[1]', which is not OpenEnv's protocol"),
            (lambda _: None, "the server closed the connection at 'reset' ("),
            (lambda _: error("FACTORY_ERROR", "no\nworld"), "the answer to 'reset' was FACTORY_ERROR: no world"),
            (
                lambda _: error("CAPACITY_REACHED", "full"),
                "the answer to 'reset' was CAPACITY_REACHED: full; start it with a larger max_concurrent_envs, or run "
                "fewer rollouts at once",
            ),
            (lambda _: observation_message({"b": 1}), "the observation has no field 'text'; its fields: b"),
        ],
    )
    def test_a_server_that_makes_no_sense_is_a_fault(self, answer: Answer, message: str) -> None:
        with serve_answers(answer) as part, pytest.raises(EnvironmentFault) as raised:
            open_first(Openenv(**part.model_dump() | {"text_field": "text"}))
        assert str(raised.value).startswith(f"openenv {part.url}: {message}")

    def test_silence_is_a_time_out_and_ends_the_session(self) -> None:
        silence = threading.Event()

        def answer(message: dict[str, Any]) -> str:
            if message["type"] == "step":
                silence.wait(5)
            return observation_message("on")

        with serve_answers(answer) as part:
            part = Openenv(**part.model_dump() | {"timeout": 0.2})
            host = InProcess(part)
            host.open({0: part.task_set("train")[0]})
            fault = host.act({0: "up"})[0]
            silence.set()
        assert fault == Fault(
            reason=StopReason.TIMEOUT,
            message=f"TimeoutError: openenv {part.url}: no answer to 'step' within 0.2 seconds; if the server "
            "is only slow, increase env.timeout",
        )

    def test_a_world_that_does_not_follow_from_its_seed_cannot_be_forked(self) -> None:
        count = iter(range(100))
        with serve_answers(lambda _: observation_message(str(next(count)))) as part:
            environment = open_first(part)
            environment.act("up")
            with pytest.raises(EnvironmentFault, match="1 repeated actions led to another state"):
                environment.fork()

    def test_nobody_listening_is_one_sentence(self) -> None:
        pytest.importorskip("websockets", reason="pip install 'groupwise[openenv]'")
        with serve_answers(lambda _: None) as part:
            pass
        with pytest.raises(EnvironmentFault) as raised:
            open_first(part)
        assert str(raised.value).startswith(f"openenv {part.url}: cannot open a session (")
        assert str(raised.value).endswith("; start the server")


@pytest.fixture(scope="module")
def corridor() -> Iterator[Server]:
    pytest.importorskip("websockets", reason="pip install 'groupwise[openenv]'")
    pytest.importorskip("openenv.core", reason="pip install openenv-core, to start a server")
    with server() as running:
        yield running


def walk(part: Openenv, seed: int, actions: list[str]) -> list[Any]:
    environment = part.open(part.task_set("train")[seed])
    return [environment.observe(), *(environment.act(action) for action in actions)]


pytest.mark.filterwarnings("ignore")


class TestARealServer:
    def test_an_rollout_reaches_the_door(self, corridor: Server) -> None:
        # Provenance: random.Random(1).sample(range(7), 2) is [1, 4] under CPython 3.11: at window 1, the door at 4.
        first, *outcomes = walk(corridor.part(), 1, ["east", "up", "east", "east"])
        assert (first.text, first.goal) == ("You stand at window 1. A bell is far.", "find the door.")
        assert first.admissible == ("west", "east")
        assert [(each.observation.text, each.reward, each.accepted, each.success) for each in outcomes] == [
            ("You stand at window 2. A bell is far.", 0.0, True, None),
            ("Nothing happens. You stand at window 2. A bell is far.", 0.0, False, None),
            ("You stand at window 3. A bell is near.", 0.0, True, None),
            ("You stand at window 4. The door opens.", 1.0, True, True),
        ]

    def test_it_keeps_every_rule(self, corridor: Server) -> None:
        results = check_environment(corridor.part(), tasks=2)
        assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
        assert [result.rule for result in results if result.status == "not tested"] == ["expert_succeeds"]

    def test_an_action_that_the_server_refuses_changes_nothing(self, corridor: Server) -> None:
        part = corridor.part(action_field="times", action_rest={"message": "east"}, admissible_field="")
        environment = part.open(part.task_set("train")[1])
        refused = environment.act("twice")
        assert (refused.accepted, refused.observation.text) == (
            False,
            "Nothing happens. You stand at window 1. A bell is far.",
        )
        assert environment.act("2").observation.text == "You stand at window 3. A bell is near."

    def test_what_the_world_says_of_an_action_counts(self, corridor: Server) -> None:
        part = corridor.part(admissible_field="")
        assert [outcome.accepted for outcome in walk(part, 1, ["up", "east"])[1:]] == [False, True]

    def test_a_world_that_raises_or_is_slow_is_a_fault_of_its_rollout_alone(self, corridor: Server) -> None:
        part = corridor.part(admissible_field="", timeout=1.0)
        host = InProcess(part)
        host.open({number: part.task_set("train")[1] for number in range(3)})
        outcomes = host.act({0: "raise", 1: "sleep", 2: "east"})
        assert outcomes[0] == Fault(
            reason=StopReason.ERROR,
            message=f"EnvironmentFault: openenv {part.url}: to 'step' it said EXECUTION_ERROR: the roof fell in",
        )
        assert outcomes[1].reason is StopReason.TIMEOUT  # type: ignore[union-attr]
        assert outcomes[2].observation.text == "You stand at window 2. A bell is far."  # type: ignore[union-attr]

    def test_ended_and_dropped_rollouts_give_their_place_back(self, corridor: Server) -> None:
        part = corridor.part()
        kept = []
        for number in range(40):  # more than twice the sessions that the server has room for
            environment = part.open(part.task_set("train")[1])
            if number % 2:
                for _ in range(3):
                    ended = environment.act("east").ended
                assert ended
                kept.append(environment)
        assert len(kept) == 20

    def test_more_sessions_than_it_has_room_for_are_refused(self, corridor: Server) -> None:
        part = corridor.part()
        held = [part.open(part.task_set("train")[1]) for _ in range(16)]
        with pytest.raises(EnvironmentFault, match=r"CAPACITY_REACHED: .*; start it with a larger max_concurrent_envs"):
            part.open(part.task_set("train")[1])
        del held
        gc.collect()

    def test_workers_and_neighbours_change_nothing(self, corridor: Server) -> None:
        part, actions = corridor.part(), ["west", "east", "up", "east"]
        alone = {seed: walk(part, seed, actions) for seed in (0, 1, 2)}
        with Workers(part, num=2, timeout=30.0) as host:
            said: dict[int, list[Any]] = {
                n: [shown] for n, shown in host.open({n: part.task_set("train")[n] for n in alone}).items()
            }
            for action in actions:
                for number, outcome in host.act(dict.fromkeys(alone, action)).items():
                    said[number].append(outcome)
        assert said == alone


pytest.mark.filterwarnings("ignore")


def test_a_server_that_dies_is_a_fault_of_all_its_rollouts() -> None:
    pytest.importorskip("websockets", reason="pip install 'groupwise[openenv]'")
    pytest.importorskip("openenv.core", reason="pip install openenv-core, to start a server")
    with server() as running:
        part = running.part(admissible_field="")
        host = InProcess(part)
        host.open({number: part.task_set("train")[1] for number in range(3)})
        outcomes = host.act({0: "east", 1: "die", 2: "east"})
        assert outcomes[0].accepted  # type: ignore[union-attr]
        for number in (1, 2):
            fault = outcomes[number]
            assert isinstance(fault, Fault)
            assert fault.reason is StopReason.ERROR
            assert f"openenv {part.url}: the server closed the connection at 'step'" in fault.message
        assert running.process.wait(10) == 3
        gone = host.open({0: part.task_set("train")[1]})[0]
        assert isinstance(gone, Fault)
        assert "cannot open a session" in gone.message
