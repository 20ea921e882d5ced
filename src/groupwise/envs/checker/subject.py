"""The environment under check, and attempts at its tasks by random actions, recorded so that they can be replayed."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from groupwise.data.records import Task
from groupwise.envs.environment import Environment, EnvironmentPart, Expert, Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.words import split_words
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_vocabulary
from groupwise.envs.plain_records import to_plain_key
from groupwise.system.errors import EnvironmentFault
from groupwise.system.quoted_errors import BrokenRuleError, NotTestedError

EXPERT_SHARE = 0.3
"""How often a random attempt does what the expert would, so that it also gets somewhere."""

NONSENSE = ("qwxyz frobnicate", "", "   ", "go to", "ß🙂\n\t", "a" * 10_000)
"""Actions that no environment understands, or should choke on."""

Record = TypeVar("Record", Observation, Outcome)
Comparable = tuple[object, ...]
"""What a step showed, in a form that compares by value (a NaN equals itself); state keys have rules of their own."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A played attempt: the actions, and what they brought."""

    task: Task
    first: Observation
    actions: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Everything that was shown, from the first to the last."""
        return (self.first, *(outcome.observation for outcome in self.outcomes))

    @property
    def transcript(self) -> list[Comparable]:
        """Everything that happened, state keys aside."""
        return [to_comparable(self.first), *(outcome_to_comparable(outcome) for outcome in self.outcomes)]

    @property
    def keys(self) -> list[Hashable]:
        """The state keys, made plain as the loop does."""
        return [to_plain_key(observation.state_key) for observation in self.observations]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The environment under check, the tasks it is checked on, and random attempts at them."""

    part: EnvironmentPart
    tasks: tuple[Task, ...]
    seed: int

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Two random attempts at each task."""
        return [
            self.play_randomly(task, Draws("checker", self.seed, task.id, number))
            for task in self.tasks
            for number in range(2)
        ]

    @cached_property
    def unrepeatable(self) -> str:
        """Where an attempt, played again with the same actions, went another way; empty = nowhere."""
        twin = Subject(part=copy.deepcopy(self.part), tasks=self.tasks, seed=self.seed)
        for attempt in self.attempts:
            for again in (self.replay(attempt.task, attempt.actions), twin.replay(attempt.task, attempt.actions)):
                if again.transcript != attempt.transcript:
                    difference = find_first_difference(again.transcript, attempt.transcript)
                    return f"task {attempt.task.id}: the same actions gave two transcripts, {difference}"
        return ""

    def require_repeatable(self) -> None:
        """Leave a rule that compares attempts, where attempts cannot be compared."""
        if self.unrepeatable:
            raise NotTestedError("the environment is not repeatable, so attempts cannot be compared")

    def require_keys(self) -> None:
        """Leave a rule about keys where there are none, or none that can be compared."""
        keys = [seen.state_key for _, seen in iterate_observations(self)]
        if all(key is None for key in keys):
            raise NotTestedError("every state_key is None: steps are compared by task alone")
        try:
            for key in keys:
                to_plain_key(key)
        except EnvironmentFault:
            raise NotTestedError("there are keys that cannot be written, so they cannot be compared") from None

    def play_randomly(self, task: Task, draws: Draws) -> Attempt:
        """Play a task by random actions, and now and then the expert's."""
        environment = self.part.open(task)
        first = _require_type(environment.observe(), Observation, "observe")
        actions: list[str] = []
        outcomes: list[Outcome] = []
        seen = first
        while len(actions) < self.part.max_steps and not (outcomes and outcomes[-1].ended):
            actions.append(self._choose(environment, seen, draws))
            outcomes.append(_require_type(environment.act(actions[-1]), Outcome, "act"))
            seen = outcomes[-1].observation
        return Attempt(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

    def replay(self, task: Task, actions: Sequence[str]) -> Attempt:
        """Play a task again by given actions, or as many of them as it takes before it ends."""
        environment = self.part.open(task)
        first = environment.observe()
        outcomes: list[Outcome] = []
        for action in actions:
            if outcomes and outcomes[-1].ended:
                break
            outcomes.append(environment.act(action))
        return Attempt(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

    def open_after(self, task: Task, actions: Sequence[str]) -> Environment:
        """A fresh environment in which some actions were taken."""
        environment = self.part.open(task)
        for action in actions:
            environment.act(action)
        return environment

    def play_by_expert(self, task: Task) -> Iterator[tuple[str, Outcome]]:
        """Play a task as its expert says, action by action."""
        environment = self.part.open(task)
        for _ in range(self.part.max_steps):
            action = environment.expert() if isinstance(environment, Expert) else None
            if action is None:
                return
            outcome = environment.act(action)
            yield action, outcome
            if outcome.ended:
                return

    def _choose(self, environment: Environment, seen: Observation, draws: Draws) -> str:
        by_expert = draws.below(1000) < 1000 * EXPERT_SHARE
        listed = seen.admissible if isinstance(seen.admissible, tuple | list) else ()
        if isinstance(environment, Expert) and (by_expert or not listed):
            action = environment.expert()
            if isinstance(action, str):
                return action
        return draws.pick(tuple(listed) or self._list_words(seen))

    def _list_words(self, seen: Observation) -> tuple[str, ...]:
        """Words to act with: the vocabulary, or what is shown."""
        if has_vocabulary(self.part):
            return ask_vocabulary(self.part)
        return tuple(split_words(f"{seen.goal} {seen.text}")) or NONSENSE


def _require_type(record: object, wanted: type[Record], method: str) -> Record:
    if not isinstance(record, wanted):
        raise BrokenRuleError(f"`{method}` returned a {type(record).__name__}; return an {wanted.__name__}")
    return record


def iterate_observations(subject: Subject) -> Iterator[tuple[Attempt, Observation]]:
    """Everything that was shown in the random attempts, each with its attempt."""
    return ((attempt, seen) for attempt in subject.attempts for seen in attempt.observations)


def to_comparable(observation: Observation) -> Comparable:
    """What an observation shows, in a form that compares; the state key aside."""
    return (observation.text, observation.admissible, observation.goal)


def outcome_to_comparable(outcome: Outcome) -> Comparable:
    """What an outcome shows, in a form that compares; the state key aside."""
    ending = (outcome.terminated, outcome.truncated, outcome.accepted, outcome.success)
    return (*to_comparable(outcome.observation), repr(outcome.reward), *ending)


def find_first_difference(transcript: Sequence[Comparable], expected: Sequence[Comparable]) -> str:
    """Where two transcripts part, in words."""
    for step, (step_shown, step_expected) in enumerate(zip(transcript, expected, strict=False)):
        if step_shown != step_expected:
            fields = [(a, b) for a, b in zip(step_shown, step_expected, strict=False) if a != b]
            return f"after {step} steps: {fields[0][0]!r} and {fields[0][1]!r}"
    return f"one has {len(transcript)} steps, the other {len(expected)}"
