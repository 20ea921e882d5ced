"""Repeat the shown word: an environment whose every number can be worked out by hand."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from math import perm
from typing import Annotated

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, TaskSets, check_env, choose_split, divide_task_sets
from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.part import Part

ENV = "identity"
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")
MIN_TASKS = 4


class Identity(Part, slot="env", self_contained=True):
    """Repeat the shown word, `length` times; each correct word gets reward 1, and all correct is success.

    In closed form: a policy that says each of the n words with probability 1/n gets length/n on average and succeeds
    with probability n^-length. The words of a task differ, so the word is the `state_key`. A word that is not one of
    the n is invalid.
    """

    num_words: Annotated[int, Field(ge=2, le=len(WORDS))] = 8
    """Words that may be shown."""
    length: Annotated[int, Field(ge=1, le=4)] = 2
    """Words in a rollout, one per step."""
    max_steps: Annotated[int, Field(ge=1)] = 8
    """Steps before a rollout is truncated."""

    @model_validator(mode="after")
    def _wide_enough(self) -> Identity:
        if self.length > self.num_words or perm(self.num_words, self.length) < MIN_TASKS:
            raise ValueError("so few different tasks cannot fill three task sets; raise num_words")
        if self.length > self.max_steps:
            raise ValueError(f"{self.length} words do not fit into max_steps, {self.max_steps}; raise max_steps")
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_task_sets(self.num_words, self.length), split)

    def open(self, task: Task) -> IdentityEnvironment:
        check_env(task, ENV)
        return IdentityEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary_of((self.instruction(), "Say. Done.", *WORDS[: self.num_words]))

    def instruction(self) -> str:
        return "Repeat the word."


class IdentityEnvironment(SteppedEnvironment):
    """One rollout of repeating words."""

    def __init__(self, task: Task, part: Identity) -> None:
        super().__init__(task, part.max_steps)
        self._sequence: tuple[str, ...] = tuple(task.payload["words"])
        self._answers = WORDS[: part.num_words]
        self._num_right = 0
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        step = self._progress.step()
        right = action == self._sequence[step]
        self._num_right += right
        last = self._progress.steps == len(self._sequence)
        success = self._num_right == len(self._sequence) if last else None
        accepted = action in self._answers
        return self._progress.outcome(self._observe(), success=success, reward=float(right), accepted=accepted)

    def expert(self) -> str | None:
        return None if self._progress.ended else self._sequence[self._progress.steps]

    def _observe(self) -> Observation:
        if self._progress.steps == len(self._sequence):
            return Observation(text="Done.", state_key="done", admissible=())
        word = self._sequence[self._progress.steps]
        return Observation(text=f"Say {word}.", state_key=word, admissible=self._answers)


@cache
def _build_task_sets(num_words: int, length: int) -> TaskSets:
    sequences = permutations(WORDS[:num_words], length)
    return divide_task_sets(ENV, [Proposal(payload={"words": list(sequence)}) for sequence in sequences])
