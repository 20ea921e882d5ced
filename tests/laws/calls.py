"""How the laws call a method: rows in, credit out, always through the public path."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np

import groupwise
from groupwise import methods
from tests.oracles.variants import WITH_CRITIC, Variant
from tests.strategies import DYADIC, UNIT_REWARDS, Row, columns_of, step_rows, with_values


def table_of(rows: Sequence[Row]) -> groupwise.StepTable:
    return groupwise.StepTable.from_columns(**columns_of(rows))


def credit(rows: Sequence[Row], method: str, **hyper: object) -> groupwise.Credit:
    return getattr(methods, method)(**hyper).advantage(table_of(rows))


def values(rows: Sequence[Row], method: str, **hyper: object) -> np.ndarray:
    return np.asarray(credit(rows, method, **hyper).values)


def rows_for(
    variant: Variant, *, rewards: st.SearchStrategy[float] = DYADIC, **shape: object
) -> st.SearchStrategy[list[Row]]:
    """Tables the variant accepts.

    A-GRAE and sets that share credit read a return as a success rate, so their rewards are terminal in [0, 1]; NGRPO
    has a best, so its are losses.
    """
    if variant.method == "ngrpo":
        return step_rows(rewards=rewards.map(lambda reward: -abs(reward)), **shape)
    if variant.method in {"a_grae", "after_polychromic"}:
        return step_rows(rewards=UNIT_REWARDS, terminal=True, **shape)
    if variant.method in WITH_CRITIC:
        return step_rows(rewards=rewards, **shape).map(with_values)
    return step_rows(rewards=rewards, **shape)


def with_last_rewards(rows: Sequence[Row], shift: float) -> list[Row]:
    """The rows with `shift` added to the reward of each rollout's last step: every return-to-go moves by it."""
    last = {}
    for row in rows:
        who = (row["task"], row["rollout"])
        last[who] = max(last.get(who, 0), int(str(row["step"])))
    return [
        row | {"reward": float(str(row["reward"])) + shift * (row["step"] == last[row["task"], row["rollout"]])}
        for row in rows
    ]


def map_columns(rows: Sequence[Row], **changes: object) -> list[Row]:
    """The rows with each named column passed through its function; a missing column stays missing."""
    return [row | {name: change(row[name]) for name, change in changes.items() if name in row} for row in rows]


def one_walk(rewards: Sequence[float], length: int) -> list[Row]:
    """Rollouts at one task that all pass the same states by the same actions, each with a reward at its end."""
    return [
        {
            "task": "q",
            "rollout": rollout,
            "step": index,
            "state": f"s{index}",
            "action": "go",
            "reward": reward * (index == length - 1),
        }
        for rollout, reward in enumerate(rewards)
        for index in range(length)
    ]
