"""A key-value cache with room to grow: a decoding step writes its keys in place instead of copying all before it.

Axes: B rows, A attention heads, W columns, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

GROWTH = 1.25
"""How much longer a full layer gets: enough that long responses copy seldom, little enough to hold in memory."""
ROOM = 16
"""Columns that a full layer gets at least."""


class RoomyLayer(DynamicLayer):
    """One layer's keys and values: views of longer storage. Columns that were written are never changed."""

    stored: tuple[torch.Tensor, torch.Tensor]
    length: int

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns after those that are there; everything so far is returned."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.stored, self.length = (key_states[:, :, :0], value_states[:, :, :0]), 0
        keys, values = self.stored
        self.stored = _written(keys, key_states, self.length), _written(values, value_states, self.length)
        return self._show(self.length + key_states.shape[2])

    def hold(self, stored: tuple[torch.Tensor, torch.Tensor], length: int) -> None:
        """Start from storage of which the first `length` columns are written."""
        self.lazy_initialization(*stored)
        self.stored = stored
        self._show(length)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows, some of them several times, in storage of their own."""
        keys, values = self.stored
        self.stored = keys[indices], values[indices]
        self._show(self.length)

    def _show(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.length = length
        self.keys, self.values = (stored[:, :, :length] for stored in self.stored)
        return self.keys, self.values


def roomy_cache() -> Cache:
    """An empty cache; it grows a layer for each that the model has."""
    return Cache(layer_class_to_replicate=RoomyLayer)


def held_cache(layers: Sequence[tuple[torch.Tensor, torch.Tensor]], length: int) -> Cache:
    """A cache that starts from keys and values, a pair a layer, of which the first `length` columns are written."""
    cache = roomy_cache()
    for stored in layers:
        layer = RoomyLayer()  # type: ignore[no-untyped-call]
        layer.hold(stored, length)
        cache.layers.append(layer)
    return cache


def _written(stored: torch.Tensor, new: torch.Tensor, start: int) -> torch.Tensor:
    """Storage with new columns written at `start`; longer storage where it was full."""
    end = start + new.shape[2]
    if end > stored.shape[2]:
        longer = new.new_zeros(*new.shape[:2], max(int(GROWTH * end), end + ROOM), new.shape[3])
        longer[:, :, :start] = stored[:, :, :start]
        stored = longer
    stored[:, :, start:end] = new
    return stored
