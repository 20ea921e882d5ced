"""Observers: whoever follows a run, such as the terminal, a tracker or a test. They change nothing.

The loop tells them what happens; nothing that they return is read, and a run with observers makes the same updates as
one without. An observer that raises ends the run with its error, once the other observers have been told the same. By
then an update that is told as complete is in the journal and in its checkpoint, so nothing is lost: resumed, the run
goes on as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupwise.core.journal.journal import Update
from groupwise.evaluation.summary import Evaluation


class Observer:
    """Follows a run and does nothing; derive from it to hear some of what the loop tells."""

    def stage(self, name: str, number: int) -> None:
        """A stage of an update begins: warm start, evaluate, rollout, credit, learn, handover, write, checkpoint."""

    def warming(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over; mean loss of each so far, and how many there will be."""

    def warm_started(self, losses: Sequence[float]) -> None:
        """The supervised start is over; mean loss of each of its epochs."""

    def warn_of_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts: how many by cause, and how many attempts there were."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated, and the evaluation is written down."""

    def updated(self, update: Update) -> None:
        """An update is complete, and it is written down, with its checkpoint where one was due."""


class Observers(Observer):
    """Several observers, told one after the other."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def stage(self, name: str, number: int) -> None:
        """A stage begins."""
        self._tell(lambda observer: observer.stage(name, number))

    def warming(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over."""
        self._tell(lambda observer: observer.warming(losses, epochs))

    def warm_started(self, losses: Sequence[float]) -> None:
        """The supervised start is over."""
        self._tell(lambda observer: observer.warm_started(losses))

    def warn_of_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts."""
        self._tell(lambda observer: observer.warn_of_faults(causes, attempts))

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""
        self._tell(lambda observer: observer.evaluated(evaluation))

    def updated(self, update: Update) -> None:
        """An update is complete."""
        self._tell(lambda observer: observer.updated(update))

    def _tell(self, call: Callable[[Observer], None]) -> None:
        """Tell all of them, then raise what the first one raised; an interruption does not wait."""
        first: Exception | None = None
        for observer in self._observers:
            try:
                call(observer)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
