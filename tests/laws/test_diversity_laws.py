"""Laws after DSDR: distinctness and allotted entropy against their oracles; order and masked tokens change nothing."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.losses import Clip, EntropyShare, PolicyLoss
from groupwise.methods.after_dsdr import measure_distinctness, share_out
from tests.oracles import diversity as oracle
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, run, totals_of

drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))
FORMULAS = ("1+1=2", "2+3=5", "a=b", "7=7")


def draw_answers(seed: int) -> tuple[list[list[float]], list[list[str]]]:
    rng = random.Random(seed)
    num = rng.randint(1, 6)
    kept = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(num)]
    points = [rng.choice(kept) for _ in range(num)]  # some are the same
    return points, [rng.sample(FORMULAS, rng.randint(0, 3)) for _ in range(num)]


def as_units(points: list[list[float]]) -> list[np.ndarray]:
    return [np.array(point) / np.sqrt(np.square(point).sum()) for point in points]


@given(drawn=st.integers(0, 10**9).map(draw_answers), temperature=st.floats(0.05, 5))
def test_distinctness_and_shares_equal_their_oracle_in_any_order(
    drawn: tuple[list[list[float]], list[list[str]]], temperature: float
) -> None:
    points, formulas = drawn
    distinct = measure_distinctness(as_units(points), [set(own) for own in formulas])
    assert distinct == pytest.approx(oracle.measure_distinctness(points, formulas), abs=1e-12)
    shares = share_out(distinct, temperature)
    assert shares == pytest.approx(oracle.share_out(distinct, temperature), abs=1e-12)
    backwards = measure_distinctness(as_units(points[::-1]), [set(own) for own in formulas[::-1]])
    assert backwards == pytest.approx(distinct[::-1], abs=1e-15)


@given(num=st.integers(1, 6), numbers=st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_answers_that_are_all_the_same_are_exactly_not_distinct(num: int, numbers: list[float]) -> None:
    points = [np.array(numbers)] * num
    assert measure_distinctness(points, [{"1+1=2"}] * num) == [0.0] * num
    assert share_out([0.0] * num, 0.1) == [1 / num] * num


@given(tokens=drawn_updates, weight=st.floats(0.001, 2), seed=st.integers(0, 100))
def test_allotted_entropy_equals_its_oracle(tokens: list[Token], weight: float, seed: int) -> None:
    rng = random.Random(seed)
    idle = [dataclasses.replace(token, advantage=0.0) if token.trains else token for token in tokens]
    share = {token.trajectory: rng.choice([0.0, 1.0, rng.uniform(0, 8)]) for token in tokens}
    numbers = [share[token.trajectory] if token.trains else rng.choice(GARBAGE) for token in tokens]
    columns = dataclasses.replace(columns_of(idle), named={"entropy_share": torch.tensor(numbers, dtype=torch.float64)})
    loss = PolicyLoss(surrogate=Clip(), penalties=(EntropyShare(weight=weight),))
    result = run(loss, columns, totals_of(idle))
    value, slopes = oracle.sum_allotted_entropy(idle, share, weight)
    size = max([abs(slope) for slope in slopes] + [abs(value), 1e-3])
    assert result.loss == pytest.approx(value, abs=1e-10 * size)
    assert not any(result.by_logp)  # the importance weight is a constant
    expected = iter(slopes)
    wanted = [next(expected) if token.trains else 0.0 for token in idle]
    assert result.by_entropy == pytest.approx(wanted, abs=1e-10 * size)
