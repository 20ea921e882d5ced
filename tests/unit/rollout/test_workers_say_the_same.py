"""Environments in worker processes say, word for word, what they say in this one, also where workers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs import Gridworld, Household
from groupwise.rollout.environment_runner import Host, InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.worker_processes import kill

ENVS = (Household(), Gridworld(slip=0.2))


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Workers]]:
    made = [Workers(env, num=num, timeout=10.0) for env, num in zip(ENVS, (2, 1), strict=True)]
    yield made
    for host in made:
        host.shutdown()


def play(host: Host, env: Any, chosen: list[int], seed: int, *, kill_at: int | None = None) -> list[Any]:
    """Everything a host says when random actions, some of them nonsense, are played to the end."""
    draw = Random(seed)
    task_set = env.task_set("train")
    seen: dict[int, Any] = dict(host.open({number: task_set[index] for number, index in enumerate(chosen)}))
    said: list[Any] = [seen]
    while seen:
        if len(said) == kill_at and isinstance(host, Workers):
            kill(host.pids[0])
        actions = {n: draw.choice([*shown.admissible, "gibberish"]) for n, shown in seen.items()}
        outcomes: dict[int, Any] = dict(host.act(actions))
        said.append(outcomes)
        host.close([number for number, outcome in outcomes.items() if outcome.ended])
        seen = {number: outcome.observation for number, outcome in outcomes.items() if not outcome.ended}
    return said


@given(st.integers(0, 1), st.lists(st.integers(0, 999), min_size=1, max_size=6), st.integers(0, 2**32))
def test_workers_say_what_environments_in_this_process_say(
    hosts: list[Workers], which: int, chosen: list[int], seed: int
) -> None:
    env = ENVS[which]
    assert play(hosts[which], env, chosen, seed) == play(InProcess(env), env, chosen, seed)


@pytest.mark.more
@pytest.mark.parametrize(("which", "kill_at"), [(0, 4), (1, 1)])
def test_killing_workers_changes_nothing_that_is_said(hosts: list[Workers], which: int, kill_at: int) -> None:
    env, chosen = ENVS[which], list(range(8))
    expected = play(InProcess(env), env, chosen, 7)
    assert len(expected) > kill_at
    assert play(hosts[which], env, chosen, 7, kill_at=kill_at) == expected
