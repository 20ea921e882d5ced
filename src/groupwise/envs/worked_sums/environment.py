"""Worked sums: add numbers one by one, a line for each, and say the total; every line can be checked."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.keyed_draws import Draws
from groupwise.envs.kit.panel import Panels, Proposal, build_panels, check_env, choose_split
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import vocabulary_of
from groupwise.envs.worked_sums.lines import check_answer, write_answer

ENV = "worked_sums"
SIZES = {"train": 2000, "validation": 200, "test": 400}


class WorkedSums(Part, slot="env", stays_inside=True):
    """Sums with their working: "4 + 7 = 11 ; 11 + 2 = 13 ; answer 13", in one answer of 20 to 60 words.

    One step: the action is the whole answer. Only the total counts for the reward; an answer that ends without one is
    refused. Each line is checked too, and what comes of it is told as facts of the step, for methods that give credit
    inside an answer and for those who judge them: `lines_right` (the line goes on from the result before it with the
    next number and adds up rightly), `lines_on_track` (its result is what the numbers so far come to), `line_ends`
    (words up to its end; with the model `tiny` these are tokens), `answer` and `gold_answer`.

    Choices: lines end with ; or a new line; an empty one belongs to the line before it. An answer may say the total
    early: its last line is right where that is the result so far and all numbers that are left. A line that cannot be
    read is wrong and changes no result.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"lines_right", "lines_on_track", "line_ends", "answer", "gold_answer"}
    )
    num_terms: Annotated[int, Field(ge=4, le=10)] = 5
    """Numbers to add: an answer has a line less than that, and one for the total; six words a line."""
    largest_term: Annotated[int, Field(ge=4, le=50)] = 9
    """The largest number to add."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the attempt, so one step is all there is."""
    success_reward: float = 1.0
    """Reward of a right total."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_panels(self.num_terms, self.largest_term), split)

    def open(self, task: Task) -> WorkedSumsEnvironment:
        check_env(task, ENV)
        return WorkedSumsEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        # Slips are carried along: one at each line, the last one included, can still be said.
        numbers = (str(number) for number in range(self.num_terms * (self.largest_term + 1) + 1))
        sentences = "Add + . = ; answer Right. Wrong. That is not an answer."
        return vocabulary_of((self.instruction(), sentences, *numbers))

    def instruction(self) -> str:
        return "Add the numbers one by one, a line for each, then say the answer."


class WorkedSumsEnvironment:
    """One attempt at a sum."""

    __slots__ = ("_observation", "_part", "_progress", "_terms")

    def __init__(self, task: Task, part: WorkedSums) -> None:
        self._part = part
        self._terms = tuple(int(term) for term in task.payload["terms"])
        self._progress = Progress(task, max_steps=part.max_steps)
        self._observation = _make_observation(f"Add {' + '.join(map(str, self._terms))}.")

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        checked = check_answer(action, self._terms)
        gold = sum(self._terms)
        facts = {
            "lines_right": list(checked.is_right),
            "lines_on_track": list(checked.is_on_track),
            "line_ends": list(checked.ends),
            "answer": "" if checked.total is None else str(checked.total),
            "gold_answer": str(gold),
        }
        if checked.total is None:
            self._observation = _make_observation("That is not an answer.")
            return self._progress.outcome(self._observation, success=False, accepted=False, facts=facts)
        is_right = checked.total == gold
        self._observation = _make_observation("Right." if is_right else "Wrong.")
        reward = self._part.success_reward if is_right else 0.0
        return self._progress.outcome(self._observation, success=is_right, reward=reward, facts=facts)

    def fork(self) -> WorkedSumsEnvironment:
        twin = WorkedSumsEnvironment.__new__(WorkedSumsEnvironment)
        twin._part, twin._terms = self._part, self._terms
        twin._observation, twin._progress = self._observation, self._progress.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        _, *results = accumulate(self._terms)
        return write_answer(self._terms, results, results[-1])


def _make_observation(text: str) -> Observation:
    return Observation(text=text, state_key=text)


@cache
def _build_panels(num_terms: int, largest_term: int) -> Panels:
    return build_panels(ENV, lambda index: _draw(num_terms, largest_term, index), sizes=SIZES)


def _draw(num_terms: int, largest_term: int, index: int) -> Proposal:
    draws = Draws(ENV, num_terms, largest_term, index)
    return Proposal(payload={"terms": [1 + draws.below(largest_term) for _ in range(num_terms)]})
