"""One update of a recipe's loss through a layout: loss and gradient, everything the loss may need handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from groupwise.batching import Pack, PaddedRows, count_totals, spread_over_tokens
from groupwise.core.parts.slots import Loss
from groupwise.core.sample import Sample
from groupwise.losses.token_columns import ENTROPY
from groupwise.models.logps import compute_token_logps
from groupwise.training.learner.micro_batches import make_micro_batches


def update(
    model: nn.Module, loss: Loss, samples: Sequence[Sample], layouts: Sequence[Pack | PaddedRows]
) -> tuple[float, torch.Tensor]:
    """The loss and the gradient as one vector. Old and reference log-probs lie a little beside the engine's."""
    device = next(model.parameters()).device
    model.zero_grad()
    total, counted = 0.0, count_totals(samples, max_tokens=16)
    for micro in make_micro_batches(samples, [layout.to(device) for layout in layouts]):
        logp_T, entropy_T = compute_token_logps(model, micro.layout, entropy=ENTROPY in loss.needs)
        behaviour = micro.logp_behaviour
        wave = 0.1 * torch.sin(spread_over_tokens(micro.layout, [float(number) for number in range(len(samples))]))
        micro = replace(micro, logp_old=behaviour + wave, logp_ref=behaviour - 0.5 * wave)
        result = loss(micro.columns(logp_T, entropy_T), counted)
        result.loss.backward()
        total += float(result.loss.detach())
    gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
    return total, torch.cat(gradients).float().cpu()


def apart(gradient: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error, as norms."""
    return float((gradient - expected).norm() / expected.norm())
