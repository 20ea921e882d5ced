"""Log-probs and entropies from hidden states, without all logits of a batch in memory.

The head is applied to one chunk of predicting nodes and one tile of the vocabulary at a time. The softmax is updated
tile by tile (online softmax), and the backward pass computes the tiles again:

    d logp / d z_j = [j = y] - p_j          d H / d z_j = -p_j (ln p_j + H)

It is one autograd function. Checkpointing the same chunks takes 1.3 to 1.7 times as long on a CPU: it keeps more tables
of the size of the logits, and adds up one gradient of the whole head per chunk.

Axes: U predicting nodes, T trained tokens (several may be predicted by one node), H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch.nn import functional

from groupwise.models.pack import Predictions

VOCABULARY_TILE = 32_768
"""Columns of the logits that exist at a time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
    """How a model turns a hidden state into logits: softcap(scale x (weight · hidden + bias)).

    Worked example: Gemma 2 has `softcap` 30: a logit z becomes 30 tanh(z / 30).
    """

    weight: torch.Tensor
    """The output embedding (V, H)."""
    bias: torch.Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None
    """Bound that the logits approach; None = unbounded."""

    def compute_products(self, hidden_UH: torch.Tensor, low: int, high: int) -> torch.Tensor:
        """Products of weights and states plus bias, for the tokens `low` to `high` of the vocabulary."""
        bias = None if self.bias is None else self.bias[low:high].to(hidden_UH.dtype)
        return functional.linear(hidden_UH, self.weight[low:high].to(hidden_UH.dtype), bias)

    def compute_logits(self, hidden_UH: torch.Tensor, low: int, high: int) -> torch.Tensor:
        """Logits of the tokens `low` to `high` of the vocabulary, in float32 or better, without gradient."""
        z_UV = self.compute_products(hidden_UH, low, high)
        z_UV = z_UV.to(widen(z_UV.dtype))
        z_UV = z_UV.mul_(self.scale) if self.scale != 1.0 else z_UV
        return z_UV if self.softcap is None else z_UV.div_(self.softcap).tanh_().mul_(self.softcap)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiling:
    """How much of the logits exists at a time, and what is computed from them."""

    rows: int
    """Predicting nodes at a time."""
    columns: int = VOCABULARY_TILE
    """Tokens of the vocabulary at a time."""
    temperature: float = 1.0
    """The logits are divided by it, as in sampling."""
    entropy: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Some predicting nodes and their targets."""

    rows: slice
    pairs: slice
    """Their targets, which are consecutive."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Work:
    """What a head computation needs besides tensors."""

    head: Head
    tiling: Tiling
    predictions: Predictions

    def cut_chunks(self) -> Iterator[Chunk]:
        starts, step = self.predictions.starts, self.tiling.rows
        for low in range(0, len(starts) - 1, step):
            high = min(low + step, len(starts) - 1)
            yield Chunk(rows=slice(low, high), pairs=slice(int(starts[low]), int(starts[high])))


def cut_tiles(num_columns: int, step: int) -> Iterator[tuple[int, int]]:
    """Cut the vocabulary into tiles: the first token of each, and one past its last."""
    for low in range(0, num_columns, step):
        yield low, min(low + step, num_columns)


