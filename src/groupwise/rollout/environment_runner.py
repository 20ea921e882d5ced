"""Environment runners. Each call is guarded: an environment error is a value, not an exception.

`InProcess` runs environments in this process. `worker_pool.Workers` runs them in worker processes with a timeout, so
that an environment that hangs or dies ends only its own rollout. `open_host` chooses between them.

Every answer is checked here once (see `groupwise.envs.plain_records`): a field of a wrong type is an error of its
environment. Built-in environments are checked too, because many return text, rewards and keys of datasets and of other
packages. The check of a plain answer copies nothing and takes about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from socket import socket
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, TypeVarTuple, runtime_checkable

from groupwise.data.records import StopReason, Task
from groupwise.envs.environment import Environment, EnvironmentPart, Expert, Forkable, Observation, Outcome
from groupwise.envs.plain_records import (
    list_unplain_observations,
    list_unplain_outcomes,
    to_plain_advice,
    to_plain_observation,
    to_plain_outcome,
)
from groupwise.system.errors import EnvironmentFault
from groupwise.system.quoted_errors import MAX_SEARCHED_CHARACTERS, quote_error
from groupwise.system.secrets import redact
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from groupwise.engines.engine import Generation
    from groupwise.rollout.prompts import Prompter

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An environment raised, hung, died, or returned a value that no record can hold."""

    reason: StopReason
    message: str
    """What happened, in one line of at most 500 characters."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", quote_line(redact(self.message[:MAX_SEARCHED_CHARACTERS])))


@dataclass(frozen=True)
class NoExpert:
    """The environment was asked for its expert and has none."""


Advice = str | NoExpert | Fault | None
"""The answer of an expert: a good next action, None if it knows none, or why there is no answer."""


class Host(Protocol):
    """Opens environments and acts in many of them at once, by number.

    After a fault the environment is dropped, and its number may be opened again.
    """

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return the first observations."""

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return the outcomes."""

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        """Ask the experts of some environments for the next action."""

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        """Copy an environment under other numbers and return the observation of each copy.

        Copies and source are independent. A copy that cannot be made is a fault of its own number only.
        """

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose rollouts have ended."""

    def shutdown(self) -> None:
        """Close everything; the runner is not used afterwards."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


@runtime_checkable
class ConcurrentHost(Protocol):
    """A runner whose environments act at the same time: actions are started, and finish one by one."""

    def begin(self, actions: Mapping[int, str]) -> None:
        """Start actions in some environments and do not wait; others may be acting already."""

    def finish(self, ear: socket) -> dict[int, Outcome | Fault]:
        """Wait until some of the started actions are done, and return the outcomes of all that are.

        If `ear` becomes readable first, return no outcome.
        """


@runtime_checkable
class PromptingHost(Protocol):
    """A runner of agents: they write their own prompts, and are told how their calls were answered."""

    def use(self, prompter: Prompter, *, max_prompt: int | None) -> None:
        """Make prompts with this prompter; the loop says it before it opens anything.

        The loop ends rollouts with prompts of more than `max_prompt` tokens; None = there is no limit.
        """

    def note(self, answers: Mapping[int, Generation]) -> None:
        """What the engine sampled, by number; the actions that were read from it follow."""


def open_host(env: EnvironmentPart, *, workers: int, timeout: float, rehearsed: Sequence[str] = ()) -> Host:
    """The runner with this many worker processes, and `timeout` seconds per call; 0 workers = in this process.

    The first worker makes the task sets of the `rehearsed` splits and the environment's words before anything else. If
    that ends its process, the error is reported early.
    """
    if workers == 0:
        return InProcess(env)
    from groupwise.rollout.worker_pool import Workers  # imports this module

    return Workers(env, num=workers, timeout=timeout, rehearsed=rehearsed)


class InProcess:
    """Runs environments in this process, one after another: fastest for small environments that do not hang."""

    def __init__(self, env: EnvironmentPart) -> None:
        self._env = env
        self._environments: dict[int, Environment] = {}

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        answers: dict[int, Observation | Fault] = {}
        for number, task in tasks.items():
            try:
                environment = self._environments[number] = self._env.open(task)
                answers[number] = environment.observe()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                answers[number] = fault_of(error)
                self._environments.pop(number, None)
        if unplain := list_unplain_observations(answers):
            self._convert(unplain, answers, to_plain_observation)
        return answers

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        environments = self._environments
        if not actions.keys() <= environments.keys():  # checked before any action
            raise KeyError(min(actions.keys() - environments.keys()))
        answers: dict[int, Outcome | Fault] = {}
        # Like `call_guarded`, but inline: this runs for every step of every environment.
        for number, text in actions.items():
            try:
                answers[number] = environments[number].act(text)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                answers[number] = fault_of(error)
                del environments[number]
        if unplain := list_unplain_outcomes(answers):
            self._convert(unplain, answers, to_plain_outcome)
        return answers

    def _convert(
        self, numbers: Sequence[int], answers: dict[int, Any], to_plain: Callable[[object], Observation | Outcome]
    ) -> None:
        """Convert the answers that are not of plain values, if their environments have not failed before."""
        for number in numbers:
            if number in self._environments:
                answers[number] = call_guarded(to_plain, answers[number])
                if isinstance(answers[number], Fault):
                    del self._environments[number]

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
                    f"{type(environment).__name__} has no fork(), so no rollout can continue from the middle of its "
                    "rollouts; give it one that returns an independent copy"
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
    reason = StopReason.TIMEOUT if isinstance(error, TimeoutError) else StopReason.ERROR
    return Fault(reason=reason, message=quote_error(error))


@dataclass
class EnvTiming:
    """Steps of environments, and the seconds in which the loop waited for them to open and to act.

    With workers these are seconds of the loop, not of the environments, because all workers act at the same time. If
    rollouts are asynchronous, these are the seconds in which the loop waited while some environment acted.

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
