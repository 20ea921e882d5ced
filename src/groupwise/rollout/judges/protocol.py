"""Judges: what they are asked, and what those of them say whose answers are written down.

A judge is a part of the slot `judge`: it is called with questions and returns a finite number for each. That is all
that a rule needs. What a function or a server says may differ from one time to the next, so their answers are written
down as they come: they are `RecordedJudge`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from groupwise.data.records import Task


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """Something that a judge is asked about.

    Worked example: `JudgeQuestion(task=task, context="You see a door.", answer="open door")`.
    """

    task: Task
    """The task that was attempted; its payload may hold what is right."""
    context: str
    """What was shown before the answer."""
    answer: str
    """What was said or done."""
    said: str = ""
    """What was said before it in the same response, where it is a piece of one."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is known of its step already, such as what the environment tells."""


@dataclass(frozen=True, kw_only=True)
class JudgeCall:
    """One call of a judge, and what came of it."""

    answered: str | None
    """What it said; None = nothing came back."""
    fault: str
    """Why that is no score; empty = it is one."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What came of asking a judge one thing, with every call that it took.

    Worked example: the first answer had no score and the second "score: 7": score 7.0, two calls, the first with a
    fault.
    """

    score: float | None
    """What was read; None = nothing, and no fallback was declared."""
    calls: tuple[JudgeCall, ...]
    is_fallback: bool = False
    """Whether the score is the declared fallback and not what the judge said."""


@runtime_checkable
class RecordedJudge(Protocol):
    """A judge whose answers are written down, and read from there where the same is asked again."""

    @property
    def max_calls(self) -> int | None:
        """How many calls a run may make; None = any number."""

    def check(self, *, is_new: bool) -> None:
        """Raise where it cannot work, before anything is played; `is_new` = nobody has asked it in this run."""

    def write_questions(self, question: JudgeQuestion) -> list[Mapping[str, Any]]:
        """What is asked about a question, as JSON that decides the answer; several = their scores are averaged."""

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        """Ask, and tell what came of each, by its place, as it comes.

        After one without a score nothing else is begun; what was under way is told too, and what was not is left out.
        """

    def explain(self, judgement: Judgement) -> str:
        """One sentence about a judgement without a score: what went wrong, and what to do."""
