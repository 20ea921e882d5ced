"""Reading prompts into lanes, in batches: each distinct prompt once, prompts of like length together.

Of a prompt all tokens but the last are read here; the last is the first that decoding reads, and predicts the first
token of the response. So no logits are computed here, and prompts that differ in their last token only are one.

Axes: B rows, T tokens, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from groupwise.engines.static_cache.cache import (
    Integers,
    LaneCache,
    Row,
    TableSizes,
    UnreadRow,
    WritePromptRests,
    WriteWholePrompts,
    join_columns,
    list_columns,
    make_additive_mask,
    send,
    split_columns,
)
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.step import GraphPool

WASTE = 1.25
"""How much longer than the shortest prompt of a batch the longest may be: the others are padded to it."""
SLACK = 16
"""Tokens by which it may be longer in any case."""
LIGHT_OPERATIONS = 4e12
"""Operations of a batch, padding included, up to which any lengths go together: 10 ms of a fast GPU's, about what it
takes to launch the kernels of one more batch: 15,000 tokens of 135 million weights, 1,300 of 1.5 billion."""
MAX_LIGHT_TOKENS = 16_384
"""Tokens of such a batch at most, however small the model: padding costs attention too."""

Entry = TypeVar("Entry")


class Prefill:
    """Reads prompts with the body of a model, which has no head."""

    def __init__(self, body: Any, cache: LaneCache, *, batch_tokens: int, light_tokens: float = 0) -> None:
        """Batches of at most `batch_tokens`; of any lengths together up to `light_tokens`, padding included."""
        self._body, self._cache, self._batch_tokens, self._light_tokens = body, cache, batch_tokens, light_tokens
        self._device = cache.device

    def read(self, rows: Sequence[Row]) -> None:
        """Read the prompts of rows into their lanes."""
        prompts: dict[tuple[int, ...], list[int]] = {}
        for row in rows:
            if not row.num_known:
                prompts.setdefault(row.request.prompt_ids[:-1], []).append(row.lane)
        prompts.pop((), None)
        for batch in self._cut_batches(prompts, len):
            self._read_whole([(prompt, prompts[prompt]) for prompt in batch])
        for going_on in self._cut_batches(
            [row for row in rows if row.num_known and _unread_ids(row)], lambda row: len(_unread_ids(row))
        ):
            self._read_rests(going_on)

    def _cut_batches(self, entries: Iterable[Entry], length: Callable[[Entry], int]) -> Iterator[list[Entry]]:
        """Entries of like length together, as many as the token budget holds."""
        batch: list[Entry] = []
        for entry in sorted(entries, key=length):
            longest = length(entry)
            tokens = (len(batch) + 1) * longest
            is_wasteful = tokens > self._light_tokens and bool(batch) and longest > WASTE * length(batch[0]) + SLACK
            if batch and (tokens > self._batch_tokens or is_wasteful):
                yield batch
                batch = []
            batch.append(entry)
        if batch:
            yield batch

    def _read_whole(self, prompts: Sequence[tuple[tuple[int, ...], list[int]]]) -> None:
        lanes = [lane for _, places in prompts for lane in places]
        prompt = [number for number, (_, places) in enumerate(prompts) for _ in places]
        write = WriteWholePrompts(self._to_tensor(lanes), self._to_tensor(prompt))
        ids_BT = self._to_tensor(_pad_right([ids for ids, _ in prompts]))
        # Padding comes last, so causal attention alone keeps it from being seen.
        self._body(input_ids=ids_BT, past_key_values=self._cache.prepare(write), use_cache=True)

    def _read_rests(self, rows: Sequence[Row]) -> None:
        """Padding gets columns beyond the row's end, which decoding overwrites before it sees them."""
        ids_BT = self._to_tensor(_pad_right([_unread_ids(row) for row in rows]))
        known_B = self._to_tensor([row.num_known for row in rows])
        position_BT = known_B[:, None] + torch.arange(ids_BT.shape[1], device=self._device)
        column_BT = position_BT.clamp(max=self._cache.width - 1)
        width = min(self._cache.width, max(len(row.request.prompt_ids) - 1 for row in rows))
        is_seen_BTW = torch.arange(width, device=self._device) <= position_BT[:, :, None]
        write = WritePromptRests(self._to_tensor([row.lane for row in rows]), column_BT, width)
        self._body(
            input_ids=ids_BT,
            position_ids=position_BT,
            attention_mask=make_additive_mask(is_seen_BTW, self._cache.dtype)[:, None],
            past_key_values=self._cache.prepare(write),
            use_cache=True,
        )

    def _to_tensor(self, numbers: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(numbers, device=self._device, dtype=torch.long)


def _unread_ids(row: Row) -> tuple[int, ...]:
    return row.request.prompt_ids[row.num_known : -1]


def _pad_right(sequences: Sequence[Sequence[int]]) -> list[list[int]]:
    width = max(len(sequence) for sequence in sequences)
    return [[*sequence, *[0] * (width - len(sequence))] for sequence in sequences]


# Reading prompts into lanes by layers of our own: rows of any length side by side, each distinct prompt once.
#
# Of a prompt all tokens but the last are read here, as in `prefill`; what a lane holds already is not read again. On a
# GPU a light batch is a CUDA graph: it is filled up to one of a bounded set of sizes, and its tables lie where the
# graph finds them. A heavy one computes for longer than its kernels take to launch.

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
