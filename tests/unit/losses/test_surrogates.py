"""Surrogates, by value and by gradient with respect to the ratio."""

from __future__ import annotations

import math

import pytest

from groupwise import ConfigError
from groupwise.losses import Clip, Plain, SequenceRatio, TokenRatio
from groupwise.losses.slots import Surrogate, TokenLoss
from groupwise.methods.cispo import Cispo
from groupwise.methods.sapo import Sapo
from tests.unit.losses.token_rows import columns, from_ratios, gradient, number, numbers

SPEC_CLIP = Clip(low=0.2, high=0.28, dual=3.0)


def of_ratio(surrogate: Surrogate, ratio: float, advantage: float) -> tuple[float, float]:
    """Loss of one token at a ratio, and its slope in the ratio."""
    ratio_T = numbers([ratio]).requires_grad_()
    loss_T = surrogate(ratio_T, columns([-1.0], advantage=advantage)).loss
    return number(loss_T), gradient(loss_T, ratio_T)[0]


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [(1, 1.5, -1.28, 0), (1, 0.5, -0.5, -1), (-1, 0.5, 0.8, 0), (-1, 1.5, 1.5, 1), (-1, 5, 3.0, 0)],
)
def test_the_clip_vectors_that_were_worked_by_hand(advantage: float, ratio: float, loss: float, slope: float) -> None:
    """numbers, GRPO: clip 0.2 / 0.28 with dual clip 3."""
    assert of_ratio(SPEC_CLIP, ratio, advantage) == pytest.approx((loss, slope), abs=1e-12)


@pytest.mark.parametrize(
    ("advantage", "ratio", "slope"), [(1, 1.2, -1), (-1, 0.8, 1), (1, 1.0, -1), (-2, 1.0, 2), (-1, 5.0, 1), (0, 5.0, 0)]
)
def test_on_the_bounds_a_token_still_teaches(advantage: float, ratio: float, slope: float) -> None:
    for dual in (None, 5.0):
        assert of_ratio(Clip(low=0.2, high=0.2, dual=dual), ratio, advantage) == pytest.approx(
            (-advantage * ratio, slope)
        )


def test_clip_counts_where_each_bound_acted() -> None:
    """Ratios 1.5, 0.5, 0.5, 1.5, 5, 1: above the bound with praise, below it with blame, beyond the dual bound."""
    tokens = from_ratios([1.5, 0.5, 0.5, 1.5, 5.0, 1.0], [1, 1, -1, -1, -1, -1])
    outcome = SPEC_CLIP(TokenRatio()(tokens), tokens)
    assert {name: hit_T.tolist() for name, hit_T in outcome.clipped.items()} == {
        "high": [True, False, False, False, False, False],
        "low": [False, False, True, False, False, False],
        "dual": [False, False, False, False, True, False],
    }
    assert set(Clip()(TokenRatio()(tokens), tokens).clipped) == {"high", "low"}


def test_a_ratio_on_a_bound_is_inside_and_a_token_without_credit_is_never_clipped() -> None:
    """Bounds 1/2, 3/2 and 2: praise on the upper one, blame on the lower and the dual one, and no credit beyond all."""
    tokens = columns([-1.0] * 5, advantage=[1.0, -1.0, -1.0, 0.0, 0.0])
    clipped = Clip(low=0.5, high=0.5, dual=2.0)(numbers([1.5, 0.5, 2.0, 0.25, 4.0]), tokens).clipped
    assert {name: hit_T.tolist() for name, hit_T in clipped.items()} == {
        name: [False] * 5 for name in ("high", "low", "dual")
    }


@pytest.mark.parametrize("advantage", [0.25, 1.0, 4.0])
def test_the_dual_bound_leaves_praise_alone(advantage: float) -> None:
    assert of_ratio(SPEC_CLIP, 5.0, advantage) == pytest.approx((-1.28 * advantage, 0.0))
    assert of_ratio(SPEC_CLIP, 0.5, advantage) == pytest.approx((-0.5 * advantage, -advantage))


