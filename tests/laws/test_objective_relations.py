"""Relations between objectives: where two losses must agree, in value or in gradient."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise import recipes
from groupwise.losses import Clip, ElasticClip, Plain, PolicyLoss, Rec, Reinforce, SequenceRatio, TokenRatio
from tests.laws.calls import table_of, values
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.strategies import Row, step_rows

drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))
WIDTHS = st.floats(0, 1.5)


@given(tokens=drawn_updates)
def test_opmd_without_tau_is_reinforce_to_the_bit(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    held = recipes.opmd(tau=0.0)
    assert run(held.loss, columns, totals) == run(recipes.asymre(shift=0.0).loss, columns, totals)
    by_hand = [-token.advantage / max(totals.tokens, 1) if token.trains else 0.0 for token in tokens]
    assert run(held.loss, columns, totals).by_logp == pytest.approx(by_hand, abs=1e-12)


@given(rows=step_rows())
def test_without_their_constants_the_credits_are_that_of_dr_grpo(rows: list[Row]) -> None:
    plain = values(rows, "dr_grpo")
    assert np.array_equal(values(rows, "rec"), plain)
    assert np.array_equal(values(rows, "opmd"), plain)
    assert np.array_equal(values(rows, "asymre", shift=0.0), plain)
    np.testing.assert_allclose(values(rows, "red_weight", temperature=1e12), plain, rtol=1e-9, atol=0)
    soft = values(rows, "opmd", baseline="log_mean_exp", temperature=1e9)
    np.testing.assert_allclose(soft, plain, atol=1e-5)


@given(rows=step_rows(), shift=st.floats(-2, 2))
def test_a_shift_of_the_baseline_is_a_pull_towards_what_was_sampled(rows: list[Row], shift: float) -> None:
    """A + shift in -A logp: the same as -shift logp on every token that was compared."""
    compared = np.asarray(recipes.asymre(shift=shift).advantage(table_of(rows)).compared)
    np.testing.assert_allclose(
        values(rows, "asymre", shift=shift), values(rows, "dr_grpo") + shift * compared, rtol=1e-12, atol=1e-12
    )


@given(tokens=drawn_updates, low=WIDTHS, high=WIDTHS)
def test_rec_on_one_side_has_the_gradient_of_clip(tokens: list[Token], low: float, high: float) -> None:
    """On the same credit. A ratio beyond e^20 is out: there the clamped ratio of `Clip` has no gradient at all."""
    near = [dataclasses.replace(t, old=t.logp) if abs(t.logp - t.old) > 19 else t for t in tokens]
    columns, totals = columns_of(near), totals_of(near)
    clip = run(PolicyLoss(surrogate=Clip(low=low, high=high)), columns, totals)
    one_side = run(PolicyLoss(surrogate=Rec(low=low, high=high)), columns, totals)
    assert one_side.by_logp == pytest.approx(clip.by_logp, rel=1e-12, abs=1e-12)


@given(tokens=drawn_updates, ratio=st.sampled_from([TokenRatio(), SequenceRatio()]), low=WIDTHS, high=WIDTHS)
def test_regions_become_one_another_at_their_bounds(
    tokens: list[Token], ratio: TokenRatio, low: float, high: float
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)

    def of(surrogate: Rec | Reinforce) -> object:
        return run(PolicyLoss(ratio=ratio, surrogate=surrogate), columns, totals)

    assert of(Rec(region="two_side", weighted=False, low=1.0, high=1e300)) == of(Reinforce())
    without_far = Rec(region="ring", weighted=False, low=low, high=high, far_low=1e9, far_high=1e300)
    assert of(without_far) == of(Rec(region="two_side", weighted=False, low=low, high=high))


def test_what_a_pair_of_numbers_costs_under_opmd() -> None:
    """A 0.75, logp -0.4, old -0.6, tau 0.1: loss 0.3 + 0.1 x 0.04 = 0.304, slope -0.75 + 0.2 x 0.2 = -0.71."""
    token = Token(-0.4, -0.6, -0.6, 0.0, 0.0, 0.75, True, 0, 0, 0)
    result = run(recipes.opmd(tau=0.1).loss, columns_of([token], torch.float64), totals_of([token]))
    assert result.loss == pytest.approx(0.304, abs=1e-12)
    assert result.by_logp == pytest.approx([-0.71], abs=1e-12)


@given(tokens=drawn_updates)
def test_r2vpo_without_a_multiplier_is_the_plain_surrogate(tokens: list[Token]) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    nothing = dataclasses.replace(columns, named={"ratio_multiplier": torch.zeros(len(tokens), dtype=torch.float64)})
    held, plain = recipes.r2vpo(first=0.0).loss, PolicyLoss(surrogate=Plain())
    assert held is not None
    assert run(held, nothing, totals) == run(plain, columns, totals)  # type: ignore[arg-type]


@given(tokens=drawn_updates, spread=st.floats(0, 1))
def test_an_elastic_clip_that_is_stiff_is_the_clip_to_the_bit(tokens: list[Token], spread: float) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    mixed = torch.full((len(tokens),), spread, dtype=torch.float64)
    stiff = PolicyLoss(surrogate=ElasticClip(by_credit=0.0, by_spread=0.0))
    with_channel = dataclasses.replace(columns, channels={"spread": mixed})
    assert run(stiff, with_channel, totals) == run(PolicyLoss(), columns, totals)
