"""What the fused head (`models.head.fused`) holds at a time, tile by tile, without the arithmetic in its kernels.

Axes: U predicting nodes, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from groupwise.models.head.output_layer import VOCABULARY_TILE, cut_tiles


class HeadOutline(torch.autograd.Function):
    """A number for each predicting node (U), from hidden states and the weight of the output layer."""

    @staticmethod
    def forward(ctx: Any, hidden_UH: torch.Tensor, weight_VH: torch.Tensor, chunk: int) -> torch.Tensor:  # noqa: D102
        ctx.save_for_backward(hidden_UH, weight_VH)
        ctx.chunk = chunk
        narrow = weight_VH.to(hidden_UH.dtype)
        for rows in hidden_UH.split(chunk):
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
        del raw_UV
        return hidden_UH.new_empty(len(hidden_UH), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, into_U: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: D102
        hidden_UH, weight_VH = ctx.saved_tensors
        narrow = weight_VH.to(hidden_UH.dtype)
        grad_hidden = torch.empty_like(hidden_UH)
        grad_weight = torch.zeros_like(weight_VH, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for rows in hidden_UH.split(ctx.chunk):
            total = torch.zeros_like(rows, dtype=torch.float32)
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
                grad_UV = torch.empty_like(raw_UV)
                total += grad_UV @ narrow[low:high]
                if grad_weight is not None:
                    grad_weight[low:high] += grad_UV.T @ rows
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VH.dtype), None
