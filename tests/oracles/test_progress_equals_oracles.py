"""PAV's credit and its prover's values are their oracles', and right on average."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import StepTable, methods
from groupwise.methods.pav import find_best_of
from tests.oracles.progress import best_of, pav
from tests.strategies import MODERATE, columns_of, random_rows

SCORES = st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)), min_size=1, max_size=9)


@pytest.mark.parametrize("alpha", [0.5, 2.0, 0.0])
def test_credit_is_the_oracle_s(alpha: float) -> None:
    rng = random.Random("pav")
    for _ in range(200):
        rows = random_rows(rng, regimes=MODERATE, max_rows=40)
        progress = {(row["task"], row["rollout"], row["step"]): rng.randint(-8, 8) / 8 for row in rows}
        rows = [row | {"prover_progress": progress[row["task"], row["rollout"], row["step"]]} for row in rows]
        credit = methods.pav(alpha=alpha).advantage(StepTable.from_columns(**columns_of(rows)))
        expected, compared = pav(rows, alpha=alpha)
        assert credit.values.tolist() == pytest.approx(expected, abs=1e-9)
        assert credit.compared.tolist() == compared


@given(scores=SCORES, drawn=st.data())
def test_the_best_of_several_is_the_mean_over_all_sets(scores: list[float], drawn: st.DataObject) -> None:
    num = drawn.draw(st.integers(1, len(scores)))
    assert find_best_of(scores, num) == pytest.approx(best_of(scores, num), abs=1e-12)


@given(scores=SCORES)
def test_the_best_of_one_is_the_mean_and_of_all_the_best(scores: list[float]) -> None:
    assert find_best_of(scores, 1) == pytest.approx(sum(scores) / len(scores))
    assert find_best_of(scores, len(scores)) == max(scores)


@pytest.mark.parametrize(("rate", "expected"), [(0.1, 0.3439), (0.3, 0.7599), (0.5, 0.9375)])
@pytest.mark.parametrize("num", [4, 5, 8])
def test_it_is_the_prover_s_chance_on_average(rate: float, expected: float, num: int) -> None:
    """numbers, PAV: 1 - (1 - q)^4, whatever the number of continuations; the share of successes put in is too low."""
    chance = [math.comb(num, won) * rate**won * (1 - rate) ** (num - won) for won in range(num + 1)]
    values = [find_best_of([1.0] * won + [0.0] * (num - won), 4) for won in range(num + 1)]
    assert math.fsum(p * value for p, value in zip(chance, values, strict=True)) == pytest.approx(expected)
    plugged_in = math.fsum(p * (1 - (1 - won / num) ** 4) for won, p in enumerate(chance))
    assert plugged_in < expected
