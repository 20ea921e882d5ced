"""The chunked head on a GPU: like `models.head`, but with one compiled kernel per tile.

Axes: U predicting nodes, T trained tokens (several may be predicted by one node), H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch

from groupwise.models.output_layer import Chunk, Head, Work, cut_tiles, find_columns, widen
from groupwise.models.pack import Predictions


class FusedHeadLogps(torch.autograd.Function):
    """Log-probability of each target (T) and entropy of each row (U), from hidden states."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_UH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        work: Work,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        head, scaling = _cast_head(work.head, hidden_UH), _read_scaling(work)
        row_T, target_T = work.predictions.row, work.predictions.target
        logp_T = hidden_UH.new_empty(len(target_T), dtype=widen(hidden_UH.dtype))
        normaliser_U = logp_T.new_empty(len(hidden_UH))
        entropy_U = torch.empty_like(normaliser_U) if work.tiling.entropy else normaliser_U.new_empty(0)
        for chunk in work.cut_chunks():
            hidden, row, target = hidden_UH[chunk.rows], row_T[chunk.pairs] - chunk.rows.start, target_T[chunk.pairs]
            nothing = logp_T.new_zeros(len(hidden))
            sums: Sums = torch.full_like(nothing, -torch.inf), nothing, nothing
            of_target = logp_T.new_zeros(len(row))
            for low, high in cut_tiles(len(weight_VH), work.tiling.columns):
                raw_UV = head.compute_products(hidden, low, high)
                inside, column = find_columns(target, low, high)
                of_target = torch.where(inside, compute_target_logits(raw_UV[row, column], scaling), of_target)
                sums = add_tile(raw_UV, sums, scaling, entropy=work.tiling.entropy)
            top, total, weighed = sums
            normaliser_U[chunk.rows] = normaliser = top + total.log()
            logp_T[chunk.pairs] = of_target - normaliser[row]
            if work.tiling.entropy:
                entropy_U[chunk.rows] = total.log() - weighed / total
        ctx.save_for_backward(hidden_UH, weight_VH, bias_V, normaliser_U, entropy_U)
        ctx.work = work
        return logp_T, entropy_U

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, into_logp_T: torch.Tensor, into_entropy_U: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_UH, weight_VH, bias_V, normaliser_U, entropy_U = ctx.saved_tensors
        work: Work = ctx.work
        head, scaling = _cast_head(replace(work.head, weight=weight_VH, bias=bias_V), hidden_UH), _read_scaling(work)
        needs_weight, needs_bias = ctx.needs_input_grad[1:3]
        grad_hidden = torch.empty_like(hidden_UH)
        grad_weight = torch.zeros_like(weight_VH, dtype=normaliser_U.dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=normaliser_U.dtype) if needs_bias else None
        into = _Into.of(work.predictions, into_logp_T)
        for chunk in work.cut_chunks():
            rows, hidden = chunk.rows, hidden_UH[chunk.rows]
            total = grad_hidden.new_zeros(hidden.shape, dtype=normaliser_U.dtype)
            entropy = (entropy_U[rows], into_entropy_U[rows]) if work.tiling.entropy else None
            for low, high in cut_tiles(len(weight_VH), work.tiling.columns):
                raw_UV = head.compute_products(hidden, low, high)
                target = into.first[rows] - low, into.into_first[rows]
                grad_UV = compute_tile_gradient(raw_UV, normaliser_U[rows], into.row[rows], target, entropy, scaling)
                into.add_others(grad_UV, raw_UV, chunk, low, high, scaling)
                total += grad_UV @ head.weight[low:high]
                if grad_weight is not None:
                    grad_weight[low:high] += grad_UV.T @ hidden
                if grad_bias is not None:
                    grad_bias[low:high] += grad_UV.sum(0, dtype=grad_bias.dtype)
            grad_hidden[rows] = total.to(grad_hidden.dtype)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight_VH.dtype),
            None if grad_bias is None else grad_bias.to(bias_V.dtype),
            None,
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Into:
    """Gradients into the log-probs. The kernel adds the first target of each row; other targets are added after it."""

    row: torch.Tensor  # sum over the targets of each row (U)
    first: torch.Tensor  # token id of the first of them (U)
    into_first: torch.Tensor  # the gradient into it (U)
    others: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None  # rows, token ids and gradients; None = no others

    @classmethod
    def of(cls, predictions: Predictions, into_T: torch.Tensor) -> _Into:
        row = into_T.new_zeros(len(predictions.node)).index_add_(0, predictions.row, into_T)
        others = predictions.row[predictions.others], predictions.target[predictions.others], into_T[predictions.others]
        return cls(
            row,
            predictions.target[predictions.first],
            into_T[predictions.first],
            others if len(predictions.others) else None,
        )

    def add_others(
        self, grad_UV: torch.Tensor, raw_UV: torch.Tensor, chunk: Chunk, low: int, high: int, scaling: LogitScaling
    ) -> None:
        """Add the gradients of a row's other targets to a tile. Targets outside it add 0, to avoid a device sync."""
        if self.others is None:
            return
        row, target, into = self.others
        here = (row >= chunk.rows.start) & (row < chunk.rows.stop) & (target >= low) & (target < high)
        row, target = torch.where(here, row - chunk.rows.start, 0), torch.where(here, target - low, 0)
        slope = torch.full_like(into, scaling.scale / scaling.temperature)
        if scaling.cap is not None:
            z = compute_target_logits(raw_UV[row, target], scaling._replace(temperature=1.0))
            slope = slope * (1 - (z / scaling.cap) ** 2)
        place, added = row * (high - low) + target, torch.where(here, into * slope, 0.0)
        grad_UV.view(-1).index_add_(0, place, added.to(grad_UV.dtype))


