"""Random updates of sampled tokens, and the same as the tensors that a loss is handed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from groupwise.data.samples import Totals
from groupwise.losses import LossResult, PolicyLoss, TokenColumns
from tests.oracles.loss_parts import LENGTH
from tests.oracles.losses import Token, num

GARBAGE = (math.nan, math.inf, -math.inf, 1e30, 0.0)
"""What a masked token may hold."""


def random_update(rng: random.Random) -> list[Token]:
    """A few trajectories of a few steps, in ascending order of samples; some tokens and samples do not train.

    Three layouts: a sample a step, steps cut into two samples, and a sample a rollout.
    """
    layout = rng.choice(["step", "step", "cut", "rollout"])
    tokens: list[Token] = []
    sample = 0
    for trajectory in range(rng.randint(1, 4)):
        for step in range(rng.randint(1, 3)):
            advantage = rng.choice([0.0, 1.0, -1.0, rng.gauss(0, 1), rng.gauss(0, 1)])
            for _ in range(2 if layout == "cut" else 1):
                keeps = rng.random() < 0.9
                tokens += [
                    random_token(rng, advantage, keeps and rng.random() < 0.85, sample, step, trajectory)
                    for _ in range(rng.randint(0, 4))
                ]
                sample += layout != "rollout"
        sample += layout == "rollout"
    return [replace(token, span=place // 2 % 2) for place, token in enumerate(tokens)]


def random_token(rng: random.Random, advantage: float, trains: bool, sample: int, step: int, trajectory: int) -> Token:
    """A token near its old policy, sometimes exactly there and sometimes far away."""
    if not trains:
        rubbish = {name: rng.choice(GARBAGE) for name in ("logp", "old", "behaviour", "ref", "entropy", "advantage")}
        return Token(**rubbish, trains=False, sample=sample, step=step, trajectory=trajectory)
    logp = -rng.uniform(0.01, 3.0)
    old = logp - rng.choice([0.0, rng.gauss(0, 0.3), rng.gauss(0, 0.3), rng.gauss(0, 8)])
    behaviour = old - rng.choice([0.0, rng.gauss(0, 0.2), rng.gauss(0, 0.2), rng.gauss(0, 8)])
    return Token(
        logp=logp,
        old=old,
        behaviour=behaviour,
        ref=logp - rng.choice([0.0, rng.gauss(0, 1), rng.gauss(0, 8)]),
        entropy=rng.uniform(0, 2),
        advantage=rng.gauss(0, 1) if rng.random() < 0.1 else advantage,
        trains=True,
        sample=sample,
        step=step,
        trajectory=trajectory,
    )


def columns_of(tokens: Sequence[Token], dtype: torch.dtype = torch.float64) -> TokenColumns:
    """The tokens as columns; `logp` and `entropy` ask for their gradients."""

    def numbers(name: str) -> Tensor:
        return torch.tensor([getattr(token, name) for token in tokens], dtype=dtype)

    def ids(name: str) -> Tensor:
        return torch.tensor([getattr(token, name) for token in tokens], dtype=torch.int64)

    return TokenColumns(
        logp=numbers("logp").requires_grad_(),
        logp_old=numbers("old"),
        logp_behaviour=numbers("behaviour"),
        logp_ref=numbers("ref"),
        entropy=numbers("entropy").requires_grad_(),
        advantage=numbers("advantage"),
        mask=torch.tensor([token.trains for token in tokens], dtype=torch.bool),
        sample=ids("sample"),
        step=ids("step"),
        trajectory=ids("trajectory"),
        span=ids("span"),
    )


def totals_of(tokens: Sequence[Token]) -> Totals:
    """The totals of the tokens, counted one set at a time."""
    kept = [token for token in tokens if token.trains]
    num_trajectories = max((token.trajectory for token in tokens), default=-1) + 1
    own = [[token for token in kept if token.trajectory == number] for number in range(num_trajectories)]
    return Totals(
        tokens=len(kept),
        samples=num(kept, "sample"),
        steps=num(kept, "step"),
        trajectories=num(kept, "trajectory"),
        groups=min(num(kept, "trajectory"), 1),
        max_tokens=LENGTH,
        trajectory_tokens=tuple(len(tokens) for tokens in own),
        trajectory_steps=tuple(num(tokens, "step") for tokens in own),
    )


@dataclass(frozen=True)
class Outcome:
    """A loss and its gradients, as plain numbers."""

    loss: float
    by_logp: list[float]
    by_entropy: list[float]


def run(loss: PolicyLoss, columns: TokenColumns, totals: Totals) -> Outcome:
    """The loss of one micro-batch, and its gradients."""
    result: LossResult = loss(columns, totals)
    assert columns.entropy is not None
    by_logp, by_entropy = torch.autograd.grad(result.loss, (columns.logp, columns.entropy), allow_unused=True)
    assert by_logp is not None, "the loss hangs on logp, even where nothing trains"
    return Outcome(
        loss=float(result.loss.detach()),
        by_logp=by_logp.tolist(),
        by_entropy=by_entropy.tolist() if by_entropy is not None else [0.0] * len(columns),
    )
