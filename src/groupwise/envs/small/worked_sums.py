"""Worked sums: add numbers one by one, a line for each, and say the total; every line can be checked."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.progress import SteppedEnvironment, show_text
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import split_words, vocabulary_of
from groupwise.parts.part import Part

ENV = "worked_sums"
SIZES = TaskSetSizes(train=2000, validation=200, test=400)


class WorkedSums(Part, slot="env", self_contained=True):
    """Sums with their working: "4 + 7 = 11 ; 11 + 2 = 13 ; answer 13", in one answer of 20 to 60 words.

    One step: the action is the whole answer. Only the total counts for the reward; an answer without a total is
    invalid. Each line is checked too. For methods that give advantages inside an answer, and for judges, the step info
    has: `lines_right` (the line continues from the result before it with the next number and is correct),
    `lines_on_track` (its result is the true sum so far), `line_ends` (words up to its end; with the model `tiny` these
    are tokens), `answer` and `gold_answer`.

    Choices: lines end with ; or a new line; an empty line belongs to the line before it. An answer may say the total
    early: its last line is right if it is the result so far plus all numbers that are left. A line that cannot be read
    is wrong and changes no result.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"lines_right", "lines_on_track", "line_ends", "answer", "gold_answer"}
    )
    num_terms: Annotated[int, Field(ge=4, le=10)] = 5
    """Numbers to add: an answer has as many lines (the last one says the total), with six words per line."""
    largest_term: Annotated[int, Field(ge=4, le=50)] = 9
    """The largest number to add."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""
    success_reward: float = 1.0
    """Reward of a right total."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(draw_task_sets(ENV, _draw, self.num_terms, self.largest_term, sizes=SIZES), split)

    def open(self, task: Task) -> WorkedSumsEnvironment:
        check_env(task, ENV)
        return WorkedSumsEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        # Large enough for one error per line, which later lines continue.
        numbers = (str(number) for number in range(self.num_terms * (self.largest_term + 1) + 1))
        sentences = "Add + . = ; answer Right. Wrong. That is not an answer."
        return vocabulary_of((self.instruction(), sentences, *numbers))

    def instruction(self) -> str:
        return "Add the numbers one by one, a line for each, then say the answer."


class WorkedSumsEnvironment(SteppedEnvironment):
    """One rollout of a sum."""

    def __init__(self, task: Task, part: WorkedSums) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._terms = part, tuple(task.payload["terms"])
        self._progress.observation = show_text(f"Add {' + '.join(map(str, self._terms))}.")

    def act(self, action: str) -> Outcome:
        self._progress.step()
        checked = check_answer(action, self._terms)
        gold = sum(self._terms)
        info = {
            "lines_right": list(checked.is_right),
            "lines_on_track": list(checked.is_on_track),
            "line_ends": list(checked.ends),
            "answer": "" if checked.total is None else str(checked.total),
            "gold_answer": str(gold),
        }
        if checked.total is None:
            seen = show_text("That is not an answer.")
            return self._progress.outcome(seen, success=False, accepted=False, info=info)
        is_right = checked.total == gold
        reward = self._part.success_reward if is_right else 0.0
        seen = show_text("Right." if is_right else "Wrong.")
        return self._progress.outcome(seen, success=is_right, reward=reward, info=info)

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        _, *results = accumulate(self._terms)
        return write_answer(self._terms, results, results[-1])


def _draw(num_terms: int, largest_term: int, index: int) -> Proposal:
    draws = Draws(ENV, num_terms, largest_term, index)
    return Proposal(payload={"terms": [1 + draws.below(largest_term) for _ in range(num_terms)]})


# Lines of a worked sum: how an answer is cut into them, read and checked.

LINE_END = ";"
"""What ends a line; a new line does too."""
_LINE = re.compile(r"([0-9]{1,9})\s*\+\s*([0-9]{1,9})\s*=\s*([0-9]{1,9})")
_ANSWER = re.compile(r"answer\s+([0-9]{1,9})")
_END = re.compile(r"[;\n]")
_BETWEEN_LINES = LINE_END + string.whitespace


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedAnswer:
    """An answer, line by line; the last line says the total.

    Worked example: to 4 + 7 + 2, "4 + 7 = 12 ; 12 + 2 = 14 ; answer 14" has a wrong first line; the others are right
    by themselves, and none is on track.
    """

    total: int | None
    """What the last line says; None = it says no total."""
    is_right: tuple[bool, ...]
    """For each line: whether it continues from the result before it with the next number and adds correctly."""
    is_on_track: tuple[bool, ...]
    """For each line: whether its result is the true sum so far; for the last line, the true total."""
    ends: tuple[int, ...]
    """Words up to the end of each line, the sign that ends it included."""


def write_answer(terms: Sequence[int], results: Sequence[int], total: int) -> str:
    """An answer whose lines have given results.

    >>> write_answer((4, 7, 2), (11, 13), 13)
    '4 + 7 = 11 ; 11 + 2 = 13 ; answer 13'
    """
    lines, before = [], terms[0]
    for term, result in zip(terms[1:], results, strict=False):
        lines.append(f"{before} + {term} = {result} {LINE_END}")
        before = result
    return " ".join([*lines, f"answer {total}"])


def check_answer(answer: str, terms: Sequence[int]) -> CheckedAnswer:
    """Check an answer to the sum of some numbers line by line; any text can be checked."""
    texts = _cut_lines(answer)
    before, num_added, total = terms[0], 1, None
    is_right, is_on_track = [], []
    for number, text in enumerate(texts):
        line = text.strip(_BETWEEN_LINES)
        said = _ANSWER.fullmatch(line) if number == len(texts) - 1 else None
        if said is not None:
            total = int(said[1])
            is_right.append(total == before + sum(terms[num_added:]))
            is_on_track.append(total == sum(terms))
            continue
        match = _LINE.fullmatch(line)
        if match is None or num_added == len(terms):
            is_right.append(False)
            is_on_track.append(False)
            continue
        left, term, result = (int(digits) for digits in match.groups())
        is_right.append(left == before and term == terms[num_added] and result == left + term)
        num_added, before = num_added + 1, result
        is_on_track.append(result == sum(terms[:num_added]))
    ends, num_words = [], 0
    for text in texts:
        num_words += len(split_words(text))
        ends.append(num_words)
    return CheckedAnswer(total=total, is_right=tuple(is_right), is_on_track=tuple(is_on_track), ends=tuple(ends))


def _cut_lines(answer: str) -> list[str]:
    """The lines of an answer, each with its end sign; text without words belongs to a neighbour line."""
    lowered = answer.lower()
    starts = [0, *(match.end() for match in _END.finditer(lowered)), len(lowered)]
    lines, before = [], ""
    for begin, end in pairwise(starts):
        text = lowered[begin:end]
        if any(word != LINE_END for word in split_words(text)):
            lines.append(before + text)
            before = ""
        elif lines:
            lines[-1] += text
        else:
            before += text
    return lines
