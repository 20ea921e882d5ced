"""How long the loop waits for environments."""

from __future__ import annotations

import time
from typing import Any

import pytest

from groupwise.rollout.environment_runner import EnvTiming


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("groupwise.rollout.environment_runner.perf_counter", lambda: now[0])
    return now


def test_seconds_and_steps_add_up(clock: list[float]) -> None:
    waiting = EnvTiming()
    with waiting.during():
        clock[0] += 0.5
    clock[0] += 60.0  # somebody else's
    for _ in range(2):
        with waiting.during(3):
            clock[0] += 0.25
    assert waiting == EnvTiming(steps=6, seconds=1.0)


def test_what_raises_counts_too(clock: list[float]) -> None:
    def fail() -> None:
        clock[0] += 0.5
        raise KeyError

    waiting = EnvTiming()
    with pytest.raises(KeyError), waiting.during(2):
        fail()
    assert waiting == EnvTiming(steps=2, seconds=0.5)


def test_the_episode_loop_counts_what_its_environments_took() -> None:
    pytest.importorskip("torch")
    from tests.unit.rollout.scripted_episodes import ENV, play

    class Slow:
        """Takes a while to open and to act."""

        def __init__(self, inner: Any) -> None:
            time.sleep(0.02)
            self._inner = inner

        def observe(self) -> Any:
            return self._inner.observe()

        def act(self, action: str) -> Any:
            time.sleep(0.03)
            return self._inner.act(action)

    class Slowly:
        def open(self, task: Any) -> Slow:
            return Slow(ENV.open(task))

    waiting = EnvTiming()
    begin = time.perf_counter()
    played = play(Slowly(), ENV.task_set("train")[:2], waiting=waiting)
    taken = time.perf_counter() - begin
    assert waiting.steps == sum(len(trajectory.steps) for trajectory in played) == 4
    assert 2 * 0.02 + 4 * 0.03 <= waiting.seconds <= taken
