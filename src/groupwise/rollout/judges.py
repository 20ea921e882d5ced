"""Judges: what they are asked, and those that are a rule or a function.

A judge is a part of the slot `judge`: it is called with questions and returns a finite number for each. That is all
that a rule needs. What a function or a server says may differ from one time to the next, so their answers are written
down as they come: they are `RecordedJudge`s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from pydantic import Field, field_validator

from groupwise.data.records import Task
from groupwise.parts.outside import PLACE, load_outside
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, EngineFault, RecordError
from groupwise.system.text import describe_value, escape_surrogates, quote_line


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
        return [self.right if _is_right(question) else self.wrong for question in questions]


def _is_right(question: JudgeQuestion) -> bool:
    terms = question.task.payload.get("terms")
    if not isinstance(terms, list | tuple) or not terms:
        raise RecordError(
            f"task {question.task.id!r} has no numbers to add (`terms`), which the judge checked_lines reads; use it "
            "with worked_sums, or another judge"
        )
    from groupwise.envs.small.worked_sums import check_answer  # with it all environments

    checked = check_answer(f"{question.said} {question.answer}", [int(term) for term in terms])
    return bool(checked.is_right) and checked.is_right[-1]


class PhraseJudge(Part, slot="judge"):
    """Points for each phrase that an answer holds, once however often it comes; 0 for an answer that holds none.

    A rule, not a model: what it says follows from the text alone. It is there to try a method out that asks a judge,
    and for tasks where a rule is all that is needed.
    """

    phrases: Annotated[tuple[tuple[str, Points], ...], Field(min_length=1)]
    """Phrases, each with its points: `phrases = [["please", 1.0], ["dunno", -0.5]]`."""
    ignores_case: bool = True
    """Whether capital letters are read as small ones."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        return [self._points(question.answer) for question in questions]

    def _points(self, answer: str) -> float:
        text = answer.casefold() if self.ignores_case else answer
        return math.fsum(
            points for phrase, points in self.phrases if (phrase.casefold() if self.ignores_case else phrase) in text
        )


class FunctionJudge(Part, slot="judge"):
    """Call a function with each question; it returns the score.

        def score(question: JudgeQuestion) -> float: ...

    What it returns is written down in the run's folder (judge.jsonl) and read from there where the same is asked again:
    it may ask whomever it likes, and a run that goes on comes to the same numbers.
    """

    function: str
    """Where it is: "package.module:function"."""
    max_calls: Annotated[int, Field(ge=1)] | None = None
    """Calls that the run may make in all; None = any number."""
    fallback: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The score where the function raises or returns no finite number; None = the run ends."""

    @field_validator("function")
    @classmethod
    def _is_place(cls, function: str) -> str:
        if not PLACE.fullmatch(function):
            raise ValueError(f"{function!r} names no function; write package.module:function")
        return function

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        asked = [sample for question in questions for sample in self.write_questions(question)]
        scores = []
        for _, judgement in self.ask(asked):
            if judgement.score is None:
                raise EngineFault(f"the judge {self.explain(judgement)}")
            scores.append(judgement.score)
        return scores

    def check(self, *, is_new: bool) -> None:
        self._load()

    def write_questions(self, question: JudgeQuestion) -> list[Mapping[str, Any]]:
        texts = {name: escape_surrogates(getattr(question, name)) for name in ("context", "answer", "said")}
        task = {"id": question.task.id, "payload": dict(question.task.payload)}
        return [{"function": self.function, "task": task, **texts, "facts": dict(question.facts)}]

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        function = self._load()
        for place, sample in enumerate(asked):
            judgement = self._settle(function, sample)
            yield place, judgement
            if judgement.score is None:
                return

    def explain(self, judgement: Judgement) -> str:
        return f"{self.function} {judgement.calls[-1].fault}; mend the function, or declare a `fallback`"

    def _settle(self, function: Callable[..., Any], sample: Mapping[str, Any]) -> Judgement:
        began, fault, score = time.monotonic(), "", None
        try:
            score = function(_read_question(sample))
        except Exception as error:  # a function of somebody else's may raise anything
            fault = f"raised {type(error).__name__}: {quote_line(str(error))}"
        if not fault and (isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score)):
            fault, score = f"returned {describe_value(score)} and no finite number", None
        seconds = round(time.monotonic() - began, 4)
        call = JudgeCall(answered=None if score is None else repr(float(score)), fault=fault, seconds=seconds)
        if score is None:
            return Judgement(score=self.fallback, calls=(call,), is_fallback=self.fallback is not None)
        return Judgement(score=float(score), calls=(call,))

    def _load(self) -> Callable[..., Any]:
        function = load_outside("judge", self.function)
        if not callable(function):
            raise ConfigError(f"algorithm.judge: {self.function!r} is no function; name one")
        return function


def _read_question(sample: Mapping[str, Any]) -> JudgeQuestion:
    """The question as it is written down: the function sees no more than that."""
    texts = {name: sample[name] for name in ("context", "answer", "said")}
    return JudgeQuestion(task=Task(**sample["task"]), facts=sample["facts"], **texts)
