"""Credit made of credit: weighted sums, and blends over the levels that have something to say.

Axis: S steps.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Mixture
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.step_table import StepTable


class Term(Part):
    """One term of a sum or a blend."""

    weight: Annotated[float, Field(allow_inf_nan=False)]
    """Its weight."""
    of: EstimatorPart
    """Its credit."""


class Sum(Part, slot="estimator"):
    """Add up weighted terms: credit = sum_i weight_i * credit_i. A term that compared nobody adds what it gave: 0."""

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is added."""

    def __call__(self, table: StepTable) -> Credit:
        traces = tuple(term.of(table).trace for term in self.terms)
        weights = tuple(np.full(len(table), term.weight) for term in self.terms)
        trace = Mixture(
            values=np.sum([term.weight * part.values for term, part in zip(self.terms, traces, strict=True)], axis=0),
            compared=np.any([part.compared for part in traces], axis=0),
            weights=weights,
            terms=traces,
            part=self,
        )
        return Credit.of(table, trace)


class Blend(Part, slot="estimator"):
    """Average terms by weight, over those that are there for a step.

        credit = sum_i w_i * credit_i / (sum_i w_i + eps),   i over the terms present

    Source: HGPO, arXiv:2602.22817, aggregation over levels. Choices: a term is present where it compared the step. The
    released code instead calls a term absent where its credit is exactly 0 (`absent="zero_valued"`), so a level on
    which the step was exactly average is left out; it also adds 1e-6 to the denominator.
    """

    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    """What is averaged; weights are relative."""
    absent: Literal["not_compared", "zero_valued"] = "not_compared"
    """Which terms are left out of a step's average."""
    eps: Annotated[float, Field(ge=0)] = 0.0
    """Added to the sum of the weights present."""

    def __call__(self, table: StepTable) -> Credit:
        traces = tuple(term.of(table).trace for term in self.terms)
        shares = []
        for term, part in zip(self.terms, traces, strict=True):
            present = part.compared if self.absent == "not_compared" else part.values != 0
            shares.append(np.where(present, term.weight, 0.0))
        total = np.sum(shares, axis=0) + self.eps
        divisor = np.where(total > 0, total, np.inf)
        weights = tuple(share / divisor for share in shares)
        trace = Mixture(
            values=np.sum([weight * part.values for weight, part in zip(weights, traces, strict=True)], axis=0),
            compared=np.any([part.compared for part in traces], axis=0),
            weights=weights,
            terms=traces,
            part=self,
        )
        return Credit.of(table, trace)
