"""What holds of statistics over seeds, whatever the scores are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.evaluation.over_seeds import (
    Estimate,
    estimate_improvement,
    estimate_interquartile_mean,
    estimate_mean,
)

Scores = npt.NDArray[np.float64]
RESAMPLES = 400


@st.composite
def scores(draw: st.DrawFn, *, strata: int | None = None) -> Scores:
    """A matrix of a few runs and strata, with ties."""
    columns = draw(st.integers(1, 3)) if strata is None else strata
    value = st.integers(0, 20).map(lambda part: part / 20)
    rows = draw(st.lists(st.lists(value, min_size=columns, max_size=columns), min_size=1, max_size=7))
    return np.array(rows)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Scores, Scores]:
    strata = draw(st.integers(1, 3))
    return draw(scores(strata=strata)), draw(scores(strata=strata))


@given(scores(), st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_no_bit(matrix: Scores, random: st.DataObject) -> None:
    order = list(range(len(matrix)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for estimate in (estimate_interquartile_mean, estimate_mean):
        assert estimate(matrix, resamples=RESAMPLES) == estimate(matrix[order], resamples=RESAMPLES)
    half = matrix / 2
    assert estimate_improvement(matrix, half, resamples=RESAMPLES) == estimate_improvement(
        matrix[order], half[order], resamples=RESAMPLES
    )


@given(scores())
def test_the_interquartile_mean_lies_between_the_middle_scores(matrix: Scores) -> None:
    """The trimmed mean by hand: a quarter of the scores, rounded down, goes at either end."""
    flat = sorted(matrix.ravel().tolist())
    cut = len(flat) // 4
    middle = flat[cut : len(flat) - cut]
    estimate = estimate_interquartile_mean(matrix, resamples=RESAMPLES)
    assert np.isclose(estimate.value, sum(middle) / len(middle), atol=1e-12)
    assert flat[0] - 1e-12 <= estimate.low <= estimate.high <= flat[-1] + 1e-12


@given(scores())
def test_an_variant_is_no_better_than_itself(matrix: Scores) -> None:
    estimate = estimate_improvement(matrix, matrix, resamples=RESAMPLES)
    assert estimate.value == 0.5
    assert estimate.low <= 0.5 <= estimate.high


@given(pairs())
def test_what_one_variant_gains_the_other_loses(both: tuple[Scores, Scores]) -> None:
    first, second = both
    there = estimate_improvement(first, second, resamples=RESAMPLES)
    back = estimate_improvement(second, first, resamples=RESAMPLES)
    assert np.isclose(there.value + back.value, 1.0, atol=1e-12)
    wins = [
        np.mean([[(x > y) + (x == y) / 2 for y in second[:, column]] for x in first[:, column]])
        for column in range(first.shape[1])
    ]
    assert np.isclose(there.value, np.mean(wins), atol=1e-12)
    assert 0 <= there.low <= there.high <= 1


@given(scores(), st.integers(-3, 3), st.integers(1, 4))
def test_shift_and_scale_pass_through(matrix: Scores, shift: int, scale: int) -> None:
    plain = estimate_interquartile_mean(matrix, resamples=RESAMPLES)
    moved = estimate_interquartile_mean(matrix * scale + shift, resamples=RESAMPLES)
    expected = Estimate(
        value=plain.value * scale + shift, low=plain.low * scale + shift, high=plain.high * scale + shift
    )
    assert np.allclose(
        (moved.value, moved.low, moved.high), (expected.value, expected.low, expected.high), atol=1e-9, rtol=0
    )
