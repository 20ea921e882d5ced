"""Laws of the methods that give tokens credit: order of rows, tasks apart, weights of one, what may be missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from groupwise import RecordError, recipes
from groupwise.advantages.token_credit import ConflictTokens, DiscountedTokens, DualDownSampling, FirstTokens
from groupwise.batching import pad_rows
from groupwise.core.parts.slots import TokenCreditPart
from tests.equivalence.models import build
from tests.equivalence.recipe_losses import update
from tests.equivalence.rollouts import make_tangled_samples
from tests.oracles.random_answers import by_answer, masks_by_answer, random_answers, tables_of
from tests.oracles.token_methods import Answer

DR_GRPO = recipes.dr_grpo().advantage
SEEDS = st.integers(0, 10_000)
PARTS: dict[str, Any] = {
    "conflict_tokens": ConflictTokens(),
    "dual_down_sampling": DualDownSampling(first_samples=0.6, first_tokens=0.5),
}
WEIGHTS_OF_ONE: dict[str, Any] = {
    "no discount": DiscountedTokens(gamma=1.0),
    "all tokens are first": FirstTokens(count=100),
    "everything is sampled": DualDownSampling(first_samples=1.0, first_tokens=1.0),
}
"""Parts that leave each token the credit of its step."""


def credit(part: TokenCreditPart, answers: Sequence[Answer]) -> tuple[list[list[float]], list[list[bool]]]:
    table, tokens = tables_of(answers)
    made = part(table, DR_GRPO(table).by_step(), tokens)
    return by_answer(made, tokens, answers), masks_by_answer(made, tokens, answers)


@pytest.mark.parametrize("name", PARTS)
@given(seed=SEEDS)
def test_the_order_of_rows_changes_nothing(name: str, seed: int) -> None:
    rng = random.Random(seed)
    answers = random_answers(rng)
    table, tokens = tables_of(answers)
    expected = PARTS[name](table, DR_GRPO(table).by_step(), tokens)
    order = rng.sample(range(len(answers)), len(answers))
    rows = [
        {"response_ids": answers[n].ids, "logp_behaviour": answers[n].logp, "entropy": answers[n].entropy}
        for n in order
    ]
    shuffled = type(table).from_columns(
        task=[answers[n].group for n in order],
        attempt=order,
        index=[0] * len(order),
        reward=[answers[n].reward for n in order],
    )
    made = PARTS[name](shuffled, DR_GRPO(shuffled).by_step(), type(tokens).from_rows(shuffled, rows))
    assert np.array_equal(made.values, expected.values)
    assert np.array_equal(made.trains, expected.trains)


@pytest.mark.parametrize("name", sorted(set(PARTS) - {"dual_down_sampling"}))
@given(seed=SEEDS)
def test_other_tasks_change_nothing(name: str, seed: int) -> None:
    """D3S compares across tasks by design; GTPO does too, in its initial entropy, unless that is remembered."""
    answers = random_answers(random.Random(seed))
    for answer in answers:
        answer.facts["initial_entropy"] = 0.3
    values, _ = credit(PARTS[name], answers)
    alone, _ = credit(PARTS[name], [answer for answer in answers if answer.group == 0])
    assert alone == values[: len(alone)]


@pytest.mark.parametrize("name", WEIGHTS_OF_ONE)
@given(seed=SEEDS)
def test_weights_of_one_give_each_token_the_credit_of_its_step_to_the_bit(name: str, seed: int) -> None:
    answers = random_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    steps = DR_GRPO(table).by_step()
    made = WEIGHTS_OF_ONE[name](table, steps, tokens)
    assert np.array_equal(made.values, steps.values[tokens.step])
    assert made.trains.all()


@pytest.mark.parametrize("name", ["grpo", "gtpo", "d3s"])
def test_token_credit_of_the_step_is_none_to_the_bit_in_loss_and_gradient(name: str) -> None:
    loss = recipes.build(name).loss
    assert loss is not None
    samples = [replace(sample, advantage=0.3 * n - 1.0) for n, sample in enumerate(make_tangled_samples())]
    by_token = [
        replace(sample, advantage=(0.3 * n - 1.0,) * len(sample.response_ids)) for n, sample in enumerate(samples)
    ]
    plain = update(build("llama"), loss, samples, pad_rows(samples))
    spread = update(build("llama"), loss, by_token, pad_rows(by_token))
    assert plain[0] == spread[0]
    assert torch.equal(plain[1], spread[1])


@given(seed=SEEDS)
def test_gtpo_leaves_even_groups_their_entropy_alone(seed: int) -> None:
    """All equal: no conflict tokens, and A = 0 leaves -gamma H, which the recipe's filter drops."""
    answers = random_answers(random.Random(seed))
    for answer in answers:
        answer.reward, answer.facts["initial_entropy"] = 1.0, 9.0
    values, _ = credit(ConflictTokens(), answers)
    for answer, row in zip(answers, values, strict=True):
        assert row == pytest.approx([-0.1 * np.mean(answer.entropy)] * len(answer.ids), abs=1e-12)
    table, _ = tables_of(answers)
    assert not recipes.gtpo().keep(table).any()


@pytest.mark.parametrize("name", PARTS)
def test_what_was_not_recorded_is_asked_for(name: str) -> None:
    table, tokens = tables_of(random_answers(random.Random(0)))
    unknown = replace(tokens, entropy=np.full(len(tokens), np.nan))
    with pytest.raises(RecordError, match="the entropies of its sampled tokens were not recorded"):
        PARTS[name](table, DR_GRPO(table).by_step(), unknown)


@given(seed=SEEDS)
def test_d3s_takes_no_sample_that_a_filter_drops(seed: int) -> None:
    answers = random_answers(random.Random(seed))
    table, tokens = tables_of(answers)
    filtered = table.with_filters((lambda seen: seen.task != 0,))
    made = PARTS["dual_down_sampling"](filtered, DR_GRPO(table).by_step(), tokens)
    assert not made.trains[table.task[tokens.step] == 0].any()
