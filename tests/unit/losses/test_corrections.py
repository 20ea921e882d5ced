"""Corrections: weights for the gap d = logp_old - logp_behaviour between learner and engine."""

from __future__ import annotations

import math

import pytest
from torch import Tensor

from groupwise.losses import Mask, OffPolicyMask, PolicyLoss, Reject, TokenColumns, Truncate
from groupwise.parts.part import Part
from tests.unit.losses.token_rows import columns, gradient, number, totals

GAPS = (0.1, 1.2, -0.9)
"""The gaps of numbers, Corrections: ratios 1.105171, 3.320117, 0.406570; product 1.491825; geometric mean 1.142631."""


def make_gaps(*gaps: float, **others: list[int]) -> TokenColumns:
    return columns([-1.0] * len(gaps), behaviour=[-1.0 - gap for gap in gaps], **others)


def round_weights(weights_T: Tensor) -> list[float]:
    return [round(weight, 6) for weight in weights_T.tolist()]


def test_token_weights_are_truncated() -> None:
    assert round_weights(Truncate(high=2.0)(make_gaps(*GAPS))) == [1.105171, 2.0, 0.406570]


def test_token_weights_outside_the_bounds_are_masked() -> None:
    assert round_weights(Mask(low=0.5, high=2.0)(make_gaps(*GAPS))) == [1.105171, 0.0, 0.0]


def test_a_step_has_the_product_of_its_tokens_weights() -> None:
    assert round_weights(Truncate(unit="step", high=2.0)(make_gaps(*GAPS))) == [1.491825] * 3
    assert round_weights(Truncate(unit="step", high=1.3)(make_gaps(*GAPS))) == [1.3] * 3
    assert round_weights(Mask(unit="step", low=0.5, high=1.4)(make_gaps(*GAPS))) == [0.0] * 3
    assert round_weights(Mask(unit="step")(make_gaps(*GAPS))) == [1.491825] * 3


def test_a_trajectory_has_the_product_over_all_its_steps() -> None:
    tokens = make_gaps(*GAPS, step=[0, 1, 1], trajectory=[0, 0, 0])
    assert round_weights(Truncate(unit="trajectory", high=2.0)(tokens)) == [1.491825] * 3
    assert round_weights(Truncate(unit="step", high=2.0)(tokens)) == [1.105171, 1.349859, 1.349859]


def test_rejection_goes_by_the_geometric_mean_and_keeps_weight_1() -> None:
    """exp(mean of the gaps) = 1.142631."""
    assert Reject(low=0.5, high=1.2)(make_gaps(*GAPS)).tolist() == [1.0] * 3
    assert Reject(low=0.5, high=1.14)(make_gaps(*GAPS)).tolist() == [0.0] * 3
    assert Reject(low=1.15, high=2.0)(make_gaps(*GAPS)).tolist() == [0.0] * 3
    apart = make_gaps(*GAPS, step=[0, 1, 1], trajectory=[0, 0, 0])
    assert Reject(low=0.9, high=1.12)(apart).tolist() == [1.0, 0.0, 0.0]
    assert Reject()(apart).dtype == apart.logp.dtype, "weights are numbers like those they weigh"


def test_a_weight_on_the_bound_is_kept() -> None:
    even = make_gaps(0.0)
    assert Mask(low=1.0, high=1.0)(even).tolist() == [1.0]
    assert Reject(low=1.0, high=1.0)(even).tolist() == [1.0]


def test_log_weights_are_clamped_at_20() -> None:
    assert Truncate(high=math.inf)(make_gaps(50.0, -50.0)).log().tolist() == pytest.approx([20.0, -20.0])


