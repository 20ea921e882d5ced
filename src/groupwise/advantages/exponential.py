"""Credit that leans to praise: each step's credit times an exponential of itself.

Axis: S steps.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Mixture
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.step_table import StepTable

LARGEST_EXPONENT = 20.0
"""Credit over temperature is clamped to this, as log-ratios are, so that no credit is infinite."""


class ExponentiallyWeighted(Part, slot="estimator"):
    """Praise counts more the larger it is, blame less: A * exp(A / temperature).

    Source: RED-Weight in "Group-relative REINFORCE is secretly an off-policy algorithm" (2025, arXiv:2509.24203) and
    its code in Trinity-RFT, temperature 1. Credit of 0 stays 0, no sign changes. Choice: A / temperature is clamped to
    +-20. The exponential is of the credit as it is, so a temperature fits one scale of rewards.
    """

    of: EstimatorPart
    """The credit that is weighed."""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The credit that is weighed by e."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        weight = np.exp(np.clip(inner.values / self.temperature, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        trace = Mixture(
            values=inner.values * weight, compared=inner.compared, weights=(weight,), terms=(inner,), part=self
        )
        return Credit.of(table, trace)
