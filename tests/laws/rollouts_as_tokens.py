"""Groups of equally long rollouts, as the table that credit is given on and as the tokens that a loss is handed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import torch

from groupwise import StepTable
from groupwise.data.samples import Pair
from groupwise.data.segments import FloatArray
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, totals_of


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Tasks with equally many rollouts of equally many tokens, none of which has moved since it was sampled."""

    rewards: list[float]
    """What each rollout earned, task by task."""
    size: int
    """Rollouts at each task."""
    tokens: list[Token]
    """Their tokens; a rollout's number is its `trajectory`."""
    pairs: tuple[Pair, ...] = ()
    """Pairs of them."""

    @property
    def num(self) -> int:
        return len(self.rewards)

    @property
    def table(self) -> StepTable:
        return self.table_with()

    def table_with(self, **columns: Sequence[float]) -> StepTable:
        """The table with further columns, a number a rollout."""
        numbers = list(range(self.num))
        return StepTable.from_columns(
            task=[number // self.size for number in numbers],
            rollout=[number % self.size for number in numbers],
            step=[0] * self.num,
            reward=self.rewards,
            **columns,
        )

    def with_pairs(self, pairs: Sequence[Pair]) -> Rollouts:
        return dataclasses.replace(self, pairs=tuple(pairs))

    def with_credit(self, credit: FloatArray) -> Rollouts:
        tokens = [dataclasses.replace(token, advantage=float(credit[token.trajectory])) for token in self.tokens]
        return dataclasses.replace(self, tokens=tokens)

    def with_binary_rewards(self) -> Rollouts:
        return dataclasses.replace(self, rewards=[float(reward > 0.5) for reward in self.rewards])


def draw_rollouts(seed: int) -> Rollouts:
    """One to three tasks of two to five rollouts, each of one to three tokens."""
    rng = random.Random(seed)
    size, length, num_tasks = rng.randint(2, 5), rng.randint(1, 3), rng.randint(1, 3)
    rewards = [rng.choice([0.0, 0.25, 1.0, 3.0]) for _ in range(num_tasks * size)]
    tokens = []
    for number in range(len(rewards)):
        for _ in range(length):
            logp = -rng.uniform(0.1, 2)
            tokens.append(Token(logp, logp, logp, logp, 0.0, 0.0, True, number, 0, number))
    return Rollouts(rewards, size, tokens)


def learn_whole(loss: Any, rollouts: Rollouts) -> tuple[float, list[float]]:
    """The loss of all rollouts in one micro-batch, and its slope by the log-prob of each token."""
    columns, totals = columns_of(rollouts.tokens), totals_of(rollouts.tokens)
    earned = torch.tensor([rollouts.rewards[token.trajectory] for token in rollouts.tokens], dtype=torch.float64)
    columns = dataclasses.replace(columns, group=columns.trajectory // rollouts.size, named={"episode_return": earned})
    totals = dataclasses.replace(totals, groups=rollouts.num // rollouts.size, pair_members=rollouts.pairs)
    summary = (loss.first_pass(columns, totals),) if hasattr(loss, "first_pass") else ()
    share = loss(columns, totals, *summary).loss
    (slopes,) = torch.autograd.grad(share, columns.logp)
    return float(share.detach()), slopes.tolist()
