"""A judge that needs no model: it looks for phrases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.rollout.judges.protocol import JudgeQuestion

Points = Annotated[float, Field(allow_inf_nan=False)]


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
        """The points of each answer."""
        return [self._points(question.answer) for question in questions]

    def _points(self, answer: str) -> float:
        text = answer.casefold() if self.ignores_case else answer
        return math.fsum(
            points for phrase, points in self.phrases if (phrase.casefold() if self.ignores_case else phrase) in text
        )
