"""Laws of several servers as one: whoever dies when, the tokens are the same, and few sessions move."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.engines.client import choose_replica, open_server_engine
from groupwise.engines.engine import Request
from tests.effort import THOROUGH
from tests.unit.engines.scripted_server import ScriptedServer, Trouble, break_off, die, say
from tests.unit.engines.toy_model import ToyModel, make_source, make_weights

NUM_SERVERS = 3
TURNS = 2
TROUBLES: tuple[Trouble | None, ...] = (None, die, break_off, say({}), say(b"", 500))
REQUESTS = [
    [
        Request(prompt_ids=(1, number), seed=100 * turn + number, max_tokens=3, stop_ids=(5,), session=f"{number}")
        for number in range(6)
    ]
    for turn in range(TURNS)
]
MODEL = ToyModel(make_weights(0))
ANSWERS = [
    [tuple(MODEL.sample(asked.prompt_ids, asked.seed, 3, 1.0, asked.stop_ids)[0]) for asked in requests]
    for requests in REQUESTS
]
turns_of_servers = st.lists(
    st.lists(st.sampled_from(TROUBLES), max_size=6), min_size=NUM_SERVERS - 1, max_size=NUM_SERVERS - 1
)


@settings(max_examples=25 if THOROUGH else 4)  # each example starts servers
@given(turns=turns_of_servers, survivor=st.integers(0, NUM_SERVERS - 1), takes_batches=st.booleans())
def test_the_tokens_are_the_same_whichever_servers_fail_when(
    turns: Sequence[Sequence[Trouble | None]], survivor: int, takes_batches: bool
) -> None:
    servers = [ScriptedServer(takes_batches=takes_batches) for _ in range(NUM_SERVERS)]
    engine = open_server_engine(
        [server.url for server in servers],
        source=make_source(),
        precision="float32",
        request_timeout=20.0,
        sync_timeout=20.0,
        max_in_flight=2,
    )
    try:
        mortal = [server for number, server in enumerate(servers) if number != survivor]
        for server, troubles in zip(mortal, turns, strict=True):
            server.trouble("/groupwise/v1/generate" if takes_batches else "/inference/v1/generate", *troubles)
        answers = [[answer.response_ids for answer in engine.generate(requests)] for requests in REQUESTS]
        assert answers == ANSWERS
        assert engine.take_metrics()["replicas/alive"] >= 1
    finally:
        engine.close()
        for server in servers:
            server.kill()


sessions = st.lists(st.text(max_size=8), max_size=20)
numbers = st.sets(st.integers(0, 40), min_size=1, max_size=12)


@given(sessions=sessions, numbers=numbers)
def test_a_session_has_one_server_in_whatever_order_they_are_listed(sessions: list[str], numbers: set[int]) -> None:
    for session in sessions:
        chosen = choose_replica(session, sorted(numbers))
        assert chosen in numbers
        assert choose_replica(session, sorted(numbers, reverse=True)) == chosen


@given(sessions=sessions, numbers=numbers, data=st.data())
def test_when_a_server_leaves_only_its_sessions_move(
    sessions: list[str], numbers: set[int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(numbers)))
    left = sorted(numbers - {gone})
    if not left:
        return
    for session in sessions:
        before = choose_replica(session, sorted(numbers))
        after = choose_replica(session, left)
        assert after == before or before == gone
        assert choose_replica(session, [*left, gone]) == before  # and come back with it


def test_sessions_are_spread_over_the_servers() -> None:
    counts = [0] * 4
    for number in range(4000):
        counts[choose_replica(f"session rollout {number}", range(4))] += 1
    assert max(abs(count - 1000) for count in counts) < 5 * (4000 * 0.25 * 0.75) ** 0.5
