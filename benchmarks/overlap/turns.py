"""Runs that take turns, an update each, so that what else the machine does meanwhile falls on all of them alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from groupwise.training.observer import RunObserver

MAX_WAIT = 3600.0
"""Seconds that a run waits for its turn before it gives up."""


class Turns:
    """Whose turn it is, among runs that each have a thread of this process."""

    def __init__(self, names: list[str]) -> None:
        self._waiting, self._changed = names, threading.Condition()

    def take(self, name: str) -> None:
        """Wait until it is the turn of that run."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting[0] == name, MAX_WAIT):
                raise TimeoutError(f"{name} waited {MAX_WAIT:.0f} s for its turn, which {self._waiting[0]} has")

    def pass_on(self, name: str) -> None:
        """End a run's turn; it comes last in the row now."""
        with self._changed:
            self._waiting.remove(name)
            self._waiting.append(name)
            self._changed.notify_all()

    def leave(self, name: str) -> None:
        """Leave the row for good."""
        with self._changed:
            self._waiting.remove(name)
            self._changed.notify_all()


class TurnTaker(RunObserver):
    """Ends a run's turn before its next update begins; evaluations and checkpoints belong to the update before."""

    def __init__(self, turns: Turns, name: str) -> None:
        self._turns, self._name, self._number = turns, name, 0

    def on_stage(self, name: str, number: int) -> None:
        """Wait where a new update begins."""
        if number > self._number:
            self._number = number
            self._turns.pass_on(self._name)
            self._turns.take(self._name)


def run_in_turns(jobs: Mapping[str, Callable[[TurnTaker], Any]]) -> dict[str, Any]:
    """Run all jobs, an update at a time; what each returned. The first error is raised once all have ended."""
    turns = Turns(list(jobs))
    results: dict[str, Any] = {}
    errors: list[BaseException] = []

    def do_job(name: str) -> None:
        try:
            turns.take(name)
            results[name] = jobs[name](TurnTaker(turns, name))
        except BaseException as error:
            errors.append(error)
        finally:
            with suppress(ValueError):
                turns.leave(name)

    threads = [threading.Thread(target=do_job, args=(name,), name=name) for name in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return {name: results[name] for name in jobs}