def find_columns(target_T: torch.Tensor, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which targets are in a tile of the vocabulary (T), and their column in it; any column for the others."""
    return (target_T >= low) & (target_T < high), (target_T - low).clamp(0, high - low - 1)


def widen(dtype: torch.dtype) -> torch.dtype:
    """The type of sums: float32 or better."""
    return torch.promote_types(dtype, torch.float32)


# The online softmax, and the head on a CPU.

Sums = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Of the logits z of each row so far: the highest (U), the sum of e^(z - high), and the sum of e^(z - high) (z - high).

The last is relative to the highest logit, which keeps the digits of large logits.

Worked example: z = (1, 2), then (0, -1): high 2, total 1.367879 then 1.553002, weighed -0.367879 then -0.787912. So the
log normaliser high + ln(total) is 2.440190, and the entropy ln(total) - weighed / total is 0.947537.
"""


def add_tile(z_UV: torch.Tensor, sums: Sums, *, entropy: bool) -> Sums:
    """Update an online softmax with one more tile of logits, which is overwritten."""
    before, total, weighed = sums
    high = torch.maximum(before, z_UV.amax(1))
    fall = before - high
    z_UV = z_UV.sub_(high[:, None])
    kept = fall.exp()
    if not entropy:
        return high, kept * total + z_UV.exp_().sum(1), weighed
    # Before the first tile `fall` is -inf, and nothing is carried over.
    carried = torch.where(kept > 0, fall * total + weighed, 0.0) * kept
    exponential = z_UV.exp()
    weighed = carried + torch.linalg.vecdot(exponential, z_UV)
    return high, kept * total + exponential.sum(1), weighed


def compute_head_logps(
    head: Head, hidden_UH: torch.Tensor, predictions: Predictions, tiling: Tiling
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob of each target (T) and, if asked, entropy at each predicting node (U); both differentiable."""
    work = Work(head=head, tiling=tiling, predictions=predictions)
    device = hidden_UH.device.type
    function = FusedHeadLogps if device == "cuda" else _HeadLogps
    apply = cast(Callable[..., tuple[torch.Tensor, torch.Tensor]], function.apply)
    if torch.is_autocast_enabled(device):
        hidden_UH = hidden_UH.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):  # as in the backward pass, which computes the logits again
        logp_T, entropy_U = apply(hidden_UH, head.weight, head.bias, work)
    return logp_T, entropy_U if tiling.entropy else None


class _HeadLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_UH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor | None, work: Work
    ) -> tuple[torch.Tensor, torch.Tensor]:
        head, tiling, row_T, target_T = work.head, work.tiling, work.predictions.row, work.predictions.target
        logp_T = hidden_UH.new_empty(len(target_T), dtype=widen(hidden_UH.dtype))
        normaliser_U = logp_T.new_empty(len(hidden_UH))
        entropy_U = torch.empty_like(normaliser_U) if tiling.entropy else normaliser_U.new_empty(0)
        for chunk in work.cut_chunks():
            hidden, row, target = hidden_UH[chunk.rows], row_T[chunk.pairs] - chunk.rows.start, target_T[chunk.pairs]
            zero, of_target = logp_T.new_zeros(len(hidden)), logp_T.new_zeros(len(row))
            sums: Sums = torch.full_like(zero, -torch.inf), zero, zero
            for low, high in cut_tiles(len(weight_VH), tiling.columns):
                z_UV = head.compute_logits(hidden, low, high).div_(tiling.temperature)
                inside, column = find_columns(target, low, high)
                of_target = torch.where(inside, z_UV[row, column], of_target)
                sums = add_tile(z_UV, sums, entropy=tiling.entropy)
            top, total, weighed = sums
            normaliser_U[chunk.rows] = normaliser = top + total.log()
            logp_T[chunk.pairs] = of_target - normaliser[row]
            if tiling.entropy:
                entropy_U[chunk.rows] = total.log() - weighed / total
        ctx.save_for_backward(hidden_UH, weight_VH, bias_V, normaliser_U, entropy_U)
        ctx.work = work
        return logp_T, entropy_U

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, into_logp_T: torch.Tensor, into_entropy_U: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_UH, weight_VH, bias_V, normaliser_U, entropy_U = ctx.saved_tensors
        tiling, head = ctx.work.tiling, replace(ctx.work.head, weight=weight_VH, bias=bias_V)
        row_T, target_T = ctx.work.predictions.row, ctx.work.predictions.target
        factor = head.scale / tiling.temperature
        needs_weight, needs_bias = ctx.needs_input_grad[1:3]
        wide = normaliser_U.dtype
        grad_hidden = torch.zeros_like(hidden_UH, dtype=wide)
        # Float32 even for narrow weights: an embedding tied to the head adds up many small terms.
        grad_weight = torch.zeros_like(weight_VH, dtype=wide) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=wide) if needs_bias else None
        for chunk in ctx.work.cut_chunks():
            hidden, row, target = hidden_UH[chunk.rows], row_T[chunk.pairs] - chunk.rows.start, target_T[chunk.pairs]
            into_logp = into_logp_T[chunk.pairs] * factor
            into_row = normaliser_U.new_zeros(len(hidden)).index_add_(0, row, into_logp)[:, None]
            for low, high in cut_tiles(len(weight_VH), tiling.columns):
                z_UV = head.compute_logits(hidden, low, high)
                slope_UV = None if head.softcap is None else 1 - (z_UV / head.softcap) ** 2
                z_UV.div_(tiling.temperature).sub_(normaliser_U[chunk.rows, None])
                if tiling.entropy:
                    into_entropy = into_entropy_U[chunk.rows, None] * factor
                    pull_UV = (z_UV + entropy_U[chunk.rows, None]).mul_(into_entropy).add_(into_row)
                    grad_UV = z_UV.exp_().mul_(pull_UV).neg_()
                else:
                    grad_UV = z_UV.exp_().mul_(-into_row)
                inside, column = find_columns(target, low, high)
                # index_add_ adds up in one order; index_put_ works in parallel, in an order that changes between runs.
                place = row * (high - low) + column
                grad_UV.view(-1).index_add_(0, place, torch.where(inside, into_logp, 0.0))
                grad_UV = (grad_UV if slope_UV is None else grad_UV.mul_(slope_UV)).to(hidden.dtype)
                grad_hidden[chunk.rows] += grad_UV @ weight_VH[low:high].to(hidden.dtype)
                if grad_weight is not None:
                    grad_weight[low:high] += grad_UV.T @ hidden
                if grad_bias is not None:
                    grad_bias[low:high] += grad_UV.sum(0)
        return (
            grad_hidden.to(hidden_UH.dtype),
            None if grad_weight is None else grad_weight.to(weight_VH.dtype),
            None if grad_bias is None else grad_bias.to(bias_V.dtype),
            None,
        )


# The head on a GPU: the same with one compiled kernel per tile.


class FusedHeadLogps(torch.autograd.Function):
    """Log-probability of each target (T) and entropy of each row (U), from hidden states."""

    @staticmethod
    def forward(
        ctx: Any, hidden_UH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor | None, work: Work
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
                sums = add_fused_tile(raw_UV, sums, scaling, entropy=work.tiling.entropy)
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


def add_fused_tile(raw_UV: torch.Tensor, before: Sums, scaling: LogitScaling, *, entropy: bool) -> Sums:
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

    `normaliser_U` is ln of the sum of e^z of each row, over all tiles. `into_row_U` is the gradient into the log-probs
    of each row, summed over its targets. `target` has the column of the first target of each row, outside the range if
    it is in another tile, and its gradient. `entropy` has that of each row and its gradient; None = not needed.
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
