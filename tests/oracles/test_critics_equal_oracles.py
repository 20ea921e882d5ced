"""Advantages from a critic's values, the returns that it learns, and its loss equal their oracles."""

from __future__ import annotations

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from groupwise import RecordError, StepTable, methods
from groupwise.credit import CRITIC_VALUES, find_value_targets
from groupwise.data.token_table import TokenTable
from groupwise.learner import ValueHead
from groupwise.methods.ppo import CriticTokenGae
from groupwise.report.explained_step import explain_token
from tests.oracles import critics as oracle
from tests.oracles.random_turns import Turns, draw_turns, tables_of_turns

SETTINGS = [(1.0, 1.0), (0.99, 0.9), (1.0, 0.95), (0.5, 0.0), (0.0, 1.0)]
NUM_TABLES = 60


def expect_tokens(drawn: list[Turns], *, gamma: float, lam: float) -> list[float]:
    return [
        float(value)
        for rollout in drawn
        for of_step in oracle.token_advantages(rollout.rewards, rollout.values, gamma=gamma, lam=lam)
        for value in of_step
    ]


@pytest.mark.parametrize(("gamma", "lam"), SETTINGS)
def test_tokens_get_the_mixture_of_returns(gamma: float, lam: float) -> None:
    rng = random.Random(f"tokens {gamma} {lam}")
    algorithm = methods.ppo(gamma=gamma, lam=lam, whiten=False)
    for number in range(NUM_TABLES):
        drawn = draw_turns(rng)
        table, tokens = tables_of_turns(drawn)
        credit = algorithm.credit(table)
        assert isinstance(algorithm.token_credit, CriticTokenGae)
        made = algorithm.token_credit(table, credit.by_step(), tokens)
        # The table sorts by task and rollout, as they are drawn.
        assert made.values.tolist() == pytest.approx(expect_tokens(drawn, gamma=gamma, lam=lam), abs=1e-12)
        assert made.trains.all()
        for token in range(len(tokens)) if number < 5 else ():
            explained = explain_token(
                algorithm, table, credit, tokens, step=int(tokens.row[token]), position=int(tokens.position[token])
            )
            assert explained.gap < 1e-9
            assert not explained.not_derived


@pytest.mark.parametrize(("gamma", "lam"), SETTINGS)
def test_a_critic_learns_its_value_and_the_advantage_by_token_and_by_step(gamma: float, lam: float) -> None:
    rng = random.Random(f"targets {gamma} {lam}")
    for _ in range(NUM_TABLES):
        drawn = draw_turns(rng)
        table, tokens = tables_of_turns(drawn)
        values, returns = find_value_targets(table, tokens, by="token", gamma=gamma, lam=lam)
        said = [value for rollout in drawn for of_step in rollout.values for value in of_step]
        advantages = expect_tokens(drawn, gamma=gamma, lam=lam)
        assert values.tolist() == said
        assert returns.tolist() == pytest.approx([v + a for v, a in zip(said, advantages, strict=True)], abs=1e-12)
        values, returns = find_value_targets(table, tokens, by="step", gamma=gamma, lam=lam)
        said = [value for rollout in drawn for value in rollout.of_step]
        steps = [
            float(advantage)
            for rollout in drawn
            for advantage in oracle.mix_returns(rollout.rewards, rollout.of_step, gamma=gamma, lam=lam)
        ]
        assert values.tolist() == said
        assert returns.tolist() == pytest.approx([v + a for v, a in zip(said, steps, strict=True)], abs=1e-12)


@pytest.mark.parametrize("clip", [0.5, 0.125, None])
def test_the_loss_of_a_value_is_that_of_the_loop_with_its_slope(clip: float | None) -> None:
    rng = random.Random(f"loss {clip}")
    part = ValueHead(value_clip="off" if clip is None else clip)
    # Multiples of a power of two: exactly at the bound too.
    numbers = [[rng.randint(-16, 16) / 8 for _ in range(3)] for _ in range(500)]
    value_T, old_T, return_T = torch.tensor(numbers, dtype=torch.float64).T
    value_T = value_T.clone().requires_grad_()
    result = part(value_T, old_T, return_T)
    expected = [oracle.value_loss(*row, clip) for row in numbers]
    assert result.loss.tolist() == [loss for loss, _, _ in expected]
    clipped = result.clipped.get("value", torch.zeros(len(numbers), dtype=torch.bool))
    assert clipped.tolist() == [is_clipped for _, _, is_clipped in expected]
    assert clipped.any() == (clip is not None)
    result.loss.sum().backward()
    slopes = value_T.grad.tolist()
    known = [wanted is not None for _, wanted, _ in expected]
    assert sum(known) > 400
    for slope, (_, wanted, _) in zip(slopes, expected, strict=True):
        assert wanted is None or slope == wanted


def test_a_step_without_a_number_for_each_token_is_named() -> None:
    drawn = [Turns(task=0, rewards=[1.0], values=[[0.5, 0.5]], of_step=[0.5])]
    table, tokens = tables_of_turns(drawn)
    table.extra[CRITIC_VALUES][0] = [0.5]
    with pytest.raises(RecordError) as caught:
        find_value_targets(table, tokens, by="token", gamma=1.0, lam=1.0)
    assert str(caught.value) == (
        "task 0, rollout 0, step 0: critic_values does not have one number for each of its 2 sampled tokens; add a "
        'critic with by = "token"'
    )


def test_an_empty_table_has_no_target() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    names = ("task", "rollout", "step", "reward", "critic_value", "critic_values")
    table = StepTable.from_columns(**dict.fromkeys(names, nothing))
    for by in ("token", "step"):
        values, returns = find_value_targets(table, TokenTable.from_rows(table, []), by=by, gamma=0.9, lam=0.9)
        assert values.tolist() == returns.tolist() == []
