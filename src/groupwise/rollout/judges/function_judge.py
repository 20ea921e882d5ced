"""A judge that is a function of Python's, named by its place."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from groupwise.core.errors import ConfigError, EngineFault
from groupwise.core.parts.part import Part
from groupwise.core.parts.trust import PLACE, load_outside
from groupwise.core.records import Task
from groupwise.core.text.safe_text import escape_surrogates, quote_line
from groupwise.core.text.value_words import describe_value
from groupwise.rollout.judges.protocol import JudgeCall, Judgement, JudgeQuestion


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
        """The score of each question, asked now; in a run, the record is looked at first."""
        asked = [sample for question in questions for sample in self.write_questions(question)]
        scores = []
        for _, judgement in self.ask(asked):
            if judgement.score is None:
                raise EngineFault(f"the judge {self.explain(judgement)}")
            scores.append(judgement.score)
        return scores

    def check(self, *, is_new: bool) -> None:
        """Import the function."""
        self._load()

    def write_questions(self, question: JudgeQuestion) -> list[Mapping[str, Any]]:
        """The function, and what it is called with."""
        texts = {name: escape_surrogates(getattr(question, name)) for name in ("context", "answer", "said")}
        task = {"id": question.task.id, "payload": dict(question.task.payload)}
        return [{"function": self.function, "task": task, **texts, "facts": dict(question.facts)}]

    def ask(self, asked: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Judgement]]:
        """Call the function, one question after the other; nothing is asked after one without a score."""
        function = self._load()
        for place, sample in enumerate(asked):
            judgement = self._settle(function, sample)
            yield place, judgement
            if judgement.score is None:
                return

    def explain(self, judgement: Judgement) -> str:
        """What the function did in place of a score."""
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
