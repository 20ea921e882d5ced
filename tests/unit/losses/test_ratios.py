"""Ratios, by value and by gradient."""

from __future__ import annotations

import math

import pytest

from groupwise import ConfigError, RecordError
from groupwise.losses import SequenceRatio, TokenRatio
from tests.unit.losses.token_rows import columns, gradient


def test_a_token_ratio_is_the_exponential_of_the_change_and_its_own_slope() -> None:
    tokens = columns([-1.0, -2.0], old=[-1.5, -2.0])
    ratio_T = TokenRatio()(tokens)
    assert ratio_T.tolist() == pytest.approx([math.exp(0.5), 1.0])
    assert gradient(ratio_T, tokens.logp) == pytest.approx([math.exp(0.5), 1.0])


def test_a_log_ratio_beyond_the_clamp_is_bounded_and_has_no_gradient() -> None:
    tokens = columns([0.0, -50.0, 0.0], old=[-25.0, 0.0, -20.0])
    ratio_T = TokenRatio()(tokens)
    assert ratio_T.tolist() == pytest.approx([math.exp(20), math.exp(-20), math.exp(20)])
    assert gradient(ratio_T, tokens.logp) == pytest.approx([0.0, 0.0, math.exp(20)])
    assert TokenRatio(clamp=1.0)(tokens).tolist() == pytest.approx([math.e, 1 / math.e, math.e])


def test_the_sequence_ratio_that_was_worked_by_hand() -> None:
    """numbers, GSPO: log-ratios 0.1, -0.3, 0.05 have mean -0.05 and s = 0.951229."""
    tokens = columns([0.1, -0.3, 0.05], old=[0.0, 0.0, 0.0])
    ratio_T = SequenceRatio()(tokens)
    assert ratio_T.tolist() == pytest.approx([0.951229] * 3, abs=1e-6)
    # Each token has slope s at its own ratio, so a third of it each in the mean over the answer.
    assert gradient(ratio_T, tokens.logp) == pytest.approx([0.951229] * 3, abs=1e-6)
    assert gradient(ratio_T.mean(), tokens.logp) == pytest.approx([0.951229 / 3] * 3, abs=1e-6)


def test_a_token_moves_its_own_ratio_only() -> None:
    """So that each token is pulled by its own credit: with credits 1 and 0, the second token has no gradient."""
    tokens = columns([0.1, 0.3], old=[0.0, 0.0])
    ratio_T = SequenceRatio()(tokens)
    assert gradient(ratio_T[0], tokens.logp) == pytest.approx([math.exp(0.2), 0.0])


def test_the_product_of_token_ratios() -> None:
    """Sum of log-ratios -0.15: s = 0.860708; averaged over the answer, each token moves it by s."""
    tokens = columns([0.1, -0.3, 0.05], old=[0.0, 0.0, 0.0])
    ratio_T = SequenceRatio(length="sum")(tokens)
    assert ratio_T.tolist() == pytest.approx([0.860708] * 3, abs=1e-6)
    assert gradient(ratio_T.mean(), tokens.logp) == pytest.approx([0.860708] * 3, abs=1e-6)


def test_the_unit_says_whose_tokens_share_a_ratio() -> None:
    """Two steps of one rollout, log-ratios 0.2, 0.4 and 0.9: means 0.3 and 0.9 by step, 0.5 by trajectory."""
    tokens = columns([0.2, 0.4, 0.9], old=[0.0] * 3, step=[0, 0, 1], trajectory=[5, 5, 5], sample=[0, 1, 2])
    assert SequenceRatio()(tokens).log().tolist() == pytest.approx([0.3, 0.3, 0.9])
    assert SequenceRatio(unit="trajectory")(tokens).log().tolist() == pytest.approx([0.5] * 3)


def test_spans_share_a_ratio_within_their_sample_alone() -> None:
    """Rank-GRPO's item: log-ratios 0.1, -0.2, 0.04 have mean -0.02, w = 0.980199; another sample has a span 0 too."""
    tokens = columns([0.1, -0.2, 0.04, 0.3, 0.5], old=[0.0] * 5, sample=[0, 0, 0, 0, 1], span=[0, 0, 0, 7, 0])
    ratio_T = SequenceRatio(unit="span")(tokens)
    assert ratio_T[:3].tolist() == pytest.approx([0.980199] * 3, abs=1e-6)
    assert ratio_T[3:].log().tolist() == pytest.approx([0.3, 0.5])
    assert gradient(ratio_T[0], tokens.logp) == pytest.approx([0.980199, 0, 0, 0, 0], abs=1e-6)


def test_spans_that_were_not_told_are_asked_for() -> None:
    tokens = columns([0.1])
    with pytest.raises(RecordError, match="the loss needs spans, but column 'span' is missing"):
        SequenceRatio(unit="span")(tokens)


def test_a_sequence_ratio_is_clamped_as_a_whole() -> None:
    """Log-ratios 30 and -4 have mean 13: clamped at 10 for both, although the second alone is far below."""
    tokens = columns([30.0, -4.0], old=[0.0, 0.0])
    ratio_T = SequenceRatio()(tokens)
    assert ratio_T.log().tolist() == pytest.approx([10.0, 10.0])
    assert gradient(ratio_T, tokens.logp) == [0.0, 0.0]
    assert SequenceRatio(clamp=20.0)(tokens).log().tolist() == pytest.approx([13.0, 13.0])
    less_likely = columns([-30.0, 4.0], old=[0.0, 0.0])
    assert SequenceRatio()(less_likely).log().tolist() == pytest.approx([-10.0, -10.0])


@pytest.mark.parametrize("part", [TokenRatio, SequenceRatio])
def test_a_clamp_of_zero_is_refused(part: type[TokenRatio]) -> None:
    with pytest.raises(ConfigError) as caught:
        part(clamp=0)
    assert str(caught.value) == f"{part.__name__}: clamp: expected a number greater than 0, found 0"


def test_a_sequence_is_a_step_or_a_trajectory() -> None:
    with pytest.raises(ConfigError) as caught:
        SequenceRatio(unit="sample")
    assert str(caught.value) == "SequenceRatio: unit: expected 'span', 'step' or 'trajectory', found 'sample'"
