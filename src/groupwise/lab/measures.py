"""How far advantages are from the true ones: error, bias, noise, signs and ranks, each with an interval.

Methods have different units: GRPO divides by a standard deviation, GiGPO adds two terms. So each is first multiplied
by its best scale c, one number per recording that minimises the mean of (c * credit - truth)^2. Errors are fractions
of the mean square of the truth: advantages of 0 have error 1, the truth times a constant has error 0.

    error = mean (c * credit - truth)^2 / mean truth^2

Bias and noise are measured at decision points: steps of one task, step number, situation and action have one truth.
m is the mean of a method's advantage at a point over repeatedly drawn groups, v the mean variance around it, and b the
best scale of m:

    bias = mean (b * m - truth)^2 / mean truth^2        the error with infinitely many groups
    noise = b^2 * v / mean truth^2                      the variance, in the same units
    error = 1 - (1 - bias)^2 / (1 - bias + noise)       both together, at the best scale

A baseline is one number for all actions of a situation. It does not change the expected gradient, but it counts as
bias here, because the truth has mean 0 in each situation. A third number removes it, with its own best scale:

    misdirection = mean (d * (m - mean of m in the situation) - truth)^2 / mean truth^2

Advantages that are right up to a constant and a baseline, such as RLOO's, have misdirection 0.

Squares of means are computed from products of different, independent updates, because the square of a mean contains
the variance of that mean. So bias and misdirection can be slightly negative. If the truth is an estimate, the square
of its standard error is subtracted, and redrawn truths widen the intervals. Ranks cannot be corrected: those of an
estimated truth correlate less than those of the exact truth.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.lab.recording import Recording
from groupwise.system.errors import RecordError

NUM_BLOCKS = 20
"""Number of blocks of updates for the jackknife."""
T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)
"""95 % quantiles of Student's t with 1, 2, ... degrees of freedom (the number of blocks minus 1)."""
MIN_BLOCKS = 2
"""Fewer blocks have no variance."""
NUM_DRAWS = 40
"""How often an estimated truth is redrawn for the intervals."""
IS_ZERO = 1e-9
"""Truths closer to 0 have no sign. A recording whose truth is smaller on average has none."""
RANK_DIGITS = 12
"""Values are rounded to this many digits before ranking: sums in another order differ in later digits."""
KNOWN_SIGN = 2.0
"""The sign of a truth is known if it is this many standard errors away from 0."""


@dataclass(frozen=True)
class Measured:
    """A number and its 95 % interval (jackknife over blocks of updates); the interval is NaN if data are too few."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CreditError:
    """How far a method's advantages are from the truth."""

    error: Measured
    """Mean squared error at the best scale, as a fraction of the truth's mean square."""
    bias: Measured
    """The error with infinitely many groups, at the best scale of their mean."""
    misdirection: Measured
    """The bias without each situation's best baseline. Only this part changes the expected gradient."""
    noise: Measured
    """The variance of the advantage around its mean at each decision point, at that scale."""
    covered: float
    """Fraction of steps whose decision point is in two or more updates. Bias and noise are computed from them."""
    scale: Measured
    """The best scale; 0 if the advantages have no information or the opposite sign fits better."""
    raw_error: Measured
    """Mean squared error without a scale, as a fraction of the truth's mean square."""
    sign: Measured
    """Fraction of steps whose advantage has the truth's sign. An advantage of 0 counts as half."""
    rank: Measured
    """Spearman's rank correlation with the truth over all steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _JudgedSteps:
    """The steps whose truth is known."""

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
        """Mean square of the truth, minus its own error."""
        return float(np.mean(self.truth**2 - self.noise))

    @property
    def has_truth(self) -> bool:
        return self.truth.size > 0 and self.truth_square > IS_ZERO**2


def measure_credit(credit: FloatArray, recording: Recording) -> CreditError:
    """Compare advantages with the truth of a recording, over the steps whose truth is known."""
    rows = _JudgedSteps(
        credit=credit,
        truth=recording.truth,
        noise=recording.truth_error**2,
        point=recording.point,
        situation=recording.situation,
        update=recording.update,
    ).select(recording.is_known)
    if not rows.has_truth:
        raise RecordError(
            "no true advantage in this recording differs significantly from 0, so there is nothing to compare with; "
            "use more continuations, or a policy that sometimes fails and sometimes succeeds"
        )
    blocks = (rows.update * NUM_BLOCKS) // (int(rows.update.max()) + 1)
    whole = _measure_rows(rows)
    left_out = [_measure_rows(rows.select(blocks != block)) for block in np.unique(blocks)]
    drawn = []
    if rows.noise.any():  # measure again with truths that are redrawn from their standard errors
        _, first, place = np.unique(rows.point, return_index=True, return_inverse=True)
        error, generator = np.sqrt(rows.noise[first]), np.random.default_rng(0)
        for _ in range(NUM_DRAWS):
            off = (error * generator.standard_normal(len(error)))[place]
            drawn.append(_measure_rows(replace(rows, truth=rows.truth + off, noise=2 * rows.noise)))
    intervals = {
        name: _with_interval(whole[name], *(np.array([part[name] for part in parts]) for parts in (left_out, drawn)))
        for name in whole
    }
    covered = intervals.pop("covered").value
    return CreditError(covered=covered, **intervals)


def _measure_rows(rows: _JudgedSteps) -> dict[str, float]:
    """All numbers of some rows, by the names of `CreditError`'s fields."""
    size = float(rows.credit @ rows.credit)
    # The c >= 0 with the smallest mean of (c * credit - truth)^2.
    scale = max(float(rows.credit @ rows.truth) / size, 0.0) if size > 0 else 0.0
    return {
        "error": _measure_error(rows, scale),
        **_split_error(rows),
        "scale": scale,
        "raw_error": _measure_error(rows, 1.0),
        "sign": _agree_in_sign(rows),
        "rank": _correlate_ranks(rows),
    }


