"""Whoever watches a run: the terminal, a tracker, a test. The loop tells them what happens; they change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from groupwise.core.journal import Update
from groupwise.training.evaluation_summary import Evaluation


class Watching(Protocol):
    """What the loop tells."""

    def stage(self, name: str, number: int) -> None:
        """A stage of an update begins: warm start, evaluate, rollout, credit, learn, handover, write."""

    def warming(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over; mean loss of each so far, and how many there will be."""

    def warm_started(self, losses: Sequence[float]) -> None:
        """The supervised start is over; mean loss of each of its epochs."""

    def warn_of_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts: how many by cause, and how many attempts there were."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def updated(self, update: Update) -> None:
        """An update is complete and written down."""


class Watcher:
    """Watches and does nothing; derive from it to hear some of what is told."""

    def stage(self, name: str, number: int) -> None:
        """A stage begins."""

    def warming(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over."""

    def warm_started(self, losses: Sequence[float]) -> None:
        """The supervised start is over."""

    def warn_of_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def updated(self, update: Update) -> None:
        """An update is complete."""


class Watchers:
    """Several watchers, told one after the other."""

    def __init__(self, watchers: Sequence[Watching]) -> None:
        self._watchers = watchers

    def stage(self, name: str, number: int) -> None:
        """A stage begins."""
        for watcher in self._watchers:
            watcher.stage(name, number)

    def warming(self, losses: Sequence[float], epochs: int) -> None:
        """An epoch of the supervised start is over."""
        for watcher in self._watchers:
            watcher.warming(losses, epochs)

    def warm_started(self, losses: Sequence[float]) -> None:
        """The supervised start is over."""
        for watcher in self._watchers:
            watcher.warm_started(losses)

    def warn_of_faults(self, causes: Mapping[str, int], attempts: int) -> None:
        """Faults ended some of the expert's attempts."""
        for watcher in self._watchers:
            watcher.warn_of_faults(causes, attempts)

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""
        for watcher in self._watchers:
            watcher.evaluated(evaluation)

    def updated(self, update: Update) -> None:
        """An update is complete."""
        for watcher in self._watchers:
            watcher.updated(update)
