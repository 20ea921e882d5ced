"""How fast an update went: the seconds of its stages, and what was sampled, learnt and acted a second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from groupwise.data.records import Trajectory
from groupwise.data.samples import Totals
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.training.observer import RunObserver


class Stopwatch:
    """Seconds by stage of an update; the observer is told of a stage as it begins."""

    def __init__(self, observer: RunObserver, number: int) -> None:
        self.seconds: dict[str, float] = {}
        self._observer, self._number = observer, number
        self._current, self._since = "", 0.0

    def begin_stage(self, name: str) -> None:
        """End the stage before and begin one."""
        now = time.perf_counter()
        if self._current:
            self.seconds[f"seconds/{self._current}"] = now - self._since
        self._current, self._since = name, now
        self._observer.on_stage(name, self._number)


def compute_speed_metrics(
    played: Sequence[Trajectory],
    totals: Totals,
    seconds: Mapping[str, float],
    waiting: EnvTiming,
    played_in: float | None = None,
) -> dict[str, float]:
    """Tokens a second of sampling and of learning, from the seconds by stage; steps a second of environments.

    `played_in` are the seconds of sampling where it went on beside other stages.
    """
    sampled = sum(len(step.response_ids) for trajectory in played for step in trajectory.steps)
    counts = {
        "sampled_tokens": (sampled, seconds.get("seconds/rollout") if played_in is None else played_in),
        "trained_tokens": (totals.tokens, seconds.get("seconds/learn")),
        "env_steps": (waiting.steps, waiting.seconds),
    }
    speeds = {f"speed/{name}": number / taken for name, (number, taken) in counts.items() if number and taken}
    ahead = {} if played_in is None else {"speed/played_seconds": played_in}
    return speeds | ahead | {"speed/env_seconds": waiting.seconds}
