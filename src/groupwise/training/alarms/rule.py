"""What alarms have in common: what is done about one, and what it sees of a run.

A rule sees numbers that are in the journal and nothing else, so that a run that is killed and resumed raises the alarms
of the one that never was, each once and at the same update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.evaluation.verdict import PanelScore, RunVerdict

SUCCESS = "rollout/success"
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The mean of a metric over some updates in a row."""

    value: float
    """The mean over those that have the metric."""
    first: int
    """The first update."""
    last: int
    """The last update."""
    error: float
    """Standard error of the mean, from how much neighbouring updates differ: a steady way up is no chance."""

    @property
    def over(self) -> str:
        """Over which updates, in words."""
        return f"update {self.last}" if self.first == self.last else f"updates {self.first} to {self.last}"


class RunHistory:
    """What a run came to so far, as alarms see it."""

    def __init__(
        self, read_metrics: Callable[[int], Mapping[str, float]], window: int, verdict: RunVerdict | None = None
    ) -> None:
        """Begin with what reads the metrics of an update, how many updates are averaged, and the evaluations."""
        self._read, self.window = read_metrics, window
        self._metrics: dict[int, Mapping[str, float]] = {}
        self.scores: Sequence[PanelScore] = verdict.scores if verdict else ()
        """The evaluations of the run's panel, by update."""
        self.is_success_known = verdict is None or verdict.measure == "success"
        """Whether they are shares of tasks that were solved; else they are mean outcomes."""

    def find_recent(self, name: str, number: int, updates: int | None = None) -> Level | None:
        """A metric over the updates up to one, as many as are averaged; None where there are fewer, or it has none."""
        size = updates or self.window
        return self._find_level(name, number - size + 1, number) if number >= size else None

    def find_start(self, name: str, number: int) -> Level | None:
        """A metric over the run's first updates; None as long as they are among the recent ones of an update."""
        return self._find_level(name, 1, self.window) if number >= 2 * self.window else None

    def find_around(self, name: str, number: int) -> Level | None:
        """A metric over the updates up to one, or over the run's first ones where there are no more before it."""
        last = max(number, self.window)
        return self._find_level(name, last - self.window + 1, last)

    def is_solved(self, number: int, share: float, updates: int | None = None) -> bool:
        """Whether so many of the recent attempts succeeded; never where the environment does not say."""
        success = self.find_recent(SUCCESS, number, updates)
        return success is not None and success.value >= share

    def has_gained(self, number: int, gain: float) -> bool:
        """Whether success is that much above what it was at the start; never where the environment does not say."""
        recent, start = self.find_recent(SUCCESS, number), self.find_start(SUCCESS, number)
        return recent is not None and start is not None and recent.value >= start.value + gain

    def _find_level(self, name: str, first: int, last: int) -> Level | None:
        metrics = [self._read_metrics(number) for number in range(first, last + 1)]
        values = [of_update[name] for of_update in metrics if name in of_update]
        if not values:
            return None
        jumps = [after - before for before, after in pairwise(values)]
        variance = sum(jump**2 for jump in jumps) / (2 * len(jumps)) if jumps else 0.0
        error = math.sqrt(variance / len(values))
        return Level(value=sum(values) / len(values), first=first, last=last, error=error)

    def _read_metrics(self, number: int) -> Mapping[str, float]:
        if number not in self._metrics:
            self._metrics[number] = self._read(number)
        return self._metrics[number]


class AlarmRule(Part):
    """Something to watch a run for."""

    action: Literal["off", "warn", "stop"] = "warn"
    """off = nothing is looked at; warn = a sentence; stop = a sentence, and the run ends with a checkpoint."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an update, in a sentence; None where nothing is."""
        raise NotImplementedError

    def list_looks(self, history: RunHistory, number: int) -> Sequence[int]:
        """The updates before one after which it was looked, the last as many as are averaged.

        An alarm is raised where it was silent after all of them: what hovers at a limit is told once.
        """
        return range(max(number - history.window, 0), number)


def format_share(value: float) -> str:
    """A share in per cent.

    >>> format_share(0.375)
    '37.5 %'
    """
    return f"{100 * value:.3g} %"
