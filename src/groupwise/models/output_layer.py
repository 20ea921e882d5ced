"""The output layer, and how much of its logits exists at a time.

Axes: U predicting nodes, T trained tokens (several may be predicted by one node), H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
