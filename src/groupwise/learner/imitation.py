"""Supervised training of the local learner's model: it learns to say what samples say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import torch

from groupwise.data.samples import Sample
from groupwise.data.seeds import seed_of
from groupwise.learner.optimisers import AdamNumbers
from groupwise.learner.protocol import ReportEpoch
from groupwise.models.forward import Forward
from groupwise.models.pack import Pack, spread_over_tokens
from groupwise.models.padded_rows import PaddedRows

if TYPE_CHECKING:
    from groupwise.training.config.run_config import WarmStartConfig

IMITATION = AdamNumbers(learning_rate=3e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01)
"""What the optimiser steps with; the step size is the setting's."""
WARM_UP_STEPS = 30
"""Optimiser steps over which the step size grows: without them AdamW's first steps throw a fresh model about."""


def train_to_imitate(
    forward: Forward,
    samples: Sequence[Sample],
    config: WarmStartConfig,
    *,
    optimiser: torch.optim.Optimizer,
    seed: int,
    report: ReportEpoch | None = None,
) -> list[float]:
    """Train a model to say what samples say, tokens weighted by `advantage`; mean loss of each epoch.

    Args:
        forward: The model.
        samples: What to say.
        config: Epochs and step sizes.
        optimiser: What moves the weights; it is not used afterwards.
        seed: Where the order of the batches comes from.
        report: Called after each epoch with the losses so far, and how many epochs there will be.
    """
    batches = forward.lay_out(samples, token_budget=config.batch_tokens, unit="sample")
    weights = [sample.advantage for sample in samples]
    weighted = [(batch, spread_over_tokens(batch, weights)) for batch in batches]
    losses: list[float] = []
    for epoch in range(config.epochs):
        Random(seed_of(seed, "warm start", epoch)).shuffle(weighted)
        losses.append(_train_epoch(forward, optimiser, weighted, config, epoch))
        if report is not None:
            report(tuple(losses), config.epochs)  # a copy: whoever is told changes nothing
    return losses


def _train_epoch(
    forward: Forward,
    optimiser: torch.optim.Optimizer,
    weighted: Sequence[tuple[Pack | PaddedRows, torch.Tensor]],
    config: WarmStartConfig,
    epoch: int,
) -> float:
    total = weight = 0.0
    for number, (batch, weight_T) in enumerate(weighted):
        done = epoch * len(weighted) + number
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _share_of_step_size(done, config.epochs * len(weighted))
        logp_T, _ = forward(batch)
        loss = -(weight_T * logp_T).sum()
        (loss / weight_T.sum()).backward()
        torch.nn.utils.clip_grad_norm_(forward.model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        total, weight = total + float(loss.detach()), weight + float(weight_T.sum())
    return total / weight


def _share_of_step_size(done: int, steps: int) -> float:
    """Share of the full step size: up within a few steps, then down to a twentieth along a cosine."""
    fall = 0.05 + 0.95 * (1 + math.cos(math.pi * done / steps)) / 2
    return min(1.0, (done + 1) / WARM_UP_STEPS) * fall
