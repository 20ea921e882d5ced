"""A tile of logits on a GPU: read once or twice and never written out in float32.

Operation by operation, a tile is passed through memory a dozen times, which takes longer than the matrix products
around it. Compiled, the softmax reads the products as they are and keeps three numbers a row; the gradient reads them
and writes what the next products read.

Axes: U predicting nodes, V tokens of a tile of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch


class LogitScaling(NamedTuple):
    """What becomes of a product of weights and states: cap tanh(scale z / cap) / temperature."""

    scale: float
    """Factor of the logits."""
    cap: float | None
    """Bound that the logits approach; None = unbounded."""
    temperature: float
    """What they are divided by."""


Sums = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The highest logit of each row (U), the sum of e^(z - high), and the sum of e^(z - high) (z - high)."""


def add_tile(raw_UV: torch.Tensor, before: Sums, scaling: LogitScaling, *, entropy: bool) -> Sums:
    """Carry a softmax over a further tile."""
    sums: Sums = _fuse(_add_tile, raw_UV)(raw_UV, before, scaling, entropy)
    return sums


def compute_target_logits(raw_T: torch.Tensor, scaling: LogitScaling) -> torch.Tensor:
    """Logits over temperature, in float32, of products picked out of a tile."""
    return _scale_and_cap(raw_T, scaling) / scaling.temperature


def compute_tile_gradient(
    raw_UV: torch.Tensor,
    normaliser_U: torch.Tensor,
    into_row_U: torch.Tensor,
    target: tuple[torch.Tensor, torch.Tensor],
    entropy: tuple[torch.Tensor, torch.Tensor] | None,
    scaling: LogitScaling,
) -> torch.Tensor:
    """Gradient of a tile of products (U, V), in their own type.

    Args:
        raw_UV: The products.
        normaliser_U: ln of the sum of e^z of each row, over all tiles.
        into_row_U: Gradient into the log-probs of each row, summed over its targets.
        target: Column of a target of each row, outside the tile where it is in another, and the gradient into it.
        entropy: Entropy of each row and the gradient into it; None = not asked for.
        scaling: What becomes of the products.
    """
    gradient: torch.Tensor = _fuse(_compute_tile_gradient, raw_UV)(
        raw_UV, normaliser_U, into_row_U, target, entropy, scaling
    )
    return gradient


def _scale_and_cap(raw: torch.Tensor, scaling: LogitScaling) -> torch.Tensor:
    z = raw.to(torch.promote_types(raw.dtype, torch.float32)) * scaling.scale
    return z if scaling.cap is None else torch.tanh(z / scaling.cap) * scaling.cap


def _add_tile(raw_UV: torch.Tensor, before: Sums, scaling: LogitScaling, entropy: bool) -> Sums:
    high, total, weighed = before
    z_UV = _scale_and_cap(raw_UV, scaling) / scaling.temperature
    top = torch.maximum(high, z_UV.amax(1))
    below_UV = z_UV - top[:, None]
    exponential_UV = below_UV.exp()
    fall = high - top
    kept = fall.exp()
    if entropy:
        # Before the first tile `fall` is -inf and nothing is carried.
        carried = torch.where(kept > 0, fall * total + weighed, 0.0) * kept
        weighed = carried + (exponential_UV * below_UV).sum(1)
    return top, kept * total + exponential_UV.sum(1), weighed


def _compute_tile_gradient(
    raw_UV: torch.Tensor,
    normaliser: torch.Tensor,
    into_row: torch.Tensor,
    target: tuple[torch.Tensor, torch.Tensor],
    entropy: tuple[torch.Tensor, torch.Tensor] | None,
    scaling: LogitScaling,
) -> torch.Tensor:
    column, into_target = target
    z_UV = _scale_and_cap(raw_UV, scaling)
    logp_UV = z_UV / scaling.temperature - normaliser[:, None]
    pull_UV = into_row[:, None]
    if entropy is not None:
        value, into_entropy = entropy
        pull_UV = pull_UV + (logp_UV + value[:, None]) * into_entropy[:, None]
    is_target = torch.arange(raw_UV.shape[1], device=raw_UV.device)[None, :] == column[:, None]
    grad_UV = torch.where(is_target, into_target[:, None], 0.0) - logp_UV.exp() * pull_UV
    if scaling.cap is not None:
        grad_UV = grad_UV * (1 - (z_UV / scaling.cap) ** 2)
    return (grad_UV * (scaling.scale / scaling.temperature)).to(raw_UV.dtype)


def _fuse(function: Callable[..., Any], like: torch.Tensor) -> Callable[..., Any]:
    """The function in one kernel where there is a compiler for the device, as written on a CPU."""
    return function if like.device.type == "cpu" else _compile(function)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
