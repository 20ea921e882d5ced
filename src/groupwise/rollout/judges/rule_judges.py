"""Judges by rule: they go by what environments tell of a step, or check the line of a worked sum. None is a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.rollout.judges.protocol import JudgeQuestion

Points = Annotated[float, Field(allow_inf_nan=False)]


class CheckedSteps(Part, slot="judge"):
    """Points for a step that passed every check its environment made, and called nothing but what leads to the answer.

    A rule, not a model: it reads the facts `checks`, `calls` and `gold_calls`, which environments with tools tell. A
    step that called nothing, such as an answer, goes by its checks alone, and so does every step of an environment that
    does not know which calls lead to the answer (`search_qa`, the shops).
    """

    reads: ClassVar[frozenset[str]] = frozenset({"checks"})
    passed: Points = 2.0
    """Said of a step that passed; a logit, to those who read it as one."""
    failed: Points = -2.0
    """Said of any other."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        """The points of each step."""
        return [self.passed if _has_passed(question) else self.failed for question in questions]


def _has_passed(question: JudgeQuestion) -> bool:
    checks = question.facts.get("checks")
    if not isinstance(checks, dict) or not checks:
        raise RecordError(
            f"task {question.task.id!r}: a step has no fact 'checks', which the judge checked_steps reads; use an "
            "environment that tells it, or another judge"
        )
    calls = question.facts.get("calls", [])
    gold = question.facts.get("gold_calls", calls)  # unknown: nobody can say that a call was for nothing
    return all(checks.values()) and all(call in gold for call in calls)


class CheckedLines(Part, slot="judge"):
    """Points for a line of a worked sum that goes on from the result before it and adds up rightly.

    A rule, not a model: `worked_sums` checks its lines so, and what stands before a line decides what it must go on
    from. A piece that ends no line of its own has the points of the line that it belongs to.
    """

    right: Points = 1.0
    """Said of a right line."""
    wrong: Points = 0.0
    """Said of any other."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        """The points of each line."""
        return [self.right if _is_right(question) else self.wrong for question in questions]


def _is_right(question: JudgeQuestion) -> bool:
    terms = question.task.payload.get("terms")
    if not isinstance(terms, list | tuple) or not terms:
        raise RecordError(
            f"task {question.task.id!r} has no numbers to add (`terms`), which the judge checked_lines reads; use it "
            "with worked_sums, or another judge"
        )
    from groupwise.envs.worked_sums.lines import check_answer  # with it all environments

    checked = check_answer(f"{question.said} {question.answer}", [int(term) for term in terms])
    return bool(checked.is_right) and checked.is_right[-1]
