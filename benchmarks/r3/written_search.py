"""Signs to be found by a search that is written out: long answers of which a limit cuts many that fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, product
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.data.records import Task
from groupwise.data.seeds import seed_of
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.task_set import Proposal, TaskSets, build_task_sets, check_env, choose_split
from groupwise.envs.kit.words import split_words, vocabulary_of
from groupwise.parts.part import Part

ENV = "written_search"
SIZES = {"train": 4000, "validation": 200, "test": 400}
END = "found"
"""What an answer ends with; the line before it is what was found."""
_RESULT = re.compile(r" (?:=|off) [0-9]+")
_LINE = re.compile(r"[0-9]+(?: [+-] [0-9]+)*")

Signs = tuple[int, ...]
"""A sign, +1 or -1, for each number after the first."""


class WrittenSearch(Part, slot="env", self_contained=True):
    """Put + or - between numbers to make a target: "4 + 7 = 11 + 2 = 13 off 4 ; 4 + 7 = 11 - 2 = 9 off 0 ; found".

    One step: the action is the whole search, a line for each try. The last line counts, by its signs and not by what
    it says that it comes to; an answer that does not end with "found" is none. The teacher tries a right line with the
    chance `insight`, else any other that it has not tried, and stops at the first right one: so lengths are spread
    widely, and whoever imitates it goes on where it does not see the right signs.
    """

    sizes: tuple[Annotated[int, Field(ge=3, le=6)], ...] = (3, 4, 5, 5, 5)
    """How many numbers a question has: each entry is as often drawn; those with most have few right choices, and most
    draws of them are passed over. A line has four words a number."""
    max_right: Annotated[float, Field(gt=0, le=1)] = 0.125
    """Share of the choices of signs that may be right where there are most numbers: such questions are hard."""
    largest_number: Annotated[int, Field(ge=4, le=20)] = 6
    """The largest number."""
    insight: Annotated[float, Field(gt=0, le=1)] = 0.25
    """How often the teacher's next line is a right one."""
    teacher_seed: int = 0
    """Root of the order in which the teacher tries lines."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so one step is all there is."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_task_sets(self.sizes, self.max_right, self.largest_number), split)

    def open(self, task: Task) -> WrittenSearchEnvironment:
        check_env(task, ENV)
        return WrittenSearchEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = (str(number) for number in range(max(self.sizes) * self.largest_number + 1))
        return vocabulary_of(
            (self.instruction(), "Make from : = ; + - off found Right. Wrong. That is none.", *numbers)
        )

    def instruction(self) -> str:
        return "Try signs."


class WrittenSearchEnvironment:
    """One rollout at a target."""

    __slots__ = ("_numbers", "_observation", "_part", "_progress", "_target", "_task")

    def __init__(self, task: Task, part: WrittenSearch) -> None:
        self._part, self._task = part, task
        self._numbers = tuple(int(number) for number in task.payload["numbers"])
        self._target = int(task.payload["target"])
        self._progress = Progress(task, max_steps=part.max_steps)
        self._observation = _make_observation(f"Make {self._target} from {' '.join(map(str, self._numbers))} :")

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        signs = read_last_line(action, self._numbers)
        if signs is None:
            self._observation = _make_observation("That is none.")
            return self._progress.outcome(self._observation, success=False, accepted=False)
        is_right = add_up(self._numbers, signs)[-1] == self._target
        self._observation = _make_observation("Right." if is_right else "Wrong.")
        return self._progress.outcome(self._observation, success=is_right, reward=float(is_right))

    def fork(self) -> WrittenSearchEnvironment:
        twin = WrittenSearchEnvironment(self._task, self._part)
        twin._observation, twin._progress = self._observation, self._progress.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        random = np.random.default_rng(seed_of(self._part.teacher_seed, "search", self._task.id))
        return write_search(self._numbers, self._target, insight=self._part.insight, random=random)


def write_search(numbers: Sequence[int], target: int, *, insight: float, random: np.random.Generator) -> str:
    """A search that ends at a right line, as the teacher writes it."""
    choices = list_choices(numbers)
    right = [signs for signs in choices if add_up(numbers, signs)[-1] == target]
    wrong = [signs for signs in choices if add_up(numbers, signs)[-1] != target]
    lines = []
    while wrong and random.random() >= insight:
        lines.append(write_line(numbers, wrong.pop(int(random.integers(len(wrong)))), target))
    lines.append(write_line(numbers, right[int(random.integers(len(right)))], target))
    return " ".join([*lines, END])


def write_line(numbers: Sequence[int], signs: Signs, target: int) -> str:
    """A line of a search, with how far from the target it ends.

    >>> write_line((4, 7, 2), (1, 1), 9)
    '4 + 7 = 11 + 2 = 13 off 4 ;'
    """
    results = add_up(numbers, signs)
    tried = zip(signs, numbers[1:], results, strict=True)
    rest = (f"{'+' if sign > 0 else '-'} {number} = {result}" for sign, number, result in tried)
    return f"{numbers[0]} {' '.join(rest)} off {abs(results[-1] - target)} ;"


def read_last_line(answer: str, numbers: Sequence[int]) -> Signs | None:
    """The signs of the last line before the end; None where an answer has no end, or the line other numbers.

    >>> read_last_line("4 + 7 = 11 + 2 = 13 off 4 ; 4 + 7 = 12 - 2 = 9 off 0 ; found", (4, 7, 2))
    (1, -1)
    """
    *lines, last = " ".join(split_words(answer)).split(" ; ")
    expression = _RESULT.sub("", lines[-1]) if lines and last == END else ""
    if _LINE.fullmatch(expression) is None:
        return None
    words = expression.split()
    if [int(word) for word in words[::2]] != list(numbers):
        return None
    return tuple(1 if word == "+" else -1 for word in words[1::2])


def add_up(numbers: Sequence[int], signs: Signs) -> list[int]:
    """What numbers come to with these signs, after each of them.

    >>> add_up((4, 7, 2), (1, -1))
    [11, 9]
    """
    signed = (sign * number for sign, number in zip(signs, numbers[1:], strict=True))
    return list(accumulate(signed, initial=numbers[0]))[1:]


def list_choices(numbers: Sequence[int]) -> list[Signs]:
    """The signs with which no result falls below 0, for which there would be no word."""
    choices = product((1, -1), repeat=len(numbers) - 1)
    return [signs for signs in choices if min(add_up(numbers, signs)) >= 0]


def _make_observation(text: str) -> Observation:
    return Observation(text=text, state_key=text)


@cache
def _build_task_sets(sizes: tuple[int, ...], max_right: float, largest_number: int) -> TaskSets:
    return build_task_sets(ENV, lambda index: _draw(sizes, max_right, largest_number, index), sizes=SIZES)


def _draw(sizes: tuple[int, ...], max_right: float, largest_number: int, index: int) -> Proposal | None:
    """Numbers, and a target that some signs make; None where the longest are too easy."""
    draws = Draws(ENV, sizes, largest_number, index)
    numbers = [1 + draws.below(largest_number) for _ in range(draws.pick(sizes))]
    choices = list_choices(numbers)
    target = add_up(numbers, draws.pick(choices))[-1]
    num_right = sum(add_up(numbers, signs)[-1] == target for signs in choices)
    if len(numbers) == max(sizes) and num_right > max_right * len(choices):
        return None
    return Proposal(payload={"numbers": numbers, "target": target})
