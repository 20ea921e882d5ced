"""Observers follow a run: the terminal, a tracker, a test. They change nothing, and what they return is not read.

If an observer raises, the other observers are still notified; then the run ends with its error. An update that was
reported is already in the journal and in its checkpoint. A resumed run therefore loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.store.journal import Alarm, Update
from groupwise.system.errors import ConfigError
from groupwise.system.text import describe_value
from groupwise.training.evaluation.summary import Evaluation


class RunObserver:
    """Does nothing at each event of a run. Derive a class from it and override the events that you want."""

    def on_stage(self, name: str, number: int) -> None:
        """A stage of an update begins: warm start, evaluate, rollout, credit, learn, sync, write, checkpoint.

        At a lag above 0 also wait and prepare, for rollouts that are sampled ahead.
        """

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the warm start is over; mean loss of each epoch so far, and the number of epochs."""

    def on_warm_start(self, losses: Sequence[float]) -> None:
        """The warm start is over; mean loss of each epoch."""

    def on_expert_faults(self, causes: Mapping[str, int], rollouts: int) -> None:
        """Errors ended some of the expert's rollouts: their number by cause, and the number of all rollouts."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """The policy was evaluated; the evaluation is in the journal."""

    def on_update(self, update: Update) -> None:
        """An update is complete; it is in the journal, and its checkpoint is saved if one was due."""

    def on_alarm(self, alarm: Alarm) -> None:
        """An alarm was raised after an update and its evaluation; it is in the journal. The run may end with it."""


EVENTS = [name for name in vars(RunObserver) if name.startswith("on_")]


def check_observers(observers: Sequence[RunObserver]) -> None:
    """Check that observers have all methods, before a run begins."""
    advice = "derive a class from groupwise.RunObserver, and give [YourClass()]"
    if not isinstance(observers, Sequence):
        raise ConfigError(f"observers is {describe_value(observers)}, and no list of observers; {advice}")
    for observer in observers:
        missing = [name for name in EVENTS if not callable(getattr(observer, name, None))]
        if missing or isinstance(observer, type):
            name = getattr(observer, "__name__", type(observer).__name__)
            fault = "it is a class, and no object of it" if isinstance(observer, type) else f"it has no {missing[0]}"
            raise ConfigError(f"observers has {name}, which cannot be told anything ({fault}); {advice}")


def _notify_all(event: str) -> Any:
    """A method that notifies all observers of an event, then raises the first error. An interruption does not wait."""

    def notify(self: ObserverList, *args: Any, **named: Any) -> None:
        first: Exception | None = None
        for observer in self.observers:
            try:
                getattr(observer, event)(*args, **named)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first

    return notify


class ObserverList(RunObserver):
    """Several observers, notified in order."""

    def __init__(self, observers: Sequence[RunObserver]) -> None:
        self.observers = observers

    def hears(self, event: str) -> bool:
        """Whether any of them overrides an event, such as `on_alarm`."""
        handlers = [getattr(observer, event) for observer in self.observers]
        ours = getattr(RunObserver, event)
        return any(getattr(handler, "__func__", handler) is not ours for handler in handlers)


for _event in EVENTS:
    setattr(ObserverList, _event, _notify_all(_event))


@dataclass
class Stopwatch:
    """Measures the seconds of each stage of an update, and notifies the observer when a stage begins."""

    _observer: RunObserver
    _number: int
    seconds: dict[str, float] = field(default_factory=dict)
    _current: str = ""
    _since: float = 0.0

    def begin_stage(self, name: str) -> None:
        now = time.perf_counter()
        if self._current:
            self.seconds[f"seconds/{self._current}"] = now - self._since
        self._current, self._since = name, now
        self._observer.on_stage(name, self._number)
