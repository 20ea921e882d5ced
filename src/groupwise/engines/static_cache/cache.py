"""Keys and values in lanes: storage that never moves, in which every row has its own length.

A lane holds one sequence from column 0 on, without padding. What a forward pass writes where, and which columns it
sees, is said by a *write* before it: whole prompts, the rests of prompts, or one token a row. The model knows nothing
of it; to the model this is a cache like any other.

Columns beyond a sequence's end may hold anything finite: no query sees them before they are written.

Axes: L lanes, B rows, T new tokens, K heads of keys and values, W columns, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

HeadShape = tuple[int, int, int]
"""Heads of keys and values of a layer, the width of a key and that of a value."""


class CacheWrite(Protocol):
    """What a forward pass does with the storage of a layer."""

    def __call__(self, stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
        """Write what is new; return what attention sees."""


@dataclass(frozen=True, eq=False)
class WriteWholePrompts:
    """Prompts from their first token, each for one lane or several; they see themselves only."""

    lanes: torch.Tensor
    """Where they go."""
    prompt: torch.Tensor
    """Which of the rows goes there."""

    def __call__(self, stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
        """Write each row to its lanes, padding at its end included."""
        stored_LKWD[self.lanes, :, : new_BKTD.shape[2]] = new_BKTD[self.prompt]
        return new_BKTD


@dataclass(frozen=True, eq=False)
class WritePromptRests:
    """The rests of prompts whose beginnings their lanes hold."""

    lanes: torch.Tensor
    """Where they go (B)."""
    columns: torch.Tensor
    """The column of each token (B, T); those of padding lie beyond the row's end."""
    width: int
    """Columns that are seen; a mask says by whom."""

    def __call__(self, stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
        """Write each token to its column."""
        stored_LKWD[self.lanes[:, None], :, self.columns] = new_BKTD.transpose(1, 2)
        return stored_LKWD[self.lanes, :, : self.width]


@dataclass(frozen=True, eq=False)
class WriteOneToken:
    """One token for each of the first rows; nothing is copied."""

    rows: torch.Tensor
    """The numbers of the rows, ascending from 0 (B)."""
    columns: torch.Tensor
    """The column of each (B)."""
    width: int
    """Columns that are seen; a mask says by whom."""

    def __call__(self, stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
        """Write each token to its column, be it seen or not: a row that has finished may be longer than the others."""
        stored_LKWD[self.rows, :, self.columns] = new_BKTD[:, :, 0]
        return stored_LKWD[: len(self.rows), :, : self.width]


class LaneLayer(DynamicLayer):
    """The storage of one layer."""

    keys: torch.Tensor
    values: torch.Tensor
    write: CacheWrite

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype, self.device = keys.dtype, keys.device
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values; return what attention sees."""
        return self.write(self.keys, key_states), self.write(self.values, value_states)

    def get_seq_length(self) -> int:
        """Nothing before a whole prompt; whoever writes something else says positions and mask."""
        return 0


class LaneCache(Cache):
    """The storage of all layers."""

    def __init__(self, layers: Sequence[LaneLayer]) -> None:
        self.storage = list(layers)
        super().__init__(layers=self.storage)  # type: ignore[arg-type]
        self.lanes, _, self.width, _ = layers[0].keys.shape
        self.dtype, self.device = layers[0].keys.dtype, layers[0].keys.device

    @classmethod
    def empty(
        cls, heads: Sequence[HeadShape], *, lanes: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> LaneCache:
        """Storage that holds zeros: a column that is not seen must still be finite."""
        return cls(
            [
                LaneLayer(
                    torch.zeros(lanes, num, width, key, dtype=dtype, device=device),
                    torch.zeros(lanes, num, width, value, dtype=dtype, device=device),
                )
                for num, key, value in heads
            ]
        )

    def resize(self, *, lanes: int, width: int) -> LaneCache:
        """The same in storage of another size, a layer at a time; this cache is empty afterwards."""
        layers = []
        while self.storage:
            layer = self.storage.pop(0)
            layers.append(LaneLayer(_copy_resized(layer.keys, lanes, width), _copy_resized(layer.values, lanes, width)))
        return LaneCache(layers)

    def prepare(self, write: CacheWrite) -> LaneCache:
        """Say what the next forward pass writes."""
        for layer in self.storage:
            layer.write = write
        return self

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Put what some lanes hold into others; sources are read before anything is written."""
        for layer in self.storage:
            layer.keys[targets], layer.values[targets] = layer.keys[sources], layer.values[sources]


def _copy_resized(stored: torch.Tensor, lanes: int, width: int) -> torch.Tensor:
    resized = stored.new_zeros(lanes, stored.shape[1], width, stored.shape[3])
    kept, columns = min(lanes, stored.shape[0]), min(width, stored.shape[2])
    resized[:kept, :, :columns] = stored[:kept, :, :columns]
    return resized


def make_additive_mask(is_seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask that every attention understands: 0 where a column is seen, else -inf."""
    return torch.zeros_like(is_seen, dtype=dtype).masked_fill_(~is_seen, -torch.inf)
