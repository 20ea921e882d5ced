"""A token-credit part of a user's own: the tokens that surprised the sampler most carry most of a step's credit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.extend import Credit, Derivation, Part, StepTable, TokenCredit, TokenTable


class BySurprise(Part, slot="token_credit"):
    """Credit of a token: its step's, times its surprise over the mean surprise of the step's tokens.

    Tokens that could hardly have been others do not train.
    """

    min_surprise: Annotated[float, Field(ge=0)] = 0.0
    """The smallest -log p with which a token trains."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        surprise = -tokens.column("logp", table)
        total = np.bincount(tokens.row, weights=surprise, minlength=len(table))[tokens.row]
        share = np.divide(surprise * tokens.step_length, total, out=np.ones(len(tokens)), where=total > 0)
        return TokenCredit(
            values=share * credit.values[tokens.row],
            trains=surprise >= self.min_surprise,
            trace=SurpriseTrace(part=self),
        )


@dataclass(frozen=True, kw_only=True)
class SurpriseTrace:
    """It derives a token's credit again from the log-probs of its step."""

    part: BySurprise

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """Surprise over the mean surprise, times the credit of the step."""
        step = int(tokens.row[token])
        surprise = {k: -float(tokens.logp[k]) for k in range(len(tokens)) if tokens.row[k] == step}
        mean = sum(surprise.values()) / len(surprise)
        share = surprise[token] / mean if mean > 0 else 1.0
        value = share * float(credit.values[step])
        return Derivation(
            value=value,
            formula=f"{surprise[token]:.6g} / {mean:.6g} x {float(credit.values[step]):.6g} = {value:.6g}",
            members=tuple(surprise.items()),
        )
