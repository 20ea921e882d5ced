"""Where environments run, each call guarded, so that a fault is a value and not an exception.

`InProcess` runs them here. `groupwise.rollout.workers.Workers` runs them in processes of their own, with a time-out, so
that one that hangs or dies costs its own attempt only. `open_host` chooses between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self, TypeVar

from groupwise.core.errors import EnvironmentFault
from groupwise.core.records import StopReason, Task
from groupwise.envs.environment import Environment, EnvironmentPart, Observation, Outcome

Answer = TypeVar("Answer")
MOST_CHARACTERS = 2**18
"""Of what an environment shows, text and listed actions together. More is a fault: it would fill any model's context,
and the memory of the whole run before that."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An environment raised, hung or died."""

    reason: StopReason
    """Error or timeout."""
    message: str
    """What happened, in one line."""


class Host(Protocol):
    """Opens environments and acts in many of them at once, by number.

    A fault ends an environment: it is dropped, and its number may be opened again.
    """

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""

    def shutdown(self) -> None:
        """Let go of everything; the host is not used afterwards."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


def open_host(env: EnvironmentPart, *, workers: int, timeout: float) -> Host:
    """The host for so many worker processes, each call within `timeout` seconds; 0 workers = in this process."""
    if workers == 0:
        return InProcess(env)
    from groupwise.rollout.workers import Workers  # which stands on this file

    return Workers(env, num=workers, timeout=timeout)


class InProcess:
    """Runs environments in this process, one after another: the cheapest for small, well-behaved ones."""

    def __init__(self, env: EnvironmentPart) -> None:
        self._env = env
        self._environments: dict[int, Environment] = {}

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""
        return {number: self._call(number, partial(self._start, number, task)) for number, task in tasks.items()}

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""
        chosen = {number: self._environments[number] for number in actions}
        return {number: self._call(number, partial(_act, chosen[number], text)) for number, text in actions.items()}

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""
        for number in numbers:
            self._environments.pop(number, None)

    def shutdown(self) -> None:
        """Drop all environments."""
        self._environments.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _start(self, number: int, task: Task) -> Observation:
        environment = self._environments[number] = self._env.open(task)
        shown: object = environment.observe()
        if not isinstance(shown, Observation):
            raise EnvironmentFault(f"observe gave {type(shown).__name__}; return an Observation")
        return _bounded(shown)

    def _call(self, number: int, call: Callable[[], Answer]) -> Answer | Fault:
        answer = guarded(call)
        if isinstance(answer, Fault):
            self._environments.pop(number, None)
        return answer


def _act(environment: Environment, action: str) -> Outcome:
    outcome: object = environment.act(action)
    if not isinstance(outcome, Outcome):
        raise EnvironmentFault(f"act gave {type(outcome).__name__}; return an Outcome")
    _bounded(outcome.observation)
    return outcome


def _bounded(shown: Observation) -> Observation:
    """An observation that a prompt can hold."""
    found = len(shown.text) + len(shown.goal) + sum(map(len, shown.admissible or ()))
    if found > MOST_CHARACTERS:
        raise EnvironmentFault(f"an observation has {found:,} characters, {MOST_CHARACTERS:,} at most; shorten it")
    return shown


def guarded(call: Callable[[], Answer]) -> Answer | Fault:
    """Call an environment; whatever it raises becomes a fault. The one place where that is done."""
    try:
        return call()
    except KeyboardInterrupt:  # the user's, not the environment's
        raise
    except BaseException as error:
        return fault_of(error)


def fault_of(error: BaseException) -> Fault:
    """The fault that an exception stands for: its class and the first line of what it says."""
    reason = StopReason.TIMEOUT if isinstance(error, TimeoutError) else StopReason.ERROR
    try:
        said = str(error)
    except Exception:
        said = "its message cannot be shown"
    return Fault(reason=reason, message=f"{type(error).__name__}: {said}".splitlines()[0])
