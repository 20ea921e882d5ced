"""The filter that lets steps train by what a judge said of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.core.column_checks import quote_value
from groupwise.core.credit import Credit
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable


class ScoredSteps(Part, slot="filter"):
    """Keep the steps whose judge agrees with their credit: good ones of what is praised, bad ones of what is blamed.

        credit      keep where score > above and A >= 0, or score <= above and A <= 0
        imitation   keep where score > above

    A score may be a distribution over scores, `{"4": 0.1, "5": 0.2, "6": 0.4, "7": 0.3}`: its mean counts, 5.9. What is
    dropped is still read as context, and its credit is still in its groups.

    Source: WebSTAR, which fine-tunes on the steps that a judge scores above 5 of 10 (`by="imitation"`). Going by the
    credit too is **ours**. **Choices.** A step without credit contradicts no judge and stays.
    """

    reads_credit: ClassVar[bool] = True
    column: str = "step_score"
    """The column with the scores; the measures `expert_score` and `judge_score` (`fact = "step_score"`) write it."""
    above: Annotated[float, Field(allow_inf_nan=False)] = 5.0
    """A step is good if its score is above this."""
    by: Literal["credit", "imitation"] = "credit"
    """Whether bad steps of blamed attempts train, and good ones do not; or good ones alone."""

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        scores = table.column(self.column).tolist()
        means = np.array([self._find_mean(table, step, score) for step, score in enumerate(scores)], dtype=np.float64)
        is_good = means > self.above
        if self.by == "imitation":
            return is_good
        values = credit.values
        kept: BoolArray = (is_good & (values >= 0)) | (~is_good & (values <= 0))
        return kept

    def _find_mean(self, table: StepTable, step: int, score: Any) -> float:
        """The score of a step, or the mean of its distribution."""
        chances: Iterable[tuple[Any, Any]] = score.items() if isinstance(score, Mapping) else [(score, 1.0)]
        try:
            pairs = [] if isinstance(score, str) else [(float(value), float(chance)) for value, chance in chances]
        except (TypeError, ValueError):
            pairs = []
        total = math.fsum(chance for _, chance in pairs)
        if not all(math.isfinite(v) and chance >= 0 for v, chance in pairs) or not math.isclose(total, 1, abs_tol=1e-6):
            raise RecordError(
                f"{table.describe_step(step)}: {self.column} is {quote_value(score)}, but a finite score, or scores "
                "with chances that add up to 1, is needed; add a measure that scores every step"
            )
        return math.fsum(value * chance for value, chance in pairs)
