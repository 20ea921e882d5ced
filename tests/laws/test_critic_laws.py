"""Laws of advantages from a critic's values, and the relations that the pages of `ppo` and `turn_ppo` state."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import StepTable, methods
from groupwise.credit import ReturnToGo, TokenReturn
from groupwise.data.token_table import TokenTable
from groupwise.lab import TabularPolicy, enumerate_task, sample_rollouts, solve_exactly
from groupwise.methods.ppo import CriticTokenGae
from tests.laws.stated import Statements, check_page, make_states, name_statements
from tests.oracles.random_turns import Turns, draw_turns, tables_of_turns
from tests.unit.lab.played_worlds import TINY

STATED: Statements = []
states = make_states(STATED)
SEEDS = st.integers(0, 10**9)
PARTS = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def draw(seed: int, **shape: Any) -> list[Turns]:
    return draw_turns(random.Random(seed), **shape)


def with_level(drawn: list[Turns], level: float) -> list[Turns]:
    """The rollouts with this value of every state."""
    return [
        replace(one, values=[[level] * len(of_step) for of_step in one.values], of_step=[level] * len(one.of_step))
        for one in drawn
    ]


def credit_tokens(drawn: list[Turns], **settings: float) -> np.ndarray:
    table, tokens = tables_of_turns(drawn)
    algorithm = methods.ppo(whiten=False, **settings)
    assert isinstance(algorithm.token_credit, CriticTokenGae)
    return algorithm.token_credit(table, algorithm.credit(table).by_step(), tokens).values


def credit_steps(table: StepTable, **settings: float) -> np.ndarray:
    return methods.turn_ppo(whiten=False, **settings).advantage(table).values


@states("ppo", "If all values are 0, `ppo(whiten=False)` gives each token its remaining return: `token_return`")
@given(seed=SEEDS, gamma=PARTS)
def test_without_values_a_token_gets_what_followed_to_the_bit(seed: int, gamma: float) -> None:
    drawn = with_level(draw(seed), 0.0)
    table, tokens = tables_of_turns(drawn)
    returns = TokenReturn(gamma=gamma)(table, methods.dr_grpo().advantage(table).by_step(), tokens)
    assert np.array_equal(credit_tokens(drawn, gamma=gamma, lam=1.0), returns.values)


@states("turn_ppo", "If all values are 0, `turn_ppo(lam=1, whiten=False)` gives each step its discounted return")
@given(seed=SEEDS, gamma=PARTS)
def test_without_values_a_step_gets_what_followed_to_the_bit(seed: int, gamma: float) -> None:
    table, _ = tables_of_turns(with_level(draw(seed), 0.0))
    assert np.array_equal(credit_steps(table, gamma=gamma, lam=1.0), ReturnToGo(gamma=gamma)(table))


@given(seed=SEEDS, level=st.integers(-16, 16).map(lambda number: number / 8))
def test_a_constant_value_is_a_baseline(seed: int, level: float) -> None:
    """At gamma and lam 1 it moves every number by itself; at lam 0 it is seen at the last place of a rollout alone."""
    drawn = draw(seed)
    free = credit_tokens(with_level(drawn, 0.0))
    assert np.array_equal(credit_tokens(with_level(drawn, level)), free - level)
    table, _ = tables_of_turns(with_level(drawn, level))
    surprise = credit_steps(table, gamma=1.0, lam=0.0)
    is_last = np.append(table.rollout[1:] != table.rollout[:-1], True)
    assert np.array_equal(surprise, table.reward - level * is_last)


@states(
    "turn_ppo",
    "If every response is one token, `turn_ppo(whiten=False)` = `ppo(whiten=False)` at the same",
)
@given(seed=SEEDS, gamma=PARTS, lam=PARTS)
def test_turns_of_one_token_are_tokens(seed: int, gamma: float, lam: float) -> None:
    drawn = draw(seed, tokens=(1, 1))
    table, _ = tables_of_turns(drawn)
    assert np.array_equal(credit_steps(table, gamma=gamma, lam=lam), credit_tokens(drawn, gamma=gamma, lam=lam))


@given(seed=SEEDS, gamma=PARTS, lam=PARTS)
def test_neither_the_order_of_rollouts_nor_other_tasks_change_a_bit(seed: int, gamma: float, lam: float) -> None:
    rng, drawn = random.Random(seed), draw(seed)
    expected, order = credit_tokens(drawn, gamma=gamma, lam=lam), rng.sample(range(len(drawn)), len(drawn))
    table, tokens = tables_of_turns(drawn, order=order)
    part = CriticTokenGae(gamma=gamma, lam=lam)
    assert np.array_equal(part(table, methods.dr_grpo().advantage(table).by_step(), tokens).values, expected)
    own = [one for one in drawn if one.task == drawn[-1].task]
    alone = credit_tokens(own, gamma=gamma, lam=lam)
    assert np.array_equal(alone, expected[len(expected) - len(alone) :])


@given(seed=SEEDS, gamma=PARTS, lam=PARTS)
def test_what_came_before_changes_nothing(seed: int, gamma: float, lam: float) -> None:
    """The advantage of a place follows from its own value and from what came after."""
    drawn = draw(seed, tokens=(1, 3))
    changed = [
        replace(one, rewards=[7.0, *one.rewards[1:]], values=[[9.0] * len(one.values[0]), *one.values[1:]])
        if len(one.rewards) > 1
        else one
        for one in drawn
    ]
    places = [index > 0 for one in drawn for index, of_step in enumerate(one.values) for _ in of_step]
    before, after = (credit_tokens(each, gamma=gamma, lam=lam)[places] for each in (drawn, changed))
    assert np.array_equal(before, after)


@states("turn_ppo", "With exact values, in a deterministic environment, `turn_ppo(lam=0, whiten=False)` gives the true")
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("name", [name for name in TINY if name != "noise"])
def test_exact_values_make_exact_advantages(name: str, gamma: float) -> None:
    """With chance, one difference is the true advantage on average alone."""
    part, task = TINY[name]
    world = enumerate_task(part, task)
    policy = TabularPolicy.draw(world, np.random.default_rng(3))
    values = solve_exactly(world, policy, gamma=gamma)
    played = sample_rollouts(world, policy, rollouts=50, generator=np.random.default_rng(4))
    columns = played.to_columns(task=task.id, key="situation")
    del columns["outcome"]  # rewards where they are earned
    rollout, index = np.nonzero(played.is_step)
    worth = values.value[index, played.state[rollout, index]]
    table = StepTable.from_columns(**columns, critic_value=worth)
    credit = methods.turn_ppo(gamma=gamma, lam=0.0, whiten=False).advantage(table)
    assert np.abs(values.advantages_of(played)).max() > 0.01
    assert np.abs(credit.values - values.advantages_of(played)).max() < 1e-9
    tokens = TokenTable.from_rows(table, [{"response_ids": [1]} for _ in range(len(table))])
    alone = StepTable.from_columns(**columns, critic_values=[[value] for value in worth])
    of_tokens = CriticTokenGae(gamma=gamma, lam=0.0)(alone, credit.by_step(), tokens)
    assert np.array_equal(of_tokens.values, credit.by_step().values)


@pytest.mark.parametrize(("method", "words"), STATED, ids=name_statements(STATED))
def test_the_page_states_the_relation(method: str, words: str) -> None:
    check_page(method, words)
