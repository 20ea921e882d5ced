"""The numbers of critics that conformance/numbers.md works out, through the methods."""

from __future__ import annotations

import pytest

from groupwise import StepTable, methods
from groupwise.credit import find_value_targets
from groupwise.data.token_table import TokenTable

ADVANTAGES = [0.596306, 0.4504, 0.4]
VALUES = [0.3, 0.5, 0.6]


def test_three_turns() -> None:
    """numbers, Critics, each place a step."""
    table = StepTable.from_columns(
        task=["q"] * 3, rollout=[0] * 3, step=[0, 1, 2], reward=[0.0, 0.0, 1.0], critic_value=VALUES
    )
    credit = methods.turn_ppo(whiten=False).advantage(table)
    assert credit.values.tolist() == pytest.approx(ADVANTAGES, abs=5e-7)
    tokens = TokenTable.from_rows(table, [{"response_ids": [5]}] * 3)
    _, returns = find_value_targets(table, tokens, by="step", gamma=0.99, lam=0.9)
    assert returns.tolist() == pytest.approx([0.896306, 0.9504, 1.0], abs=5e-7)


def test_three_tokens_of_one_answer() -> None:
    """numbers, Critics, each place a token."""
    table = StepTable.from_columns(
        task=["q"], rollout=[0], step=[0], reward=[1.0], critic_value=[0.3], critic_values=[VALUES]
    )
    tokens = TokenTable.from_rows(table, [{"response_ids": [5, 6, 7]}])
    algorithm = methods.ppo(gamma=0.99, lam=0.9, whiten=False)
    assert algorithm.token_credit is not None
    credit = algorithm.token_credit(table, algorithm.credit(table).by_step(), tokens)
    assert credit.values.tolist() == pytest.approx(ADVANTAGES, abs=5e-7)
    _, returns = find_value_targets(table, tokens, by="token", gamma=0.99, lam=0.9)
    assert returns.tolist() == pytest.approx([0.896306, 0.9504, 1.0], abs=5e-7)