def test_gspo_as_worked_by_hand() -> None:
    """numbers, GSPO: s = 0.951229; A = 1 is not clipped, A = -1 is clipped at 1 - 3e-4 and has no gradient."""
    surrogate = Clip(low=3e-4, high=4e-4)
    for advantage, loss, slope in ((1.0, -0.951229, -0.951229), (-1.0, 0.999700, 0.0)):
        tokens = columns([0.1, -0.3, 0.05], old=[0.0] * 3, advantage=advantage)
        loss_T = surrogate(SequenceRatio()(tokens), tokens).loss
        assert loss_T.tolist() == pytest.approx([loss] * 3, abs=1e-6)
        assert gradient(loss_T, tokens.logp) == pytest.approx([slope] * 3, abs=1e-6)


def cispo(advantage: float, cap: float = 5.0) -> tuple[TokenLoss, float]:
    tokens = columns([-0.7], old=[-2.5], advantage=advantage)
    outcome = Cispo(cap=cap)(TokenRatio()(tokens), tokens)
    return outcome, gradient(outcome.loss, tokens.logp)[0]


def test_the_cispo_vector_that_was_worked_by_hand() -> None:
    """numbers, CISPO: rho = exp(1.8) = 6.049647 is capped at 5; loss 5 x 0.5 x 0.7, slope -5 x 0.5."""
    outcome, slope = cispo(0.5)
    assert number(outcome.loss) == pytest.approx(1.75)
    assert slope == pytest.approx(-2.5)
    assert outcome.clipped["high"].tolist() == [True]


def test_below_its_cap_cispo_weighs_by_the_ratio_and_has_no_floor() -> None:
    outcome, slope = cispo(-1.0, cap=7.0)
    assert slope == pytest.approx(6.049647, abs=1e-6)
    assert outcome.clipped["high"].tolist() == [False]
    at_cap = columns([-1.0])
    assert Cispo(cap=5.0)(numbers([5.0]), at_cap).clipped["high"].tolist() == [False], "the cap itself is inside"
    tiny = columns([-9.0], old=[-1.0])
    loss_T = Cispo()(TokenRatio()(tiny), tiny).loss
    assert gradient(loss_T, tiny.logp) == pytest.approx([-math.exp(-8)])


@pytest.mark.parametrize(
    ("ratio", "advantage", "gate", "weight"),
    [(1.0, 1, 2.0, 1.0), (1.5, 1, 2.489837, 0.940015), (3.0, 1, 3.523188, 0.419974), (0.5, -1, 1.415938, 0.934140)],
)
def test_the_sapo_vectors_that_were_worked_by_hand(ratio: float, advantage: int, gate: float, weight: float) -> None:
    """numbers, SAPO: tau 1 for praise and 1.05 for blame."""
    assert of_ratio(Sapo(), ratio, advantage) == pytest.approx((-advantage * gate, -advantage * weight), abs=1e-6)


def test_sapo_gives_nothing_to_a_token_without_credit() -> None:
    assert of_ratio(Sapo(), 3.0, 0.0) == (0.0, 0.0)


def test_plain_is_minus_the_weighted_credit_whatever_the_ratio() -> None:
    assert of_ratio(Plain(), 7.0, 2.0) == (-14.0, -2.0)
    assert of_ratio(Plain(), 0.01, -2.0) == pytest.approx((0.02, 2.0))


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        (Clip, {"low": -0.1}, "Clip: low: expected a number greater than or equal to 0, found -0.1"),
        (Clip, {"dual": 1.0}, "Clip: dual: expected a number greater than 1, found 1.0"),
        (Cispo, {"cap": 0.0}, "Cispo: cap: expected a number greater than 0, found 0.0"),
        (Sapo, {"tau_negative": 0.0}, "Sapo: tau_negative: expected a number greater than 0, found 0.0"),
        (Clip, {"hihg": 0.2}, "Clip: hihg: unknown setting; did you mean 'high'? Valid: dual, high, low"),
    ],
)
def test_a_bound_that_cannot_be_meant_is_refused(part: type[Clip], fields: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        part(**fields)
    assert str(caught.value) == message
