"""Which attempts earn suspiciously much: a gate for a penalty, as a channel that a loss reads beside credit.

Axes: S steps, A attempts.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, model_validator

from groupwise.advantages.gate_share import GateShare
from groupwise.advantages.gate_trace import GateTrace
from groupwise.advantages.signals import EpisodeReturn
from groupwise.core.column_checks import to_numbers
from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import SignalPart
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable

Fraction = Annotated[float, Field(gt=0, le=1)]


class DoubtGate(Part, slot="estimator"):
    """Open for the attempts whose reward stands out most against how auxiliary rewards rank them; else 0.

        W(x)_i = share of the other attempts of the update whose x is lower;   U_i = W(of)_i - mean_k W(auxiliary_k)_i
        open_i = U_i >= 0 and U_i >= the (1 - q) quantile of the U >= 0;   gate = open_i * steps / open steps
        q <- q (1 +- change) where the mean of the U >= 0 is above, below all of the last `window` updates', in limits

    Without auxiliary rewards it is open for all. Steps that do not train are not counted.

    Source: GARDO (2025, arXiv:2512.24138) and its release, for diffusion. **Choices.** The release subtracts ranks of
    which 1 is best, so that its sign is the other one; win rates follow the paper's words. Quantiles are interpolated;
    all attempts at the quantile are let through. An attempt has the mean of a signal over its steps; values that differ
    by rounding alone (1e-9) beat nobody. What is remembered counts attempts of the update alone, not recalled ones,
    and goes by what they earned before shapers.
    """

    mixes_tasks: ClassVar[bool] = True
    of: SignalPart = EpisodeReturn()
    """The reward that is trained on, a proxy of what is wanted."""
    auxiliary: tuple[SignalPart, ...] = ()
    """Other rewards, which are not trained on."""
    first: Fraction = 0.1
    """The share q that a run begins with."""
    lowest: Fraction = 0.02
    """The smallest share."""
    highest: Fraction = 0.2
    """The largest share."""
    change: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """How much the share changes at once, relative to itself."""
    window: Annotated[int, Field(gt=0)] = 20
    """How many updates back doubt is compared."""
    column: Annotated[str, Field(min_length=1)] = "gate_share"
    """What the step table calls the share; two such parts that differ need two names."""

    @model_validator(mode="after")
    def _begins_within_limits(self) -> DoubtGate:
        if not self.lowest <= self.first <= self.highest:
            raise ConfigError(
                f"first ({self.first:g}) is not from lowest ({self.lowest:g}) to highest ({self.highest:g}); give "
                "limits around it"
            )
        return self

    def __call__(self, table: StepTable) -> Credit:
        doubt_A = self.measure_doubt(table)
        doubtful = doubt_A[doubt_A >= 0]
        bound = np.quantile(doubtful, 1 - read_share(self, table)) if len(doubtful) else math.inf
        is_open = table.attempts.spread((doubt_A >= bound - 1e-9) | (not self.auxiliary)) > 0
        num_open = int((is_open & table.trains).sum())
        trace = GateTrace(
            values=np.where(is_open, int(table.trains.sum()) / num_open if num_open else 0.0, 0.0),
            compared=np.full(len(table), len(doubt_A) > 1),
            share=read_share(self, table),
            part=self,
        )
        return Credit.of(table, trace)

    def measure_doubt(self, table: StepTable) -> FloatArray:
        """U of each attempt (A)."""
        own, *others = (win_rates(table.attempts.mean(table.ask_once(signal))) for signal in (self.of, *self.auxiliary))
        # Rounded, since it is compared with 0: 2/3 less the mean of 1/3 and 1 may miss it by a digit.
        return np.round(own - np.mean(others, axis=0), 12) if others else own

    def start(self, *, seed: int) -> GateShare:
        """Begin with the first share; nothing here is random."""
        limits = (self.lowest, self.highest)
        return GateShare(
            self.column, self.measure_doubt, first=self.first, limits=limits, change=self.change, window=self.window
        )


def read_share(part: DoubtGate, table: StepTable) -> float:
    """The share that a table remembers; the first where it remembers none."""
    is_remembered = part.column in table.extra and len(table) > 0
    return float(to_numbers(part.column, table.column(part.column))[0]) if is_remembered else part.first


def win_rates(values: FloatArray) -> FloatArray:
    """The share of the others that each value beats, by more than rounding (A); 0 for one that is alone."""
    lower = np.searchsorted(np.sort(values), values - 1e-9 * np.maximum(np.abs(values), 1.0))
    return lower / max(len(values) - 1, 1)
