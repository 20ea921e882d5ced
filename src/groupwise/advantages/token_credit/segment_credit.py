"""Credit of the segments of an answer: what each changed in the value of the answer so far (SPO-chain).

Axes: S steps of the table, K sampled tokens of all steps, G segments of all steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_segments import join_numbers, read_segments
from groupwise.core.credit import Comparison, Credit, Derivation
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

ENDS, VALUES = "segment_ends", "segment_values"


class SegmentCredit(Part, slot="token_credit"):
    """Give the tokens of a segment what the segment changed in the value of the answer; sure tokens do not train.

        A_1 = V_1 - (R - A),   A_k = V_k - V_(k-1),   A_last = R - V_(last-1);   they add up to A, the step's credit

    R is what the estimator compared. V_k is the value where segment k ends, which the measure `segment_values` writes
    down. A segment's token trains where its probability was below `max_probability`.

    Source: SPO-chain (arXiv:2505.23564). **Choices.** The value of the empty answer is the estimator's baseline, R - A:
    the other attempts at the task are continuations of it. So an answer of one segment has the credit of its step, to
    the bit, and the estimator is `relative` and must not divide by a scale. Whitening, as in the release, is
    `whitened_tokens` around it.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, VALUES})
    max_probability: Annotated[float, Field(gt=0, le=1)] | None = 0.9
    """Probability below which a token trains; None = all do."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        signal = read_comparison(table, credit, "segment_credit").signal
        segments = read_segments(table, tokens, ends=ENDS, numbers=VALUES, more=-1)
        changes = [
            _list_changes(float(signal[step]), float(credit.values[step]), values) if ends else []
            for step, (ends, values) in enumerate(zip(segments.ends, segments.numbers, strict=True))
        ]
        trains = np.ones(len(tokens), dtype=np.bool_)
        if self.max_probability is not None:
            trains = np.exp(tokens.column("logp", table)) < self.max_probability
        values = join_numbers(changes)[segments.of_token] if len(tokens) else np.zeros(0)
        return TokenCredit(values=values, trains=trains, trace=SegmentTrace(part=self))


def _list_changes(earned: float, credit: float, values: tuple[float, ...]) -> list[float]:
    if not values:
        return [credit]
    first = values[0] - (earned - credit)
    return [first, *(after - before for before, after in pairwise(values)), earned - values[-1]]


def read_comparison(table: StepTable, credit: Credit, what: str) -> Comparison:
    """The comparison that credit comes from: R is its signal, and R - A its baseline, both in units of the reward.

    Refused is credit of which that does not hold: a sum or mixture, credit made of other credit, or divided by a scale.
    """
    trace = credit.trace
    if not isinstance(trace, Comparison) or trace.of is not None:
        raise RecordError(f"{what} reads the baseline of a comparison in groups; use the estimator relative")
    divided = np.flatnonzero(~np.isnan(trace.scale) & (trace.scale != 1.0))
    if len(divided):
        raise RecordError(
            f"{table.describe_step(int(divided[0]))}: its credit was divided by {trace.scale[divided[0]]:.6g}, and "
            f"{what} compares credit with values in units of the reward; give the estimator the scale no_scale"
        )
    return trace


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentTrace:
    """How `SegmentCredit` comes by a token's credit."""

    part: SegmentCredit
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The value where the token's segment ends, less that where it begins."""
        step, position = int(tokens.step[token]), int(tokens.position[token])
        ends, inner = table.column(ENDS)[step], table.column(VALUES)[step]
        number = next(number for number, end in enumerate(ends) if position < end)
        earned = float(read_comparison(table, credit, "segment_credit").signal[step])
        own = float(credit.values[step])
        before = inner[number - 1] if number else earned - own
        after = inner[number] if number < len(inner) else earned
        value = own if len(ends) == 1 else math.fsum([after, -before])
        whence = "measured" if number else f"what was compared, {earned:.6g}, less the credit of the step, {own:.6g}"
        whither = "measured" if number < len(inner) else "what was compared"
        lines = (
            f"value where its segment begins: {before:.6g} ({whence})",
            f"value where its segment ends: {after:.6g} ({whither})",
        )
        formula = f"segment {number + 1} of {len(ends)}: {after:.6g} - {before:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        """Why a token does not train."""
        probability = math.exp(float(tokens.logp[token]))
        return f"its probability was {probability:.6g}, and only tokens below {self.part.max_probability or 1:.6g} do"
