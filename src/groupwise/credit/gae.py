"""Generalized advantage estimation (GAE) over the values of states, per step or per token.

    delta_k = r_k + gamma * V_(k+1) - V_k,   A_k = delta_k + gamma * lam * A_(k+1),   V = 0 after the end of a rollout

Source: Schulman et al. 2015 (arXiv:1506.02438). Axes: S steps of the table, K sampled tokens of all steps, P places
(steps or tokens).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from groupwise.credit.answer_segments import read_token_numbers
from groupwise.credit.signals import discount
from groupwise.data.column_checks import to_numbers
from groupwise.data.credit import Derivation
from groupwise.data.segments import FloatArray, IntArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable

CRITIC_VALUE, CRITIC_VALUES = "critic_value", "critic_values"
"""Step info that a run with a critic records: the value of the state in which a step begins, and a list with the value
of the state before each of its sampled tokens."""


def read_step_values(table: StepTable) -> FloatArray:
    """What the critic said of each step (S)."""
    return to_numbers(CRITIC_VALUE, table.column(CRITIC_VALUE))


def read_token_values(table: StepTable, tokens: TokenTable) -> FloatArray:
    """What the critic said of each token (K)."""
    return read_token_numbers(table, tokens, CRITIC_VALUES, writer='a critic with by = "token"')


def list_rewards(table: StepTable) -> FloatArray:
    """The reward of each step (S); a final score replaces the rewards and is on the last step."""
    if "outcome" not in table.extra:
        return table.reward
    return np.where(np.append(table.rollout[1:] != table.rollout[:-1], True), table.episode_return, 0.0)


def place_rewards(table: StepTable, tokens: TokenTable) -> FloatArray:
    """Put each step's reward on its last token (K); that of a step without tokens goes on the last token before it."""
    rewards = np.zeros(len(tokens))
    last = np.searchsorted(tokens.row, np.arange(len(table)), side="right") - 1
    amounts = list_rewards(table).tolist()
    for token, rollout, amount in zip(last.tolist(), table.rollout.tolist(), amounts, strict=True):
        if token >= 0 and table.rollout[tokens.row[token]] == rollout:
            rewards[token] += amount
    return rewards


def find_surprises(rewards: FloatArray, values: FloatArray, rollout: IntArray, *, gamma: float) -> FloatArray:
    """delta of each place (P); places of one rollout follow one another."""
    following = np.zeros(len(values))
    following[:-1] = np.where(rollout[1:] == rollout[:-1], values[1:], 0.0)
    return rewards + gamma * following - values


def compute_gae(rewards: FloatArray, values: FloatArray, rollout: IntArray, *, gamma: float, lam: float) -> FloatArray:
    """The advantage of each place (P).

    >>> rewards, values, rollout = np.array([0.0, 0.0, 1.0]), np.array([0.3, 0.5, 0.6]), np.zeros(3, dtype=np.int64)
    >>> compute_gae(rewards, values, rollout, gamma=0.99, lam=0.9).round(6).tolist()
    [0.596306, 0.4504, 0.4]
    """
    return discount(find_surprises(rewards, values, rollout, gamma=gamma), rollout, gamma * lam)


def find_value_targets(
    table: StepTable, tokens: TokenTable, *, by: Literal["token", "step"], gamma: float, lam: float
) -> tuple[FloatArray, FloatArray]:
    """The critic's values, and the returns that it learns: value plus advantage (P: steps or tokens)."""
    if by == "step":
        rewards, values, rollout = list_rewards(table), read_step_values(table), table.rollout
    else:
        rewards, values = place_rewards(table, tokens), read_token_values(table, tokens)
        rollout = table.rollout[tokens.row]
    return values, values + compute_gae(rewards, values, rollout, gamma=gamma, lam=lam)


def derive_sum(amounts: FloatArray, rollout: IntArray, place: int, *, share: float, unit: str) -> Derivation:
    """Sum over the places of a rollout from one on, each multiplied by `share` once more."""
    later = [other for other in range(place, len(amounts)) if rollout[other] == rollout[place]]
    value = sum(share ** (other - place) * float(amounts[other]) for other in later)
    members = tuple((other, float(amounts[other])) for other in later if amounts[other])
    words = f"sum over {len(members)} {unit} of {share:.6g}^distance x what it brought = {value:.6g}"
    return Derivation(value=value, formula=words, members=members)
