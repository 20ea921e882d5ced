"""Where environments run: in this process, each call guarded, so that a fault is a value and not an exception."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from groupwise.core.records import StopReason, Task
from groupwise.envs.environment import Environment, EnvironmentPart, Observation, Outcome

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An environment raised, hung or died."""

    reason: StopReason
    """Error or timeout."""
    message: str
    """What happened, in one line."""


class Host(Protocol):
    """Opens environments and acts in many of them at once, by number."""

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""


class InProcess:
    """Runs environments in this process, one after another: the cheapest for small, well-behaved ones."""

    def __init__(self, env: EnvironmentPart) -> None:
        self._env = env
        self._open: dict[int, Environment] = {}

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""

        def start(number: int, task: Task) -> Observation:
            self._open[number] = self._env.open(task)
            return self._open[number].observe()

        return {number: guarded(partial(start, number, task)) for number, task in tasks.items()}

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""
        return {number: guarded(partial(self._open[number].act, text)) for number, text in actions.items()}

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""
        for number in numbers:
            self._open.pop(number, None)


def guarded(call: Callable[[], Answer]) -> Answer | Fault:
    """Call an environment; whatever it raises becomes a fault. The one place where that is done."""
    try:
        return call()
    except Exception as error:
        return Fault(reason=StopReason.ERROR, message=f"{type(error).__name__}: {error}".splitlines()[0])
