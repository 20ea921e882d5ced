"""Log-probs and entropies from hidden states, without all logits of a batch in memory.

The head is applied to one chunk of predicting nodes and one tile of the vocabulary at a time. The softmax is updated
tile by tile (online softmax), and the backward pass computes the tiles again:

    d logp / d z_j = [j = y] - p_j          d H / d z_j = -p_j (ln p_j + H)

It is one autograd function. Checkpointing the same chunks takes 1.3 to 1.7 times as long on a CPU: it keeps more tables
of the size of the logits, and adds up one gradient of the whole head per chunk.

Axes: U predicting nodes, T trained tokens (several may be predicted by one node), H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch

from groupwise.models.fused_head import FusedHeadLogps
from groupwise.models.output_layer import Head, Tiling, Work, cut_tiles, find_columns, widen
from groupwise.models.pack import Predictions

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
        ctx: Any,
        hidden_UH: torch.Tensor,
        weight_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        work: Work,
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
