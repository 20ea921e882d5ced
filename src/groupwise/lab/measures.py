"""How far credit is from the truth: error, what of it is bias and what chance, signs and ranks, each with an interval.

Credit of different methods has different units: GRPO divides by a deviation, GiGPO adds two terms. So it is compared
after the best single scale, one number c for all steps of a recording: the c that makes the mean of (c * credit -
truth)^2 smallest. All errors are given as shares of the mean square of the truth: 1 is what giving no credit at all
would have, 0 is the truth times a constant.

    error = mean (c * credit - truth)^2 / mean truth^2

What of it is bias and what is chance is told apart by decision points: steps of one task, step number, situation and
action, which have one truth. m is the mean of a method's credit at a point over groups drawn again and again, v the
mean variance around it, and b the best scale of m:

    bias = mean (b * m - truth)^2 / mean truth^2        what would remain with endlessly many groups
    noise = b^2 * v / mean truth^2                      how large chance is beside it, in the same units
    error = 1 - (1 - bias)^2 / (1 - bias + noise)       which is what the best scale makes of both

A baseline, one number for all actions of a situation, leaves the expected gradient as it is, and yet it is bias here:
the truth is 0 on average in each situation. So a third number has it taken off, with a best scale of its own:

    misdirection = mean (d * (m - mean of m in the situation) - truth)^2 / mean truth^2

Credit that is right but for a constant and a baseline, such as RLOO's, has misdirection 0.

Squares of means are computed from products of different updates, which are independent: the square of a mean would
have the variance of that mean in it. So bias and misdirection may come out a little below 0. Where the truth is itself
an estimate, the square of its standard error is taken off, and truths that are drawn anew by that error widen the
intervals. Ranks cannot be mended so: those of an estimated truth correlate less than those of the exact one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.lab.recording import Recording
from groupwise.system.errors import RecordError

NUM_BLOCKS = 20
"""Blocks of updates that are left out one by one for the intervals."""
T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)
"""Of Student's distribution with 1, 2, ... degrees of freedom, one fewer than there are blocks, for 95 %."""
MIN_BLOCKS = 2
"""Fewer have no spread."""
NUM_DRAWS = 40
"""How often an estimated truth is drawn anew for the intervals."""
IS_ZERO = 1e-9
"""Truths closer to 0 have no sign, and a truth that is smaller on average is none."""
RANK_DIGITS = 12
"""Digits after the point that make a difference between ranks: sums in another order differ beyond."""
KNOWN_SIGN = 2.0
"""Standard errors that a truth must be away from 0 for its sign to be known."""


@dataclass(frozen=True)
class Measured:
    """A number and its 95 % interval, by leaving out blocks of updates (jackknife).

    The interval is NaN where too little is left without some block to tell the number.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CreditError:
    """How far a method's credit is from the truth."""

    error: Measured
    """Mean squared error after the best single scale, as a share of the truth's mean square."""
    bias: Measured
    """The error that would remain with endlessly many groups at the best scale of their mean."""
    misdirection: Measured
    """What would remain if each situation's best baseline were taken off too: the expected gradient feels only this."""
    noise: Measured
    """The variance of the credit around its mean at each decision point, at that scale."""
    covered: float
    """Share of steps whose decision point came up in two updates or more: bias and noise are theirs."""
    scale: Measured
    """The best single scale; 0 where the credit says nothing, or its opposite is nearer."""
    raw_error: Measured
    """Mean squared error without any scale, as a share of the truth's mean square: in the method's own units."""
    sign: Measured
    """Share of steps whose credit has the truth's sign; a credit of 0 counts as half."""
    rank: Measured
    """Spearman's rank correlation with the truth over all steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _JudgedSteps:
    """The steps with a truth."""

    credit: FloatArray
    truth: FloatArray
    noise: FloatArray
    """Square of the truth's standard error."""
    point: IntArray
    situation: IntArray
    update: IntArray

    def select(self, chosen: BoolArray) -> _JudgedSteps:
        return _JudgedSteps(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})

    @property
    def truth_square(self) -> float:
        """Mean square of the truth, without its own error."""
        return float(np.mean(self.truth**2 - self.noise))

    @property
    def has_truth(self) -> bool:
        """Whether any truth is told apart from 0."""
        return self.truth.size > 0 and self.truth_square > IS_ZERO**2


