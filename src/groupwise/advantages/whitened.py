"""Credit whitened over all tokens of the table that train."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.core.credit import Comparison, Credit
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.step_table import StepTable


class Whitened(Part, slot="estimator"):
    """Shift and scale credit to mean 0 and variance 1 over all tokens of the table that train, across tasks.

        A = (v - mean_tok) / sqrt(var_tok + eps),   var_tok with Bessel's correction

    Every token of a step carries the step's value, so each step counts `tokens` times; without that column, once. Steps
    that do not train, by the column `trains` or by the algorithm's filters, are shifted and scaled like the others but
    do not count.

    Source: REINFORCE++, arXiv:2501.03262, as verl computes it. This part mixes tasks by design. Edge behaviour: all
    values that train equal gives exactly 0 to every step; fewer than two tokens that train give 0 and no comparison.

    **Choices.** Tokens that a `token_credit` part keeps from training count: that part is asked after credit is known,
    and decides by it, so that no credit can depend on what it leaves out.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The credit that is whitened."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    """Added to the variance."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        tokens, total = table.trained_tokens, float(table.trained_tokens.sum())
        enough = total >= 2
        # Relative to one value that counts, so that equal values give exactly 0.
        counts = tokens > 0
        anchor = inner.values[int(np.argmax(counts))] if len(table) else 0.0
        distance = inner.values - anchor
        distance = distance - (tokens @ distance / total if enough else distance)
        variance = float(tokens @ distance**2) / (total - 1) if enough else 0.0
        scale = float(np.sqrt(variance + self.eps)) or 1.0
        trace = Comparison(
            values=distance / scale if distance[counts].any() else np.zeros(len(table)),
            compared=np.full(len(table), enough),
            signal=inner.values,
            label=np.zeros(len(table), dtype=np.int64),
            baseline=inner.values - distance,
            scale=np.full(len(table), scale),
            part=self,
            of=inner,
        )
        return Credit.of(table, trace)
