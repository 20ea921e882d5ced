"""A key-value cache with room to grow: a decoding step writes its keys in place instead of copying all before it.

Rows that begin with the same prompt can share its columns (`share`); what they add is each row's own.

Axes: B rows, A attention heads, W columns, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from groupwise.engines.transformers.shared_prompts import Places, SharedStates

GROWTH = 1.25
"""How much longer a full layer gets: enough that long responses copy seldom, little enough to hold in memory."""
ROOM = 16
"""Columns that a full layer gets at least."""


KeysAndValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """Columns that rows share."""

    states: KeysAndValues
    """Keys and values of each prompt."""
    places: Places
    """Which rows read which."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A layer as it stands: what is written in it later does not change it."""

    own: KeysAndValues
    """Keys and values of the rows, with room at the end."""
    prompts: Prompts | None
    """Columns before them that rows share."""

    def select_rows(self, numbers: torch.Tensor) -> KeysAndValues:
        """Keys and values of some rows, in storage of their own."""
        keys, values = (states[numbers] for states in self.own)
        if self.prompts is None:
            return keys, values
        shared_keys, shared_values = (states[self.prompts.places.prompt[numbers]] for states in self.prompts.states)
        return torch.cat((shared_keys, keys), dim=2), torch.cat((shared_values, values), dim=2)


class RoomyLayer(DynamicLayer):
    """One layer's keys and values: views of longer storage. Columns that were written are never changed."""

    stored: KeysAndValues
    length: int
    prompts: Prompts | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns after those that are there; everything so far is returned."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.stored, self.length = (key_states[:, :, :0], value_states[:, :, :0]), 0
        keys, values = self.stored
        self.stored = _write(keys, key_states, self.length), _write(values, value_states, self.length)
        return self._show(self.length + key_states.shape[2])

    def hold(self, stored: KeysAndValues, length: int) -> None:
        """Start from storage of which the first `length` columns are written."""
        self.lazy_initialization(*stored)
        self.stored = stored
        self._show(length)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows, some of them several times, in storage of their own."""
        keys, values = self.stored
        self.stored = keys[indices], values[indices]
        if self.prompts is not None:
            used, prompt = torch.unique(self.prompts.places.prompt[indices], return_inverse=True)
            keys, values = self.prompts.states
            self.prompts = Prompts((keys[used], values[used]), Places.of(prompt, len(used)))
        self._show(self.length)

    def share(self, places: Places) -> None:
        """Make the rows so far the prompts of new rows, which have no columns of their own yet."""
        keys, values = (states[:, :, : self.length].contiguous() for states in self.stored)
        self.prompts = Prompts((keys, values), places)
        self.stored = _make_room(keys, len(places.prompt)), _make_room(values, len(places.prompt))
        self._show(0)

    def snapshot(self) -> Stored:
        """The layer as it stands."""
        return Stored(self.stored, self.prompts)

    def _show(self, length: int) -> KeysAndValues:
        self.length = length
        self.keys, self.values = (stored[:, :, :length] for stored in self.stored)
        if self.prompts is not None:
            keys, values = self.prompts.states
            self.keys = SharedStates.of(keys, self.prompts.places, self.keys)
            self.values = SharedStates.of(values, self.prompts.places, self.values)
        return self.keys, self.values


def make_empty_cache() -> Cache:
    """An empty cache; it grows a layer for each that the model has."""
    return Cache(layer_class_to_replicate=RoomyLayer)


def share_prompts(cache: Cache, prompt: torch.Tensor) -> None:
    """Let new rows share the rows that a cache holds, each the one with its number (B)."""
    layers = [layer for layer in cache.layers if isinstance(layer, RoomyLayer)]
    places = Places.of(prompt, len(layers[0].stored[0]))
    for layer in layers:
        layer.share(places)


def make_cache(layers: Sequence[KeysAndValues], length: int) -> Cache:
    """A cache that starts from keys and values, a pair a layer, of which the first `length` columns are written."""
    cache = make_empty_cache()
    for stored in layers:
        layer = RoomyLayer()  # type: ignore[no-untyped-call]
        layer.hold(stored, length)
        cache.layers.append(layer)
    return cache


def _make_room(like: torch.Tensor, rows: int) -> torch.Tensor:
    return like.new_zeros(rows, like.shape[1], ROOM, like.shape[3])


def _write(stored: torch.Tensor, new: torch.Tensor, start: int) -> torch.Tensor:
    """Write new columns at `start` and return the storage; longer storage where it was full."""
    end = start + new.shape[2]
    if end > stored.shape[2]:
        longer = new.new_zeros(*new.shape[:2], max(int(GROWTH * end), end + ROOM), new.shape[3])
        longer[:, :, :start] = stored[:, :, :start]
        stored = longer
    stored[:, :, start:end] = new
    return stored