def measure_credit(credit: FloatArray, recording: Recording) -> CreditError:
    """Hold credit against a recording's truth, over the steps whose truth is known."""
    known = recording.is_known
    rows = _JudgedSteps(
        credit=credit,
        truth=recording.truth,
        noise=recording.truth_error**2,
        point=recording.point,
        situation=recording.situation,
        update=recording.update,
    ).select(known)
    if not rows.has_truth:
        raise RecordError(
            "no true advantage is told apart from 0 in this recording, so that nothing can be held against it; take "
            "more continuations, or a policy that neither always fails nor always succeeds"
        )
    blocks = (rows.update * NUM_BLOCKS) // (int(rows.update.max()) + 1)
    whole = _measure_rows(rows)
    left_out = [_measure_rows(rows.select(blocks != block)) for block in np.unique(blocks)]
    drawn = [_measure_rows(other) for other in _draw_truths(rows)]
    intervals = {
        name: _with_interval(whole[name], *(np.array([part[name] for part in parts]) for parts in (left_out, drawn)))
        for name in whole
    }
    covered = intervals.pop("covered").value
    return CreditError(covered=covered, **intervals)


def _draw_truths(rows: _JudgedSteps) -> Iterator[_JudgedSteps]:
    """The same steps with truths that are off once more by their standard error; none where they are exact."""
    if not rows.noise.any():
        return
    _, first, place = np.unique(rows.point, return_index=True, return_inverse=True)
    error, generator = np.sqrt(rows.noise[first]), np.random.default_rng(0)
    for _ in range(NUM_DRAWS):
        off = (error * generator.standard_normal(len(error)))[place]
        yield replace(rows, truth=rows.truth + off, noise=2 * rows.noise)


def _measure_rows(rows: _JudgedSteps) -> dict[str, float]:
    """All numbers of some rows, by the names of `CreditError`'s fields."""
    scale = find_scale(rows)
    return {
        "error": measure_error(rows, scale),
        **_split_error(rows),
        "scale": scale,
        "raw_error": measure_error(rows, 1.0),
        "sign": _agree_in_sign(rows),
        "rank": _correlate_ranks(rows),
    }


def find_scale(rows: _JudgedSteps) -> float:
    """The c >= 0 with the smallest mean of (c * credit - truth)^2."""
    size = float(rows.credit @ rows.credit)
    return max(float(rows.credit @ rows.truth) / size, 0.0) if size > 0 else 0.0


def measure_error(rows: _JudgedSteps, scale: float) -> float:
    """Mean squared error at a scale, as a share of the truth's mean square; NaN where there is no truth."""
    if not rows.has_truth:
        return float("nan")
    return float(np.mean((scale * rows.credit - rows.truth) ** 2 - rows.noise)) / rows.truth_square


def _split_error(rows: _JudgedSteps) -> dict[str, float]:
    """Bias, misdirection and noise, over the steps whose point came up in several updates; NaN where none did."""
    again = Visits.count(rows.point, rows.update).has_pairs
    nan = float("nan")
    split = {"bias": nan, "misdirection": nan, "noise": nan, "covered": float(np.mean(again))}
    if not again.any():
        return split
    rows = rows.select(again)
    at_point, at_situation = Visits.count(rows.point, rows.update), Visits.count(rows.situation, rows.update)
    square = at_point.mean_of_products(rows.credit)
    common = float(np.mean(rows.credit * rows.truth))
    if not rows.has_truth or square <= 0:
        return split
    noise = (common / square) ** 2 * (float(np.mean(rows.credit**2)) - square) / rows.truth_square
    return split | {
        "bias": 1 - max(common, 0.0) ** 2 / (square * rows.truth_square),
        "misdirection": _find_misdirection(rows, directed=square - at_situation.mean_of_products(rows.credit)),
        "noise": noise,
    }


def _find_misdirection(rows: _JudgedSteps, *, directed: float) -> float:
    """What would remain without baselines, of a credit whose mean square without them is `directed`.

    Situations in which one action was met have no part in it: nothing is left of them. NaN where there are no others.
    """
    at_situation = Visits.count(rows.situation, rows.update)
    centred = rows.truth - at_situation.mean_at_place(rows.truth)
    size = float(np.mean(centred**2 - _find_centred_noise(rows, at_situation)))
    if size <= IS_ZERO**2:
        return float("nan")
    common = max(float(np.mean(rows.credit * centred)), 0.0)
    return 1 - (common**2 / (directed * size) if directed > 0 else 0.0)