def test_blamed_steps_that_have_drifted_are_dropped() -> None:
    """Mean drop of logp below logp_behaviour: 0.6 in the first step, 0.4 in the second."""
    tokens = columns(
        [-1.5, -1.7, -1.4, -1.4],
        behaviour=[-1.0] * 4,
        advantage=[-1.0, 1.0, -1.0, 1.0],
        sample=[0, 0, 1, 1],
    )
    assert OffPolicyMask()(tokens).tolist() == [0.0, 1.0, 1.0, 1.0]
    assert OffPolicyMask(max_drop=0.7)(tokens).tolist() == [1.0] * 4
    assert OffPolicyMask(unit="trajectory", max_drop=0.45)(tokens).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_only_blamed_tokens_are_dropped_and_only_beyond_the_largest_drop() -> None:
    """Drops of 1 and of exactly 1/2, where 1/2 is allowed; credit 0 is no blame, and neither is 1/2."""
    tokens = columns([-2.0] * 3 + [-1.5], behaviour=[-1.0] * 4, advantage=[-1.0, 0.0, 0.5, -1.0], sample=range(4))
    assert OffPolicyMask(max_drop=0.5)(tokens).tolist() == [0.0, 1.0, 1.0, 1.0]


def test_the_weights_of_several_corrections_multiply() -> None:
    """Weights 4, 2 and 1 (gaps log 4, log 2, 0).

    Capped at 2 they are 2, 2, 1; masked beyond 2.5 they are 0, 2, 1; together 0, 4, 1. The loss is minus their mean. A
    mask beyond 1.5 leaves 0, 0, 1.
    """
    tokens = make_gaps(math.log(4), math.log(2), 0.0)
    result = PolicyLoss(corrections=(Truncate(high=2.0), Mask(high=2.5)))(tokens, totals(3))
    assert number(result.loss) == pytest.approx(-5 / 3)
    assert result.metrics["loss/correction"].mean == pytest.approx(5 / 3)
    assert result.metrics["loss/rejected"].mean == pytest.approx(1 / 3)
    third = PolicyLoss(corrections=(Truncate(high=2.0), Mask(high=2.5), Mask(high=1.5)))(tokens, totals(3))
    assert third.metrics["loss/correction"].mean == pytest.approx(1 / 3)
    assert third.metrics["loss/rejected"].mean == pytest.approx(2 / 3)


def test_weights_scale_the_gradient_and_carry_none() -> None:
    """Weights 2 and 1 (log 2 truncated at 3, and 0): loss -(2 + 1) / 2, slopes -2 / 2 and -1 / 2."""
    tokens = make_gaps(math.log(2), 0.0)
    result = PolicyLoss(corrections=(Truncate(high=3.0),))(tokens, totals(2))
    assert number(result.loss) == pytest.approx(-1.5)
    assert gradient(result.loss, tokens.logp) == pytest.approx([-1.0, -0.5])
    assert result.metrics["loss/correction"].mean == pytest.approx(1.5)
    assert result.metrics["loss/rejected"].mean == 0.0


class Leaky(Part, slot="correction"):
    """A weight that hangs on the current policy, from a package that is not ours."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        return 2 * (columns.logp - columns.logp.detach()).exp()


def test_no_gradient_runs_through_a_weight_not_even_through_one_from_elsewhere() -> None:
    tokens = make_gaps(0.0)
    result = PolicyLoss(corrections=(Leaky(),))(tokens, totals(1))
    assert gradient(result.loss, tokens.logp) == [-2.0]
    assert PolicyLoss(corrections=(Leaky(),)).needs == PolicyLoss().needs


def test_a_dropped_token_still_counts_in_the_denominator() -> None:
    tokens = make_gaps(5.0, 0.0)
    result = PolicyLoss(corrections=(Mask(),))(tokens, totals(2))
    assert number(result.loss) == pytest.approx(-0.5)
    assert gradient(result.loss, tokens.logp) == pytest.approx([0.0, -0.5])
    assert result.metrics["loss/rejected"].mean == 0.5


def test_no_correction_is_made_unless_asked_for() -> None:
    assert PolicyLoss().corrections == ()
    tokens = make_gaps(5.0, 0.0)
    assert gradient(PolicyLoss()(tokens, totals(2)).loss, tokens.logp) == pytest.approx([-0.5, -0.5])
