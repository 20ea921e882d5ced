"""Prefill prompts into lanes, in batches: each distinct prompt once, prompts of similar length together.

All tokens of a prompt but the last are read here. Decoding reads the last token first, to predict the first token of
the response. So no logits are computed here, and prompts that differ only in their last token are read once.

Axes: B rows, T tokens, W columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from groupwise.engines.static_cache.cache import (
    LaneCache,
    Row,
    TableSizes,
    UnreadRow,
    join_columns,
    list_columns,
    make_additive_mask,
    send,
    split_columns,
)
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.step import GraphPool

WASTE = 1.25
"""Length of the longest prompt of a batch divided by that of the shortest, at most: the others are padded to it."""
SLACK = 16
"""Tokens by which it may be longer in any case."""
LIGHT_OPERATIONS = 4e12
"""Operations of a batch, padding included, up to which prompts of any lengths are batched: 10 ms on a fast GPU. This is
about the launch time of another batch: 15,000 tokens with 135 million parameters, 1,300 with 1.5 billion."""
MAX_LIGHT_TOKENS = 16_384
"""Maximum number of tokens of such a batch for small models: padding costs attention too."""


class Prefill:
    """Reads prompts with the body of a model, without its head."""

    def __init__(self, body: Any, cache: LaneCache, *, batch_tokens: int, light_tokens: float = 0) -> None:
        """Batches have at most `batch_tokens`; up to `light_tokens`, padding included, they mix any lengths."""
        self._body, self._cache, self._batch_tokens, self._light_tokens = body, cache, batch_tokens, light_tokens
        self._device = cache.device

    def read(self, rows: Sequence[Row]) -> None:
        unread = list_unread(rows)
        for whole in self._cut_batches([row for row in unread if not row.known]):
            self._read_whole(whole)
        for rests in self._cut_batches([row for row in unread if row.known]):
            self._read_rests(rests)

    def _cut_batches(self, rows: Sequence[UnreadRow]) -> Iterator[list[UnreadRow]]:
        """Rows of similar length together, as many as the token budget holds."""
        batch: list[UnreadRow] = []
        for row in sorted(rows, key=lambda row: len(row.ids)):
            longest = len(row.ids)
            tokens = (len(batch) + 1) * longest
            is_wasteful = tokens > self._light_tokens and bool(batch) and longest > WASTE * len(batch[0].ids) + SLACK
            if batch and (tokens > self._batch_tokens or is_wasteful):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _read_whole(self, rows: Sequence[UnreadRow]) -> None:
        lanes = self._to_tensor([lane for row in rows for lane in row.lanes])
        prompt = self._to_tensor([number for number, row in enumerate(rows) for _ in row.lanes])

        def write(stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
            stored_LKWD[lanes, :, : new_BKTD.shape[2]] = new_BKTD[prompt]  # padding at the end included
            return new_BKTD

        # Padding comes last, so causal attention masks it.
        self._body(input_ids=self._pad_right(rows), past_key_values=self._cache.prepare(write), use_cache=True)

    def _read_rests(self, rows: Sequence[UnreadRow]) -> None:
        """Padding gets columns beyond the row's end, which decoding overwrites before it reads them."""
        ids_BT = self._pad_right(rows)
        known_B = self._to_tensor([row.known for row in rows])
        position_BT = known_B[:, None] + torch.arange(ids_BT.shape[1], device=self._device)
        column_BT = position_BT.clamp(max=self._cache.width - 1)
        width = min(self._cache.width, max(row.known + len(row.ids) for row in rows))
        is_seen_BTW = torch.arange(width, device=self._device) <= position_BT[:, :, None]
        lanes = self._to_tensor([row.lanes[0] for row in rows])

        def write(stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
            stored_LKWD[lanes[:, None], :, column_BT] = new_BKTD.transpose(1, 2)
            return stored_LKWD[lanes, :, :width]

        self._body(
            input_ids=ids_BT,
            position_ids=position_BT,
            attention_mask=make_additive_mask(is_seen_BTW, self._cache.dtype)[:, None],
            past_key_values=self._cache.prepare(write),
            use_cache=True,
        )

    def _pad_right(self, rows: Sequence[UnreadRow]) -> torch.Tensor:
        width = max(len(row.ids) for row in rows)
        return self._to_tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows])

    def _to_tensor(self, numbers: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(numbers, device=self._device, dtype=torch.long)


# Prefill with our own layers: rows of any length in one flat batch, each distinct prompt once.
#
# Tokens that a lane already holds are not read again. On a GPU a light batch is a CUDA graph: it is padded to one of a
# bounded set of sizes, and its tables are at fixed addresses. A heavy batch needs no graph: it computes for longer than
# its kernels take to launch.

MIN_TOKENS = 64
SIZES_AN_OCTAVE = 4
"""Number of captured sizes between a size and twice that size."""


class FlatPrefill:
    """Reads prompts without padding."""

    def __init__(
        self, layers: OwnLayers, cache: LaneCache, *, batch_tokens: int, light_tokens: float, pool: GraphPool | None
    ) -> None:
        """Batches have at most `batch_tokens`, except for a single longer prompt.

        Batches of at most `light_tokens` are padded, and captured if there is a graph pool.
        """
        self._layers, self._cache, self._batch_tokens = layers, cache, batch_tokens
        self._light_tokens, self._pool = min(light_tokens, batch_tokens), pool
        self._light: dict[int, _LightBatch] = {}

    @property
    def num_captures(self) -> int:
        return len(self._light) if self._pool is not None else 0

    def read(self, rows: Sequence[Row]) -> None:
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
        self._joint = self._send([])
        self._batch, self._table = split_columns(self._joint, self._sizes.lengths)
        self._graph: Any = None
        if pool is not None:
            with torch.cuda.device(cache.device):
                self._graph = pool.capture(self._run)

    def read(self, rows: Sequence[UnreadRow]) -> None:
        self._joint.copy_(self._send(rows))
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _send(self, rows: Sequence[UnreadRow]) -> torch.Tensor:
        queries, tile = self._layers.queries, self._layers.tile
        columns = list_columns(rows, queries=queries, tile=tile, sizes=self._sizes)
        return send(join_columns(columns), self._cache.device)

    def _run(self) -> None:
        self._layers.read_batch(self._batch, self._table, self._cache)


def round_up_tokens(num: int) -> int:
    """The smallest captured size that holds `num` tokens."""
    octave = MIN_TOKENS
    while 2 * octave < num:
        octave *= 2
    part = octave // SIZES_AN_OCTAVE
    return max(MIN_TOKENS, -(-num // part) * part)


def list_unread(rows: Sequence[Row]) -> list[UnreadRow]:
    """The rows to read: each distinct prompt once for all its lanes, or the part that its lane does not hold."""
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