def _find_centred_noise(rows: _JudgedSteps, at_situation: Visits) -> FloatArray:
    """Square of the standard error of each step's truth less its situation's mean (N).

    The truth of a point has a share w in that mean: its error stands there with 1 - w, those of others with their w.
    """
    at_point = Visits.count(rows.point, rows.update)
    share = at_point.steps[at_point.place] / at_situation.steps[at_situation.place]
    # The mean over a situation's steps of w * noise is the sum over its points of w^2 * noise.
    return rows.noise * (1 - 2 * share) + at_situation.mean_at_place(share * rows.noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class Visits:
    """How often places came up, by update: a cell is a place in an update."""

    place: IntArray
    """Place of each step (N), numbered from 0."""
    cell: IntArray
    """Cell of each step (N)."""
    place_of_cell: IntArray
    """Place of each cell."""
    steps: FloatArray
    """Steps at each place."""
    pairs: FloatArray
    """Ordered pairs of steps at each place that come from different updates."""

    @classmethod
    def count(cls, place: IntArray, update: IntArray) -> Visits:
        """Count visits from the place and the update of each step."""
        codes = np.unique(place, return_inverse=True)[1]
        width = int(update.max()) + 1
        cells, cell = np.unique(codes * width + update, return_inverse=True)
        num, of_cell = np.bincount(cell).astype(np.float64), cells // width
        steps = np.bincount(of_cell, weights=num).astype(np.float64)
        pairs = steps**2 - np.bincount(of_cell, weights=num**2)
        return cls(place=codes, cell=cell, place_of_cell=of_cell, steps=steps, pairs=pairs)

    @property
    def has_pairs(self) -> BoolArray:
        """Whether the place of each step came up in another update too (N)."""
        return np.asarray(self.pairs[self.place] > 0)

    def mean_of_products(self, values: FloatArray) -> float:
        """The mean over steps of the squared expectation of values at their place, from pairs of different updates."""
        total = np.bincount(self.cell, weights=values)
        products = np.bincount(self.place_of_cell, weights=total) ** 2
        products -= np.bincount(self.place_of_cell, weights=total**2)
        paired = self.pairs > 0
        steps = self.steps[paired]
        return float((steps * products[paired] / self.pairs[paired]).sum() / steps.sum())

    def mean_at_place(self, values: FloatArray) -> FloatArray:
        """The mean of values over the steps at each step's place (N)."""
        return np.asarray((np.bincount(self.place, weights=values) / self.steps)[self.place])


def _agree_in_sign(rows: _JudgedSteps) -> float:
    has_sign = np.abs(rows.truth) > np.maximum(KNOWN_SIGN * np.sqrt(rows.noise), IS_ZERO)
    if not has_sign.any():
        return float("nan")
    return float(np.mean((1 + np.sign(rows.credit[has_sign]) * np.sign(rows.truth[has_sign])) / 2))


def _correlate_ranks(rows: _JudgedSteps) -> float:
    """Pearson's correlation of ranks, equal values sharing their mean rank; 0 where one side does not vary."""
    first, second = (_rank(values) for values in (rows.credit, rows.truth))
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size > 0 else 0.0


def _rank(values: FloatArray) -> FloatArray:
    """Ranks less their mean."""
    _, place, num = np.unique(np.round(values, RANK_DIGITS), return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(num) - (num - 1) / 2
    ranks = mean_rank[place]
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)


def _with_interval(value: float, left_out: FloatArray, drawn: FloatArray) -> Measured:
    """The interval from the values without each block, and from those at truths that were drawn anew, if any were.

    It is Student's quantile times the jackknife's standard error, to whose square the variance by truths is added.
    """
    num = len(left_out)
    if num < MIN_BLOCKS:
        return Measured(value, float("nan"), float("nan"))
    square = (num - 1) / num * float(((left_out - left_out.mean()) ** 2).sum())
    if len(drawn):
        square += float(drawn.var(ddof=1))
    half = T_QUANTILES[num - MIN_BLOCKS] * float(np.sqrt(square))
    return Measured(value, value - half, value + half)
