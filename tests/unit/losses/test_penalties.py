"""Penalties: KL estimators by value and by gradient, and the entropy bonus."""

from __future__ import annotations

import math

import pytest

from groupwise import ConfigError
from groupwise.losses import EntropyBonus, Kl
from groupwise.methods import opmd
from tests.unit.losses.token_rows import columns, gradient, number, totals


def of_gap(penalty: Kl, d: float, log_ratio: float = 0.0) -> tuple[float, float]:
    """Value and slope at logp_ref - logp = d."""
    tokens = columns([-1.0], ref=[-1.0 + d], old=[-1.0 - log_ratio])
    value_T = penalty(tokens)
    return number(value_T), gradient(value_T, tokens.logp)[0]


@pytest.mark.parametrize(
    ("estimator", "d", "value", "slope"),
    [
        ("k1", 0.2, -0.2, 1.0),
        ("k2", 0.2, 0.02, -0.2),
        ("k3", 0.2, 0.021403, -0.221403),
        ("k1", -0.2, 0.2, 1.0),
        ("k2", -0.2, 0.02, 0.2),
        ("k3", -0.2, 0.018731, 0.181269),
    ],
)
def test_the_kl_vectors_that_were_worked_by_hand(estimator: str, d: float, value: float, slope: float) -> None:
    """numbers, KL."""
    assert of_gap(Kl(estimator=estimator), d) == pytest.approx((value, slope), abs=1e-6)


@pytest.mark.parametrize(("estimator", "value"), [("k1", -0.2), ("k2", 0.02), ("k3", 0.021403)])
def test_straight_through_has_the_value_of_the_estimator_and_the_slope_of_k2(estimator: str, value: float) -> None:
    value_and_slope = of_gap(Kl(estimator=estimator, gradient="straight_through"), 0.2)
    assert value_and_slope == pytest.approx((value, -0.2), abs=1e-6)


def test_the_unbiased_form_multiplies_by_the_ratio_and_differentiates_both() -> None:
    """rho = 2: value 2 x 0.021403, slope 2 x 0.021403 - 2 x 0.221403 = -0.4."""
    value_and_slope = of_gap(Kl(gradient="unbiased"), 0.2, log_ratio=math.log(2))
    assert value_and_slope == pytest.approx((0.042806, -0.4), abs=1e-5)


@pytest.mark.parametrize(("log_ratio", "clamped"), [(25.0, 20.0), (-25.0, -20.0)])
def test_the_ratio_of_the_unbiased_form_is_clamped_on_both_sides(log_ratio: float, clamped: float) -> None:
    """k1 at d = 0.5 is -0.5; its slope is 1, and the ratio beyond its bound has none."""
    value, slope = of_gap(Kl(estimator="k1", gradient="unbiased"), 0.5, log_ratio=log_ratio)
    assert (value, slope) == pytest.approx((-0.5 * math.exp(clamped), math.exp(clamped)))


def test_k3_is_capped_where_it_passes_10_and_then_has_no_gradient() -> None:
    """exp(2.6) - 3.6 = 9.86 is inside, exp(2.7) - 3.7 = 11.18 is not."""
    assert of_gap(Kl(), 2.6) == pytest.approx((math.exp(2.6) - 3.6, 1 - math.exp(2.6)))
    assert of_gap(Kl(), 2.7) == (10.0, 0.0)
    assert of_gap(Kl(cap=math.inf), 2.7) == pytest.approx((math.exp(2.7) - 3.7, 1 - math.exp(2.7)))


def test_the_log_ratio_is_clamped_at_20() -> None:
    assert of_gap(Kl(estimator="k1"), -25.0) == (20.0, 0.0)
    assert of_gap(Kl(estimator="k2"), 25.0) == (200.0, 0.0)
    assert of_gap(Kl(estimator="k1", clamp=1.0), -25.0) == (1.0, 0.0)


def test_k3_keeps_its_digits_where_the_policies_almost_agree() -> None:
    """d = 1e-9: d^2 / 2 = 5e-19, which exp(d) - d - 1 would lose."""
    assert of_gap(Kl(), 1e-9)[0] == pytest.approx(5e-19, rel=1e-6, abs=1e-24)


def test_the_entropy_bonus_pays_for_entropy() -> None:
    tokens = columns([-1.0, -2.0], entropy=[0.5, 1.5])
    value_T = EntropyBonus()(tokens)
    assert value_T.tolist() == [-0.5, -1.5]
    assert tokens.entropy is not None
    assert gradient(value_T, tokens.entropy) == [-1.0, -1.0]


@pytest.mark.parametrize("part", [Kl, EntropyBonus])
def test_a_negative_weight_is_refused(part: type[Kl]) -> None:
    with pytest.raises(ConfigError) as caught:
        part(weight=-0.1)
    assert str(caught.value) == f"{part.__name__}: weight: expected a number greater than or equal to 0, found -0.1"


def test_what_a_token_costs_under_opmd() -> None:
    """A 0.75, logp -0.4, old -0.6, tau 0.1: loss 0.3 + 0.1 x 0.04 = 0.304, slope -0.75 + 0.2 x 0.2 = -0.71."""
    tokens = columns([-0.4], old=[-0.6], advantage=0.75)
    loss = opmd(tau=0.1).loss
    assert loss is not None
    value = loss(tokens, totals(1)).loss
    assert number(value) == pytest.approx(0.304, abs=1e-12)
    assert gradient(value, tokens.logp) == pytest.approx([-0.71], abs=1e-12)
