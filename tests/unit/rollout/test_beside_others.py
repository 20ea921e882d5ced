"""What an environment does follows from its task and its actions, whatever else runs beside it in its process."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.envs import Gridworld, Household
from groupwise.rollout.environment_runner import Host, InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.gamblers import Gambler

ENVS: dict[str, Any] = {
    "household": Household(max_steps=8),
    "gridworld": Gridworld(slip=0.2, max_steps=8),
    "gambler": Gambler(),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, Workers]]:
    hosts = {name: Workers(env, num=1, timeout=10.0) for name, env in ENVS.items()}
    yield hosts
    for host in hosts.values():
        host.shutdown()


def play(host: Host, env: Any, chosen: dict[int, int], seed: int) -> dict[int, list[Any]]:
    """What each environment says, by number; in each round chance decides which of them act, and each has draws of
    its own for its actions.
    """
    task_set, turns = env.task_set("train"), Random(f"{seed}, turns")
    draws = {number: Random(f"{seed}, actions of {number}") for number in chosen}
    seen: dict[int, Any] = dict(host.open({number: task_set[index] for number, index in chosen.items()}))
    said: dict[int, list[Any]] = {number: [shown] for number, shown in seen.items()}
    while seen:
        acting = [number for number in seen if turns.random() < 0.5] or list(seen)
        outcomes: dict[int, Any] = dict(
            host.act({n: draws[n].choice([*seen[n].admissible, "gibberish"]) for n in acting})
        )
        for number, outcome in outcomes.items():
            said[number].append(outcome)
            seen[number] = outcome.observation
            if outcome.ended:
                host.close([number])
                del seen[number]
    return said


def alone(host: Host, env: Any, chosen: dict[int, int], seed: int) -> dict[int, list[Any]]:
    """What each says when it is the only one."""
    return {number: play(host, env, {number: index}, seed)[number] for number, index in chosen.items()}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ENVS)
@given(st.dictionaries(st.integers(0, 5), st.integers(0, 999), min_size=2, max_size=4), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_a_seed_gives_its_transcript_whatever_else_the_worker_plays(
    workers: dict[str, Workers], name: str, chosen: dict[int, int], seed: int
) -> None:
    assert play(workers[name], ENVS[name], chosen, seed) == alone(workers[name], ENVS[name], chosen, seed)


def test_one_that_draws_from_the_process_is_found_out() -> None:
    careless = Gambler(private=False)
    chosen = {0: 3, 1: 4}
    assert play(InProcess(careless), careless, chosen, 0) != alone(InProcess(careless), careless, chosen, 0)
    assert play(InProcess(Gambler()), Gambler(), chosen, 0) == alone(InProcess(Gambler()), Gambler(), chosen, 0)
