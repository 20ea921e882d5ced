"""Observers: whoever follows a run, such as the terminal, a tracker or a test. They change nothing.

The loop tells them what happens; nothing that they return is read, and a run with observers makes the same updates as
one without. An observer that raises ends the run with its error, once the other observers have been told the same. By
then an update that is told as complete is in the journal and in its checkpoint, so nothing is lost: resumed, the run
goes on as if it had never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from groupwise.store.journal import Alarm, Update
from groupwise.system.errors import ConfigError
from groupwise.system.text import describe_value
from groupwise.training.evaluation.summary import Evaluation


class RunObserver:
    """Follows a run and does nothing: the loop calls its methods; derive from it and override what you want to know."""

    def on_stage(self, name: str, number: int) -> None:
        """A stage of an update begins: warm start, evaluate, rollout, credit, learn, handover, write, checkpoint.

        At a lag above 0 also wait and prepare, for attempts that are played ahead.
        """

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over; mean loss of each so far, and how many there will be."""

    def on_warm_start(self, losses: Sequence[float]) -> None:
        """The supervised start is over; mean loss of each of its epochs."""

    def on_expert_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts: how many by cause, and how many attempts there were."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """The policy was evaluated, and the evaluation is written down."""

    def on_update(self, update: Update) -> None:
        """An update is complete, and it is written down, with its checkpoint where one was due."""

    def on_alarm(self, alarm: Alarm) -> None:
        """An alarm was raised after an update and its evaluation, and it is written down; the run may end with it."""


def check_observers(observers: Sequence[RunObserver]) -> None:
    """Refuse what cannot be told anything, before a run begins."""
    advice = "derive a class from groupwise.RunObserver, and give [YourClass()]"
    if not isinstance(observers, Sequence):
        raise ConfigError(f"observers is {describe_value(observers)}, and no list of observers; {advice}")
    events = [name for name in vars(RunObserver) if name.startswith("on_")]
    for observer in observers:
        missing = [name for name in events if not callable(getattr(observer, name, None))]
        if missing or isinstance(observer, type):
            name = getattr(observer, "__name__", type(observer).__name__)
            fault = "it is a class, and no object of it" if isinstance(observer, type) else f"it has no {missing[0]}"
            raise ConfigError(f"observers has {name}, which cannot be told anything ({fault}); {advice}")


class ObserverList(RunObserver):
    """Several observers, told one after the other."""

    def __init__(self, observers: Sequence[RunObserver]) -> None:
        self.observers = observers

    def on_stage(self, name: str, number: int) -> None:
        self._tell(lambda observer: observer.on_stage(name, number))

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        self._tell(lambda observer: observer.on_warm_start_epoch(losses, epochs))

    def on_warm_start(self, losses: Sequence[float]) -> None:
        self._tell(lambda observer: observer.on_warm_start(losses))

    def on_expert_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        self._tell(lambda observer: observer.on_expert_faults(causes, attempts))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._tell(lambda observer: observer.on_evaluation(evaluation))

    def on_update(self, update: Update) -> None:
        self._tell(lambda observer: observer.on_update(update))

    def on_alarm(self, alarm: Alarm) -> None:
        self._tell(lambda observer: observer.on_alarm(alarm))

    def hears(self, event: str) -> bool:
        """Whether any of them does something about an event, such as `on_alarm`."""
        handlers = [getattr(observer, event) for observer in self.observers]
        ours = getattr(RunObserver, event)
        return any(getattr(handler, "__func__", handler) is not ours for handler in handlers)

    def _tell(self, call: Callable[[RunObserver], None]) -> None:
        """Tell all of them, then raise what the first one raised; an interruption does not wait."""
        first: Exception | None = None
        for observer in self.observers:
            try:
                call(observer)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


class Stopwatch:
    """Seconds by stage of an update; the observer is told of a stage as it begins."""

    def __init__(self, observer: RunObserver, number: int) -> None:
        self.seconds: dict[str, float] = {}
        self._observer, self._number = observer, number
        self._current, self._since = "", 0.0

    def begin_stage(self, name: str) -> None:
        now = time.perf_counter()
        if self._current:
            self.seconds[f"seconds/{self._current}"] = now - self._since
        self._current, self._since = name, now
        self._observer.on_stage(name, self._number)
