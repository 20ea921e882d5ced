"""One update of a loss through a layout: loss and gradient, everything the loss may need handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn

from groupwise.data.samples import Pair, Sample, count_totals
from groupwise.learner.local import merge_summaries
from groupwise.learner.micro_batches import MicroBatch, make_micro_batches
from groupwise.losses.token_columns import ENTROPY, PAIRS, SPANS, TokenColumns
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import Pack, PaddedRows, spread_over_tokens
from groupwise.parts.slots import Loss
from groupwise.training.loss_context import get_declared

ChangeColumns = Callable[[TokenColumns], TokenColumns]


def update(
    model: nn.Module,
    loss: Loss,
    samples: Sequence[Sample],
    layouts: Sequence[Pack | PaddedRows],
    change_columns: ChangeColumns = lambda columns: columns,
) -> tuple[float, torch.Tensor]:
    """The loss and the gradient as one vector. Old and reference log-probs lie a little beside the engine's.

    `change_columns` may change what the loss is handed of each micro-batch.
    """
    device = next(model.parameters()).device
    model.zero_grad()
    samples = [give_context(sample, loss) for sample in samples]
    pairs = pair_up(samples) if PAIRS in loss.needs else ()
    total, counted = 0.0, count_totals(samples, max_tokens=16, pairs=pairs)
    micro_batches = []
    for micro in make_micro_batches(samples, [layout.to(device) for layout in layouts]):
        behaviour = micro.logp_behaviour
        wave = 0.1 * torch.sin(spread_over_tokens(micro.layout, [float(number) for number in range(len(samples))]))
        micro_batches.append(replace(micro, logp_old=behaviour + wave, logp_ref=behaviour - 0.5 * wave))

    def columns_of(micro: MicroBatch) -> TokenColumns:
        return change_columns(micro.columns(*compute_token_logps(model, micro.layout, entropy=ENTROPY in loss.needs)))

    summary: tuple[object, ...] = ()
    if hasattr(loss, "first_pass"):
        with torch.no_grad():
            parts = (loss.first_pass(columns_of(micro), counted) for micro in micro_batches)  # type: ignore[attr-defined]
            summary = (merge_summaries(loss, parts),)
    for micro in micro_batches:
        result = loss(columns_of(micro), counted, *summary)
        result.loss.backward()
        total += result.loss.item()
    gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
    return total, torch.cat(gradients).double().cpu()


def give_context(sample: Sample, loss: Loss) -> Sample:
    """A sample with the spans, columns and channels that the loss reads: numbers from 0 to 1, one a trajectory."""
    number = (sample.trajectory * 3 % 7) / 6
    return replace(
        sample,
        spans=tuple(place // 2 for place in range(len(sample.response_ids))) if SPANS in loss.needs else None,
        columns=dict.fromkeys(get_declared(loss, "columns"), number),
        channels=dict.fromkeys(get_declared(loss, "channels"), number),
    )


def pair_up(samples: Sequence[Sample]) -> list[Pair]:
    """Pairs of each group's rollouts, and of two of their steps."""
    groups: dict[int, list[int]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample.trajectory)
    pairs = []
    for trajectories in groups.values():
        numbers = sorted(set(trajectories))
        for winner, loser in pairwise(numbers):
            pairs += [Pair(winner, loser, 0.5 + winner / 4, 0.4), Pair(loser, winner, 1.0, 0.3, 1, 0)]
    return pairs


def apart(gradient: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error, as norms."""
    return float((gradient - expected).norm() / expected.norm())
