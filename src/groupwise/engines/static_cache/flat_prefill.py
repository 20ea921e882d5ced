"""Reading prompts into lanes by layers of our own: rows of any length side by side, each distinct prompt once.

Of a prompt all tokens but the last are read here, as in `prefill`; what a lane holds already is not read again. On a
GPU a light batch is a CUDA graph: it is filled up to one of a bounded set of sizes, and its tables lie where the graph
finds them. A heavy one computes for longer than its kernels take to launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from groupwise.engines.static_cache.cache import LaneCache
from groupwise.engines.static_cache.graph_capture import GraphPool
from groupwise.engines.static_cache.lanes import Row
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.token_batch import (
    Integers,
    TableSizes,
    UnreadRow,
    join_columns,
    list_columns,
    send,
    split_columns,
)

MIN_TOKENS = 64
"""Smallest batch that is captured."""
SIZES_AN_OCTAVE = 4
"""Sizes that are captured between one and twice it."""


class FlatPrefill:
    """Reads prompts without padding."""

    def __init__(
        self, layers: OwnLayers, cache: LaneCache, *, batch_tokens: int, light_tokens: float, pool: GraphPool | None
    ) -> None:
        """Batches of at most `batch_tokens`, but for a prompt that is longer by itself.

        Those of at most `light_tokens` are filled up, and captured where there is a pool for graphs.
        """
        self._layers, self._cache, self._batch_tokens = layers, cache, batch_tokens
        self._light_tokens, self._pool = min(light_tokens, batch_tokens), pool
        self._light: dict[int, _LightBatch] = {}

    @property
    def num_captures(self) -> int:
        """Graphs that have been captured."""
        return len(self._light) if self._pool is not None else 0

    def read(self, rows: Sequence[Row]) -> None:
        """Read the prompts of rows into their lanes."""
        for batch in self._cut_batches(list_unread(rows)):
            num = round_up_tokens(sum(len(row.ids) for row in batch))
            if num > self._light_tokens:
                self._layers.read_rows(batch, self._cache)
                continue
            if num not in self._light:
                self._light[num] = _LightBatch(self._layers, self._cache, num, self._pool)
            self._light[num].read(batch)

    def _cut_batches(self, unread: Sequence[UnreadRow]) -> Iterator[list[UnreadRow]]:
        batch: list[UnreadRow] = []
        num = 0
        for row in unread:
            if batch and num + len(row.ids) > self._batch_tokens:
                yield batch
                batch, num = [], 0
            batch.append(row)
            num += len(row.ids)
        if batch:
            yield batch


class _LightBatch:
    """Batches of one size."""

    def __init__(self, layers: OwnLayers, cache: LaneCache, tokens: int, pool: GraphPool | None) -> None:
        self._layers, self._cache = layers, cache
        tiles = tokens * layers.queries // layers.tile + cache.lanes
        self._sizes = TableSizes(tokens=tokens, rows=cache.lanes + 1, lanes=cache.lanes, tiles=tiles)
        self._joint = send(self._list_joint([]), cache.device)
        self._batch, self._table = split_columns(self._joint, self._sizes.lengths)
        self._graph: Any = None
        if pool is not None:
            with torch.cuda.device(cache.device):
                self._graph = pool.capture(self._run)

    def read(self, rows: Sequence[UnreadRow]) -> None:
        """Read rows into their lanes."""
        self._joint.copy_(send(self._list_joint(rows), self._cache.device))
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _list_joint(self, rows: Sequence[UnreadRow]) -> Integers:
        queries, tile = self._layers.queries, self._layers.tile
        return join_columns(list_columns(rows, queries=queries, tile=tile, sizes=self._sizes))

    def _run(self) -> None:
        self._layers.read_batch(self._batch, self._table, self._cache)


def round_up_tokens(num: int) -> int:
    """The smallest size that is captured and holds some tokens."""
    octave = MIN_TOKENS
    while 2 * octave < num:
        octave *= 2
    part = octave // SIZES_AN_OCTAVE
    return max(MIN_TOKENS, -(-num // part) * part)


def list_unread(rows: Sequence[Row]) -> list[UnreadRow]:
    """What must be read for rows: a whole prompt once for all lanes that want it, else what its lane does not hold."""
    whole: dict[tuple[int, ...], list[int]] = {}
    unread = []
    for row in rows:
        ids = row.request.prompt_ids[row.num_known : -1]
        if not row.num_known:
            whole.setdefault(ids, []).append(row.lane)
        elif ids:
            unread.append(UnreadRow(ids, row.num_known, (row.lane,)))
    whole.pop((), None)
    return [*(UnreadRow(ids, 0, tuple(lanes)) for ids, lanes in whole.items()), *unread]
