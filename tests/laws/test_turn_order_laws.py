"""Laws of turns that are learnt one after the other: every turn comes once, and any split carries the same on."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.methods.seeupo import LastTurnFirst
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, totals_of
from tests.oracles.turns import factor_of_turns

drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))


@given(stages=st.integers(1, 12), num_turns=st.integers(1, 60))
def test_every_turn_comes_once_and_stages_are_even(stages: int, num_turns: int) -> None:
    order = LastTurnFirst(stages=stages).order_turns(num_turns)
    assert len(order) == min(stages, num_turns)
    assert [turn for turns in reversed(order) for turn in turns] == list(range(num_turns))
    sizes = [len(turns) for turns in order]
    assert max(sizes) - min(sizes) <= 1


@given(tokens=drawn_updates, seed=st.integers(0, 100), low=st.floats(0.1, 1), high=st.floats(1, 10))
def test_any_split_by_step_carries_on_what_the_oracle_says(
    tokens: list[Token], seed: int, low: float, high: float
) -> None:
    """Masked tokens hold NaN among others; they change nothing."""
    loss, totals = LastTurnFirst(min_factor=low, max_factor=high), totals_of(tokens)
    rng = random.Random(seed)
    place: dict[tuple[int, int], int] = {}
    home = [place.setdefault((token.trajectory, token.step), rng.randrange(3)) for token in tokens]
    parts = [[token for token, part in zip(tokens, home, strict=True) if part == wanted] for wanted in range(3)]
    log_factor = sum((loss.carry(columns_of(part), totals) for part in parts), torch.zeros(()))
    assert not log_factor.requires_grad
    factors = factor_of_turns(tokens, low=low, high=high)
    expected = [factors.get(number, 1.0) for number in range(len(totals.trajectory_tokens))]
    assert log_factor.exp().tolist() == pytest.approx(expected, rel=1e-9)
