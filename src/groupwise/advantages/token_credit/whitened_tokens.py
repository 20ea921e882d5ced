"""Credit of tokens, whitened over all tokens of the table that train.

Axis: K sampled tokens of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Derivation
from groupwise.core.parts.part import Part, name_of
from groupwise.core.parts.slots import TokenCreditSlot
from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit, TokenTrace, describe_mask
from groupwise.core.token_table import TokenTable


class WhitenedTokens(Part, slot="token_credit"):
    """Shift and scale the credit of tokens to mean 0 and variance 1 over all tokens of the table that train.

        A = (v - mean) / sqrt(var + eps),   var with Bessel's correction

    Source: whitening of advantages in PPO and REINFORCE++ (arXiv:2501.03262), as verl computes it. Choices: tasks mix
    by design. Tokens that do not train, by the part within or by filters, do not count. All equal gives exactly 0, and
    so do fewer than two tokens.
    """

    mixes_tasks: ClassVar[bool] = True
    of: TokenCreditSlot
    """The credit that is whitened."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    """Added to the variance."""

    @property
    def gives_spans(self) -> bool:
        """Whether the part within tells spans."""
        return getattr(self.of, "gives_spans", False)

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        inner = self.of(table, credit, tokens)
        counts: BoolArray = inner.trains & table.trains[tokens.step]
        counted = inner.values[counts]
        values = np.zeros(len(tokens))
        if len(counted) >= 2:
            # Relative to one value that counts, so that equal values give exactly 0.
            distance, own = counted - counted[0], inner.values[inner.trains] - counted[0]
            variance = float(np.var(distance, ddof=1))
            if distance.any():
                values[inner.trains] = (own - distance.mean()) / np.sqrt(variance + self.eps)
        return TokenCredit(
            values=values,
            trains=inner.trains,
            trace=WhitenedTrace(part=self, inner=inner, counts=counts),
            span=inner.span,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class WhitenedTrace:
    """How whitened credit comes about: from the credit within, and its mean and deviation over what counts."""

    part: WhitenedTokens
    """The part."""
    inner: TokenCredit
    """The credit within."""
    counts: BoolArray
    """Which tokens count in the statistics (K)."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The credit within, less the mean, over the deviation."""
        trace, known = self.inner.trace, self.inner.values[self.counts].tolist()
        if isinstance(trace, TokenTrace):
            weight, earned = float(trace.weight[token]), float(credit.values[tokens.step[token]])
            within = Derivation(value=weight * earned, formula=f"{weight:.6g} x {earned:.6g} = {weight * earned:.6g}")
        elif hasattr(trace, "derive"):
            within = trace.derive(table, credit, tokens, token)
        else:
            taken = float(self.inner.values[token])
            reason = f"the credit of {name_of(self.part.of)}, whose trace {type(trace).__name__} has no derive"
            within = Derivation(value=taken, formula=f"{taken:.6g}", not_derived=reason)
        own, lines = within.value, (*within.lines, f"{name_of(self.part.of)}: {within.formula}")
        if len(known) < 2 or len(set(known)) == 1:
            return replace(within, value=0.0, formula="nothing to whiten by: 0", lines=lines)
        mean = sum(known) / len(known)
        spread = (sum((value - mean) ** 2 for value in known) / (len(known) - 1) + self.part.eps) ** 0.5
        value = (own - mean) / spread
        return replace(
            within,
            value=value,
            formula=f"({own:.6g} - {mean:.6g}) / {spread:.6g} = {value:.6g}",
            lines=(*lines, f"over the {len(known)} tokens that train: mean {mean:.6g}, deviation {spread:.6g}"),
        )

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        """Why a token does not train, as the part within says."""
        return describe_mask(self.inner, table, credit, tokens, token)
