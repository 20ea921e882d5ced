"""Drawing a token: the inverse of the distribution function, found in blocks as it is found in one go."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines.sampling import BLOCK, draw_tokens, invert_distribution, truncate
from tests.unit.engines.toy_model import keep_likeliest


@given(
    vocabulary=st.sampled_from([1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1999]),
    seed=st.integers(0, 2**31),
    heat=st.sampled_from([0.05, 1.0, 3.0]),
)
def test_blocks_give_the_token_that_one_sum_over_the_vocabulary_gives(vocabulary: int, seed: int, heat: float) -> None:
    random = torch.Generator().manual_seed(seed)
    probability_BV = (torch.randn(32, vocabulary, generator=random) / heat).softmax(-1)
    draws_B = torch.rand(32, generator=random, dtype=torch.float64)
    whole_BV = probability_BV.cumsum(-1, dtype=torch.float64)
    wanted_B1 = torch.searchsorted(whole_BV, draws_B[:, None] * whole_BV[:, -1:], right=True)
    assert invert_distribution(probability_BV, draws_B).tolist() == wanted_B1.tolist()


@given(
    alive=st.sets(st.integers(0, 3 * BLOCK - 1), min_size=1, max_size=4),
    number=st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.5, 0.25, 1 - 2.0**-53])),
)
def test_a_token_of_probability_0_is_never_drawn(alive: set[int], number: float) -> None:
    probability_BV = torch.zeros(1, 3 * BLOCK)
    probability_BV[0, sorted(alive)] = 1 / len(alive)
    [[token]] = invert_distribution(probability_BV, torch.tensor([number], dtype=torch.float64)).tolist()
    assert token in alive
    if abs(number * len(alive) - round(number * len(alive))) > 1e-6:  # not where two tokens meet
        assert token == sorted(alive)[int(number * len(alive))]


def test_log_probs_and_entropies_are_those_of_the_heated_distribution() -> None:
    logits_BV = torch.tensor([[0.0, math.log(3.0), -math.inf], [0.0, math.log(3.0), -math.inf], [2.0, 1.0, 5.0]])
    temperature_B1 = torch.tensor([[1.0], [0.5], [1.0]])
    is_greedy_B = torch.tensor([False, False, True])
    draws_B = torch.tensor([0.2, 0.2, 0.0], dtype=torch.float64)
    token_B1, logp_B, entropy_B = draw_tokens(logits_BV, temperature_B1, is_greedy_B, draws_B)
    assert token_B1.tolist() == [[0], [1], [2]]  # 1/4 and 3/4; 1/10 and 9/10; the likeliest
    three = [math.exp(x) / (math.exp(2) + math.exp(1) + math.exp(5)) for x in (2, 1, 5)]
    assert logp_B.tolist() == pytest.approx([math.log(0.25), math.log(0.9), math.log(three[2])], abs=1e-6)
    assert entropy_B.tolist() == pytest.approx(
        [-sum(p * math.log(p) for p in ps) for ps in ((0.25, 0.75), (0.1, 0.9), three)], abs=1e-6
    )


def test_narrow_logits_are_heated_in_full_precision() -> None:
    logits_BV = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    draws_B = torch.full((4,), 0.5, dtype=torch.float64)
    temperature_B1 = torch.full((4, 1), 0.7)
    drawn = draw_tokens(logits_BV, temperature_B1, None, draws_B)
    assert [column.tolist() for column in drawn] == [
        column.tolist() for column in draw_tokens(logits_BV.float(), temperature_B1, None, draws_B)
    ]
    assert drawn[1].dtype == torch.float32


@pytest.mark.parametrize("vocabulary", [5, BLOCK, 2 * BLOCK + 3])
def test_logits_that_are_not_numbers_give_a_token_whose_log_prob_says_so(vocabulary: int) -> None:
    """An index out of bounds would bring a GPU down, with a message about something else."""
    logits_BV = torch.zeros(3, vocabulary)
    logits_BV[0] = math.nan
    logits_BV[1, 2] = math.inf
    token_B1, logp_B, _ = draw_tokens(
        logits_BV, torch.ones(3, 1), None, torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    )
    assert [0 <= token < vocabulary for [token] in token_B1.tolist()] == [True] * 3
    assert logp_B.isnan().tolist() == [True, True, False]


@given(
    vocabulary=st.integers(1, 40),
    seed=st.integers(0, 2**31),
    top_p=st.sampled_from([1e-6, 0.3, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 1000]),
)
def test_a_truncated_distribution_is_that_of_a_loop_over_the_likeliest(
    vocabulary: int, seed: int, top_p: float, top_k: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    logits_BV = 3 * torch.randn(4, vocabulary, generator=random, dtype=torch.float64)
    limits = torch.full((4, 1), top_p, dtype=torch.float64), torch.full((4, 1), top_k)
    found_BV = truncate(logits_BV, *limits).log_softmax(-1)
    for row, logp in zip(found_BV.tolist(), logits_BV.log_softmax(-1).numpy(), strict=True):
        assert row == pytest.approx(keep_likeliest(logp, top_p=top_p, top_k=top_k).tolist(), abs=1e-9)


def test_tokens_as_likely_as_the_last_one_that_stays_also_stay() -> None:
    logits_BV = torch.tensor([[1.0, 2.0, 2.0, 0.0, 1.0]])

    def kept(top_p: float, top_k: int) -> list[int]:
        limits = torch.tensor([[top_p]], dtype=torch.float64), torch.tensor([[top_k]])
        return truncate(logits_BV, *limits)[0].isfinite().nonzero()[:, 0].tolist()

    assert kept(1.0, 0) == [0, 1, 2, 3, 4]
    assert kept(1.0, 1) == kept(0.1, 0) == [1, 2]
    assert kept(1.0, 3) == kept(0.75, 0) == [0, 1, 2, 4]
    assert kept(0.6, 3) == [1, 2]


def test_rows_that_are_not_truncated_stay_as_they_are_to_the_bit() -> None:
    random = torch.Generator().manual_seed(0)
    logits_BV, temperature_B1 = torch.randn(5, 2 * BLOCK, generator=random), torch.full((5, 1), 0.7)
    draws_B = torch.rand(5, generator=random, dtype=torch.float64)
    limits = (
        torch.tensor([[1.0], [0.5], [1.0], [1.0], [1.0]], dtype=torch.float64),
        torch.tensor([[0], [0], [3], [0], [0]]),
    )
    whole = draw_tokens(logits_BV, temperature_B1, None, draws_B)
    cut = draw_tokens(logits_BV, temperature_B1, None, draws_B, limits)
    for some, other in zip(whole, cut, strict=True):
        assert some[[0, 3, 4]].tolist() == other[[0, 3, 4]].tolist()
    assert (cut[2][1:3] < whole[2][1:3]).all(), "less is left to choose from"


def test_truncated_logits_that_are_not_numbers_still_give_a_token() -> None:
    logits_BV = torch.zeros(2, 9)
    logits_BV[0] = math.nan
    limits = torch.full((2, 1), 0.5, dtype=torch.float64), torch.full((2, 1), 3)
    token_B1, logp_B, _ = draw_tokens(logits_BV, torch.ones(2, 1), None, torch.zeros(2, dtype=torch.float64), limits)
    assert all(0 <= token < 9 for [token] in token_B1.tolist())
    assert logp_B.isnan().tolist() == [True, False]