def _measure_error(rows: _JudgedSteps, scale: float) -> float:
    """Mean squared error at a scale, as a fraction of the truth's mean square; NaN if there is no truth."""
    if not rows.has_truth:
        return float("nan")
    return float(np.mean((scale * rows.credit - rows.truth) ** 2 - rows.noise)) / rows.truth_square


def _split_error(rows: _JudgedSteps) -> dict[str, float]:
    """Bias, misdirection and noise, over the steps whose point is in several updates; NaN if there are none."""
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
    """The bias without baselines. `directed` is the mean square of the advantages without them.

    Situations with only one recorded action do not count; NaN if there are no others.
    """
    at_situation = Visits.count(rows.situation, rows.update)
    centred = rows.truth - at_situation.mean_at_place(rows.truth)
    # Square of the standard error of each step's truth minus its situation's mean. A point has a fraction w of that
    # mean: its own error counts with 1 - w, the errors of the other points with their w. The mean over a situation's
    # steps of w * noise is the sum over its points of w^2 * noise.
    at_point = Visits.count(rows.point, rows.update)
    part = at_point.steps[at_point.place] / at_situation.steps[at_situation.place]
    noise = rows.noise * (1 - 2 * part) + at_situation.mean_at_place(part * rows.noise)
    size = float(np.mean(centred**2 - noise))
    if size <= IS_ZERO**2:
        return float("nan")
    common = max(float(np.mean(rows.credit * centred)), 0.0)
    return 1 - (common**2 / (directed * size) if directed > 0 else 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Visits:
    """How often each place (a situation or decision point) occurs, by update. A cell is a place in one update."""

    place: IntArray
    """Place of each step (N), numbered from 0."""
    cell: IntArray
    """Cell of each step (N)."""
    place_of_cell: IntArray
    steps: FloatArray
    pairs: FloatArray
    """Ordered pairs of steps at each place that are from different updates."""

    @classmethod
    def count(cls, place: IntArray, update: IntArray) -> Visits:
        codes = np.unique(place, return_inverse=True)[1]
        width = int(update.max()) + 1
        cells, cell = np.unique(codes * width + update, return_inverse=True)
        num, of_cell = np.bincount(cell).astype(np.float64), cells // width
        steps = np.bincount(of_cell, weights=num).astype(np.float64)
        pairs = steps**2 - np.bincount(of_cell, weights=num**2)
        return cls(place=codes, cell=cell, place_of_cell=of_cell, steps=steps, pairs=pairs)

    @property
    def has_pairs(self) -> BoolArray:
        """Whether the place of each step is also in another update (N)."""
        return np.asarray(self.pairs[self.place] > 0)

    def mean_of_products(self, values: FloatArray) -> float:
        """The mean over steps of the squared mean of values at their place, from pairs of different updates."""
        total = np.bincount(self.cell, weights=values)
        products = np.bincount(self.place_of_cell, weights=total) ** 2
        products -= np.bincount(self.place_of_cell, weights=total**2)
        paired = self.pairs > 0
        steps = self.steps[paired]
        return float((steps * products[paired] / self.pairs[paired]).sum() / steps.sum())

    def mean_at_place(self, values: FloatArray) -> FloatArray:
        return np.asarray((np.bincount(self.place, weights=values) / self.steps)[self.place])


def _agree_in_sign(rows: _JudgedSteps) -> float:
    has_sign = np.abs(rows.truth) > np.maximum(KNOWN_SIGN * np.sqrt(rows.noise), IS_ZERO)
    if not has_sign.any():
        return float("nan")
    return float(np.mean((1 + np.sign(rows.credit[has_sign]) * np.sign(rows.truth[has_sign])) / 2))


def _correlate_ranks(rows: _JudgedSteps) -> float:
    """Spearman's rank correlation: equal values have their mean rank; 0 if one side is constant."""
    first, second = (_rank(values) for values in (rows.credit, rows.truth))
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size > 0 else 0.0


def _rank(values: FloatArray) -> FloatArray:
    """Ranks minus their mean."""
    _, place, num = np.unique(np.round(values, RANK_DIGITS), return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(num) - (num - 1) / 2
    ranks = mean_rank[place]
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)


def _with_interval(value: float, left_out: FloatArray, drawn: FloatArray) -> Measured:
    """Student's t interval: the square of its standard error is that of the jackknife plus the variance of `drawn`."""
    num = len(left_out)
    if num < MIN_BLOCKS:
        return Measured(value, float("nan"), float("nan"))
    square = (num - 1) / num * float(((left_out - left_out.mean()) ** 2).sum())
    if len(drawn):
        square += float(drawn.var(ddof=1))
    half = T_QUANTILES[num - MIN_BLOCKS] * float(np.sqrt(square))
    return Measured(value, value - half, value + half)