def _cast_head(head: Head, hidden_UH: torch.Tensor) -> Head:
    """The output layer in the type of the states, converted once and not per chunk."""
    bias = None if head.bias is None else head.bias.to(hidden_UH.dtype)
    return replace(head, weight=head.weight.to(hidden_UH.dtype), bias=bias)


def _read_scaling(work: Work) -> LogitScaling:
    return LogitScaling(scale=work.head.scale, cap=work.head.softcap, temperature=work.tiling.temperature)


# A tile of logits on a GPU is read once or twice, and never written to memory in float32.
#
# As single operations, a tile would go through memory a dozen times, which takes longer than the matrix products. The
# compiled softmax reads the products and keeps three numbers per row. The compiled gradient reads them and writes the
# input of the next products.
#
# Axes: U predicting nodes, V tokens of a tile of the vocabulary.


class LogitScaling(NamedTuple):
    """From a product z of weights and states to a logit: cap tanh(scale z / cap) / temperature."""

    scale: float
    cap: float | None
    """Bound that the logits approach; None = unbounded."""
    temperature: float


Sums = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The highest logit of each row (U), the sum of e^(z - high), and the sum of e^(z - high) (z - high)."""


def add_tile(raw_UV: torch.Tensor, before: Sums, scaling: LogitScaling, *, entropy: bool) -> Sums:
    """Update an online softmax with one more tile."""
    sums: Sums = _fuse(_add_tile, raw_UV)(raw_UV, before, scaling, entropy)
    return sums


def compute_target_logits(raw_T: torch.Tensor, scaling: LogitScaling) -> torch.Tensor:
    """Logits over temperature, in float32, of some products of a tile."""
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
        target: Column of the first target of each row, outside the range if it is in another tile, and its gradient.
        entropy: Entropy of each row and the gradient into it; None = not needed.
        scaling: From products to logits.
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
    """The function as one compiled kernel; on a CPU, the function itself."""
    return function if like.device.type == "cpu" else _compile(function)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
