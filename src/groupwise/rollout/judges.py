"""Judges: their questions, and the judges that are a rule or a function.

A judge is a part of the slot `judge`: it is called with questions and returns a finite number for each. A rule needs no
more. A function or a server may answer differently each time. So their answers are recorded at once: they are
`RecordedJudge`s.
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
from groupwise.parts.part import Count, Finite, Part
from groupwise.system.errors import ConfigError, EngineFault, RecordError
from groupwise.system.text import describe_value, escape_surrogates, quote_line


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """A question to a judge.

    Worked example: `JudgeQuestion(task=task, context="You see a door.", answer="open door")`.
    """

    task: Task
    """The task; its payload may have the right answer."""
    context: str
    """The observation before the answer."""
    answer: str
    """The response or the action."""
    said: str = ""
    """The response before the answer, if the answer is a piece of a response."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Step info, such as that of the environment."""


@dataclass(frozen=True, kw_only=True)
class JudgeCall:
    """One call of a judge, and its result."""

    answered: str | None
    """The judge's answer; None = no answer."""
    fault: str
    """Why the answer is no score; empty = it is one."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one question, with all its calls.

    Worked example: the first answer had no score and the second was "score: 7". Then the score is 7.0, with two calls,
    the first with a fault.
    """

    score: float | None
    """The score; None = no score was read, and there is no fallback."""
    calls: tuple[JudgeCall, ...]
    is_fallback: bool = False
    """Whether the score is the fallback and not from the judge."""


@runtime_checkable
class RecordedJudge(Protocol):
    """A judge whose answers are recorded, and read from the record if the same is asked again."""

    @property
    def max_calls(self) -> int | None:
        """Maximum number of calls of a run; None = no limit."""

    def check(self, *, is_new: bool) -> None:
        """Raise an error if it cannot work, before any rollout; `is_new` = the run has not asked it yet."""

    def write_questions(self, question: JudgeQuestion) -> list[Mapping[str, Any]]:
        """The requests for a question, as JSON that determines the answer; if several, their scores are averaged."""

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        """Ask, and yield each judgement with its position, as it comes.

        After one without a score, no call is started. Those that run are yielded too; the others are left out.
        """

    def explain(self, judgement: Judgement) -> str:
        """One sentence about a judgement without a score: the problem and the fix."""


class CheckedSteps(Part, slot="judge"):
    """Points for a step that passed every check of its environment and made only calls that lead to the answer.

    This is a rule, not a model. It reads the step info `checks`, `calls` and `gold_calls` of environments with tools.
    If a step made no call, or the environment does not know the right calls (`search_qa`, the shops), only its checks
    count.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"checks"})
    passed: Finite = 2.0
    """Score of a step that passed; some parts read it as a logit."""
    failed: Finite = -2.0
    """Score of any other step."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        return [self.passed if _has_passed(question) else self.failed for question in questions]


def _has_passed(question: JudgeQuestion) -> bool:
    checks = question.info.get("checks")
    if not isinstance(checks, dict) or not checks:
        raise RecordError(
            f"task {question.task.id!r}: a step has no info value 'checks', which the judge checked_steps reads; use "
            "an environment that tells it, or another judge"
        )
    calls = question.info.get("calls", [])
    gold = question.info.get("gold_calls", calls)  # if not known, no call counts as wrong
    return all(checks.values()) and all(call in gold for call in calls)


class CheckedLines(Part, slot="judge"):
    """Points for a line of a worked sum that continues from the previous result and is correct.

    This is a rule, not a model; `worked_sums` checks its lines with it. The text before a line gives the previous
    result. A piece without a line end has the points of its line.
    """

    right: Finite = 1.0
    """Score of a correct line."""
    wrong: Finite = 0.0
    """Score of any other line."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        return [self.right if _is_right(question) else self.wrong for question in questions]


def _is_right(question: JudgeQuestion) -> bool:
    terms = question.task.payload.get("terms")
    if not isinstance(terms, list | tuple) or not terms:
        raise RecordError(
            f"task {question.task.id!r} has no numbers to add (`terms`), which the judge checked_lines reads; use it "
            "with worked_sums, or another judge"
        )
    from groupwise.envs.small.worked_sums import check_answer  # imports all environments

    checked = check_answer(f"{question.said} {question.answer}", [int(term) for term in terms])
    return bool(checked.is_right) and checked.is_right[-1]


class PhraseJudge(Part, slot="judge"):
    """Points for each phrase in an answer; a repeated phrase counts once. An answer without a phrase gets 0.

    This is a rule, not a model: the score depends only on the text. Use it to try out methods with a judge, and for
    tasks for which a rule is enough.
    """

    phrases: Annotated[tuple[tuple[str, Finite], ...], Field(min_length=1)]
    """Phrases, each with its points: `phrases = [["please", 1.0], ["dunno", -0.5]]`."""
    ignores_case: bool = True
    """Whether upper and lower case are equal."""

    def __call__(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        fold: Callable[[str], str] = str.casefold if self.ignores_case else str
        scored = [(fold(phrase), points) for phrase, points in self.phrases]
        texts = [fold(question.answer) for question in questions]
        return [math.fsum(points for phrase, points in scored if phrase in text) for text in texts]


class FunctionJudge(Part, slot="judge"):
    """Call a function with each question; it returns the score.

        def score(question: JudgeQuestion) -> float: ...

    Its results are recorded in the run folder (judge.jsonl), and read from there if the same is asked again. So it may
    call any service, and a resumed run gets the same numbers.
    """

    function: str
    """The function, as "package.module:function"."""
    max_calls: Count | None = None
    """Maximum number of calls of the run; None = no limit."""
    fallback: Finite | None = None
    """The score if the function raises or returns no finite number; None = the run ends."""

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
        return [{"function": self.function, "task": task, **texts, "info": dict(question.info)}]

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        function = self._load()
        for place, sample in enumerate(asked):
            judgement = self._settle(function, sample)
            yield place, judgement
            if judgement.score is None:
                return

    def explain(self, judgement: Judgement) -> str:
        return f"{self.function} {judgement.calls[-1].fault}; fix the function, or declare a `fallback`"

    def _settle(self, function: Callable[..., Any], sample: Mapping[str, Any]) -> Judgement:
        began, fault, score = time.monotonic(), "", None
        try:
            texts = {name: sample[name] for name in ("context", "answer", "said")}
            # The function gets only what is recorded.
            score = function(JudgeQuestion(task=Task(**sample["task"]), info=sample["info"], **texts))
        except Exception as error:  # a user's function may raise anything
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
            raise ConfigError(f"algorithm.judge: {self.function!r} is not a function; name one")
        return function
