"""Where environments run, each call guarded, so that a fault is a value and not an exception.

`InProcess` runs them here. `worker_pool.Workers` runs them in processes of their own, with a time-out, so that one that
hangs or dies costs its own attempt only. `open_host` chooses between them.

Everything that comes out of a host is plain (see `groupwise.envs.plain_records`): a field of a wrong type is a fault of
its environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from socket import socket
from time import perf_counter
from typing import Protocol, Self, TypeVar, TypeVarTuple, runtime_checkable

from groupwise.data.records import StopReason, Task
from groupwise.envs.environment import Environment, EnvironmentPart, Expert, Forkable, Observation, Outcome
from groupwise.envs.plain_records import to_plain_advice, to_plain_observation, to_plain_outcome
from groupwise.system.errors import EnvironmentFault
from groupwise.system.quoted_errors import MAX_SEARCHED_CHARACTERS, quote_error
from groupwise.system.secrets import redact
from groupwise.system.text import quote_line

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An environment raised, hung, died, or handed over what no record can hold."""

    reason: StopReason
    message: str
    """What happened, in one line of at most 500 characters."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", quote_line(redact(self.message[:MAX_SEARCHED_CHARACTERS])))


@dataclass(frozen=True)
class NoExpert:
    """The environment was asked for its expert and has none."""


Advice = str | NoExpert | Fault | None
"""What came of asking an expert: a good next action, None where it knows none, or why there is no answer."""


class Host(Protocol):
    """Opens environments and acts in many of them at once, by number.

    A fault ends an environment: it is dropped, and its number may be opened again.
    """

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        """Ask the experts of some environments what they would do next."""

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        """Copy an environment under other numbers, where it lives, and return what each copy shows.

        The copies and their source go their own ways from here on. One that cannot be made is a fault of its own
        number; the source goes on.
        """

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""

    def shutdown(self) -> None:
        """Let go of everything; the host is not used afterwards."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


@runtime_checkable
class ConcurrentHost(Protocol):
    """A host whose environments act at the same time: actions are begun, and finish one by one."""

    def begin(self, actions: Mapping[int, str]) -> None:
        """Act in some environments, and do not wait for what comes of it; others may be acting already."""

    def finish(self, ear: socket) -> dict[int, Outcome | Fault]:
        """Wait until some of the actions that were begun are done; what came of all that are.

        Nothing, where something can be read from `ear` before that.
        """


def open_host(env: EnvironmentPart, *, workers: int, timeout: float, rehearsed: Sequence[str] = ()) -> Host:
    """The host for so many worker processes, each call within `timeout` seconds; 0 workers = in this process.

    A worker is asked first for the panels of the splits that are `rehearsed`, and for the environment's words: one that
    ends its process over them is found out there.
    """
    if workers == 0:
        return InProcess(env)
    from groupwise.rollout.worker_pool import Workers  # which stands on this file

    return Workers(env, num=workers, timeout=timeout, rehearsed=rehearsed)


class InProcess:
    """Runs environments in this process, one after another: the cheapest for small, well-behaved ones."""

    def __init__(self, env: EnvironmentPart) -> None:
        self._env = env
        self._environments: dict[int, Environment] = {}

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        answers: dict[int, Observation | Fault] = {}
        for number, task in tasks.items():
            try:
                environment = self._environments[number] = self._env.open(task)
                answers[number] = to_plain_observation(environment.observe())
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                answers[number] = fault_of(error)
                self._environments.pop(number, None)
        return answers

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        environments = self._environments
        if not actions.keys() <= environments.keys():  # before any of them acts
            raise KeyError(min(actions.keys() - environments.keys()))
        answers: dict[int, Outcome | Fault] = {}
        # As `call_guarded` does, but here: every step of every environment passes, and each further call is felt.
        for number, text in actions.items():
            try:
                answers[number] = to_plain_outcome(environments[number].act(text))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                answers[number] = fault_of(error)
                del environments[number]
        return answers

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        def ask(number: int) -> str | NoExpert | None:
            environment = self._environments[number]
            return to_plain_advice(environment.expert()) if isinstance(environment, Expert) else NoExpert()

        return self._ask_each(ask, numbers)

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        environment = self._environments[source]

        def copy(number: int) -> Observation:
            if not isinstance(environment, Forkable):
                raise EnvironmentFault(
                    f"{type(environment).__name__} has no fork(), so that nothing can go on from the middle of its "
                    "attempts; give it one that returns an independent copy"
                )
            twin = self._environments[number] = environment.fork()
            return to_plain_observation(twin.observe())

        return self._ask_each(copy, into)

    def observe(self, number: int) -> Observation | Fault:
        return call_guarded(lambda: to_plain_observation(self._environments[number].observe()))

    def close(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._environments.pop(number, None)

    def shutdown(self) -> None:
        self._environments.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _ask_each(self, ask: Callable[[int], Answer], numbers: Sequence[int]) -> dict[int, Answer | Fault]:
        answers = {number: call_guarded(ask, number) for number in numbers}
        self.close([number for number, answer in answers.items() if isinstance(answer, Fault)])
        return answers


def call_guarded(call: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer | Fault:
    try:
        return call(*arguments)
    except KeyboardInterrupt:  # the user's, not the environment's
        raise
    except BaseException as error:
        return fault_of(error)


def fault_of(error: BaseException) -> Fault:
    """The fault that an exception stands for: its class and the first line of what it says."""
    reason = StopReason.TIMEOUT if isinstance(error, TimeoutError) else StopReason.ERROR
    return Fault(reason=reason, message=quote_error(error))


@dataclass
class EnvTiming:
    """Steps of environments, and the seconds in which the loop waited for them to open and to act.

    With workers these are seconds of the loop, not of the environments: all workers act at the same time. Where
    attempts do not go in step, they are those in which the loop waited while some environment acted.

    Worked example: two environments were opened in 0.5 seconds and took 6 steps in 1.0: steps 6, seconds 1.5.
    """

    steps: int = 0
    seconds: float = 0.0

    @contextmanager
    def during(self, steps: int = 0) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds += perf_counter() - begin
            self.steps += steps
