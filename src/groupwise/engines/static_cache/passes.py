"""Forward passes over lanes: the decoding step, and the prefill of prompts.

A step reads one token per row, runs the model, samples, and records the tokens. It never waits for the host, and it
reads and writes static tensors. So on a GPU it is captured once per number of rows and width as a CUDA graph, and then
replayed: one launch per token instead of hundreds.

Axes: B rows, T tokens, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.engines.sampling import draw_tokens
from groupwise.engines.static_cache.attention import switch_attention
from groupwise.engines.static_cache.cache import (
    LaneCache,
    LaneState,
    Row,
    TableSizes,
    TokenBatch,
    UnreadRow,
    join_columns,
    list_columns,
    make_additive_mask,
    send,
    split_columns,
)
from groupwise.engines.static_cache.own_layers import OwnLayers

WARM_UPS = 2
"""Runs before a capture: in the first, libraries choose kernels and allocate their workspace."""


class GraphPool:
    """Memory that CUDA graphs share: they run one after another and exchange only static tensors."""

    def __init__(self) -> None:
        self._handle: Any = None

    def capture(self, run: Callable[[], Any]) -> Any:
        """Run a function some times, then capture it."""
        here = torch.cuda.current_stream()
        aside = get_side_stream(here.device_index)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        self._handle = self._handle or torch.cuda.graph_pool_handle()
        # Only this thread must not use the device meanwhile: a learner may use it in another thread.
        with torch.cuda.graph(graph, pool=self._handle, capture_error_mode="thread_local"):
            run()
        return graph


@cache
def get_side_stream(device: int) -> torch.cuda.Stream:
    """The stream for runs before a capture, one per device: libraries keep a workspace for each stream."""
    return torch.cuda.Stream(device)


@dataclass(eq=False)
class DecodingStep:
    """The step over the first lanes of some storage."""

    model: PreTrainedModel
    cache: LaneCache
    state: LaneState
    use_graphs: bool
    """Whether steps are captured; else the same operations run one by one."""
    use_kernel: bool = False
    """Whether our kernel computes attention; else torch does."""
    layers: OwnLayers | None = None
    """Our own layers; None = the model's layers compute."""
    num_captures: int = 0
    pool: GraphPool = field(default_factory=GraphPool)
    _graphs: dict[tuple[int, int, bool], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = self.cache.device
        self._row_L = torch.arange(self.cache.lanes, device=device)
        self._column_W = torch.arange(self.cache.width, device=device)
        self._begins = torch.arange(self.cache.lanes + 1, device=device, dtype=torch.int32)

    def run(self, num: int, width: int, *, steps: int, is_truncated: bool = False) -> None:
        """Run some steps with the first `num` rows; no row reads more than `width` columns.

        `is_truncated` = some row leaves out the least likely tokens, which sorts the logits.
        """
        if not self.use_graphs:
            for _ in range(steps):
                self._run_once(num, width, is_truncated)
            return
        shape = num, width, is_truncated
        with torch.cuda.device(self.cache.device):
            if shape not in self._graphs:
                self._graphs[shape] = self._capture(*shape)
            for _ in range(steps):
                self._graphs[shape].replay()

    def _run_once(self, num: int, width: int, is_truncated: bool) -> None:
        state = self.state
        logits_BV = self._compute_logits(num, width) if self.layers is None else self._compute_by_layers(num, width)
        draws_B = state.draws.index_select(0, state.next_draw)[0, :num]
        limits = (state.top_p[:num], state.top_k[:num]) if is_truncated else None
        state.record(num, *draw_tokens(logits_BV, state.temperature[:num], state.is_greedy[:num], draws_B, limits))

    def _compute_logits(self, num: int, width: int) -> torch.Tensor:
        """By the model's own code."""
        state = self.state
        row_B, at_B = self._row_L[:num], state.length[:num]
        is_seen_BW = self._column_W[None, :width] <= at_B[:, None]

        def write(stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
            # Also beyond `width`: a finished row may be longer than the others.
            stored_LKWD[row_B, :, at_B] = new_BKTD[:, :, 0]
            return stored_LKWD[:num, :, :width]

        with switch_attention(self.model, at_B if self.use_kernel else None):
            out = self.model(
                input_ids=state.token[:num],
                position_ids=at_B[:, None],
                attention_mask=make_additive_mask(is_seen_BW, self.cache.dtype)[:, None, None],
                past_key_values=self.cache.prepare(write),
                use_cache=True,
            )
        logits: torch.Tensor = out.logits[:, -1]
        return logits

    def _compute_by_layers(self, num: int, width: int) -> torch.Tensor:
        """By our own layers and the model's head."""
        assert self.layers is not None
        at_B, attend_step = self.state.length[:num], self.layers.operations.attend_step
        rows = self._begins[:num]
        batch = TokenBatch(
            ids=self.state.token[:num, 0], positions=at_B, rows=rows, begins=self._begins[: num + 1], lanes=rows
        )

        def attend(query: torch.Tensor, stored: tuple[torch.Tensor, torch.Tensor], scaling: float) -> torch.Tensor:
            keys, values = (lanes[:num, :, :width] for lanes in stored)
            attended: torch.Tensor = attend_step(query, keys, values, at_B, scaling=scaling)
            return attended

        logits: torch.Tensor = self.model.get_output_embeddings()(self.layers.read(batch, self.cache, attend))
        return logits

    def _capture(self, num: int, width: int, is_truncated: bool) -> Any:
        """Capture the step. The runs before the capture record nothing, because all rows are marked as done."""
        was_done_L = self.state.is_done.clone()
        self.state.is_done.fill_(True)
        graph = self.pool.capture(lambda: self._run_once(num, width, is_truncated))
        self.state.is_done.copy_(was_done_L)
        self.state.next_draw.zero_()
        self.num_captures += 1
        return graph


# Prefill prompts into lanes, in batches: each distinct prompt once, prompts of similar length together.
#
# All tokens of a prompt but the last are read here. Decoding reads the last token first, to predict the first token of
# the response. So no logits are computed here, and prompts that differ only in their last token are read once.

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
