"""Keys and values in lanes (KV-cache slots): static storage in which every row has its own length.

A lane holds one sequence from column 0 on, without padding. Before each forward pass a *write* is set. It decides what
the pass writes and which columns attention reads: whole prompts, the rests of prompts, or one token per row. To the
model this is a cache like any other.

Columns beyond the end of a sequence may hold any finite number: no query reads them before they are written.

Axes: L lanes, B rows, T new tokens, K heads of keys and values, W columns, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from groupwise.engines.engine import Request

HeadShape = tuple[int, int, int]
"""Heads of keys and values of a layer, the width of a key and that of a value."""


CacheWrite = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Writes new keys or values (B, K, T, D) to the storage of a layer (L, K, W, D); returns what attention reads."""


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
        return self.write(self.keys, key_states), self.write(self.values, value_states)

    def get_seq_length(self) -> int:
        """0, which is right for a whole prompt; other forward passes are given positions and a mask."""
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
        """Storage of zeros: masked columns must be finite too."""
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
        """Copy to storage of another size, layer by layer; this cache is empty afterwards."""
        layers = []
        while self.storage:
            layer = self.storage.pop(0)
            layers.append(LaneLayer(_copy_resized(layer.keys, lanes, width), _copy_resized(layer.values, lanes, width)))
        return LaneCache(layers)

    def prepare(self, write: CacheWrite) -> LaneCache:
        for layer in self.storage:
            layer.write = write
        return self

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy some lanes to others; all sources are read before anything is written."""
        for layer in self.storage:
            layer.keys[targets], layer.values[targets] = layer.keys[sources], layer.values[sources]


def _copy_resized(stored: torch.Tensor, lanes: int, width: int) -> torch.Tensor:
    resized = stored.new_zeros(lanes, stored.shape[1], width, stored.shape[3])
    kept, columns = min(lanes, stored.shape[0]), min(width, stored.shape[2])
    resized[:kept, :, :columns] = stored[:kept, :, :columns]
    return resized


def make_additive_mask(is_seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros_like(is_seen, dtype=dtype).masked_fill_(~is_seen, -torch.inf)


# The host's table of lanes: which response decodes in which lane. It uses no tensors.

WORTHWHILE = 0.5
"""Fraction of a prompt that its session's lane must hold for the rest to be prefilled alone. This costs a copy of the
lane and a slower attention."""


@dataclass(eq=False)
class Row:
    """One response that is being sampled."""

    number: int
    """Position of the request in the call."""
    request: Request
    lane: int = -1
    """-1 = none yet."""
    num_known: int = 0
    """Tokens of its prompt that the lane already held."""
    num_sampled: int = 0

    @property
    def tokens_left(self) -> int:
        return self.request.max_tokens - self.num_sampled

    def columns_after(self, steps: int) -> int:
        return len(self.request.prompt_ids) - 1 + self.num_sampled + min(steps, self.tokens_left)


@dataclass(eq=False)
class LaneTable:
    """Which rows run in which lanes, and which sessions wait in the others."""

    num_lanes: int
    running: dict[int, Row] = field(default_factory=dict)
    """Rows by lane."""
    _held: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    _lane_of: dict[str, int] = field(default_factory=dict)

    def keep_only(self, requests: Iterable[Request]) -> None:
        continued = {request.session for request in requests}
        for lane in [lane for lane, (session, _) in self._held.items() if session not in continued]:
            self._forget(lane)

    def find_known(self, request: Request) -> tuple[int, int]:
        """The lane that holds a prefix of the prompt, and the length of the prefix; (-1, 0) if it is too short.

        The last token of a prompt is always read again, to predict the next.
        """
        lane = self._lane_of.get(request.session or "", -1)
        if lane < 0:
            return -1, 0
        ids = self._held[lane][1]
        comparable = min(len(ids), len(request.prompt_ids) - 1)
        length = comparable
        if ids[:comparable] != request.prompt_ids[:comparable]:
            length = next(i for i in range(comparable) if ids[i] != request.prompt_ids[i])
        return (lane, length) if length >= max(1, WORTHWHILE * len(request.prompt_ids)) else (-1, 0)

    def list_free(self) -> list[int]:
        """Lanes in which no row runs; lanes without a waiting session come first."""
        return sorted(
            (lane for lane in range(self.num_lanes) if lane not in self.running),
            key=lambda lane: (lane in self._held, lane),
        )

    def seat(self, row: Row, lane: int) -> None:
        """Let a row run in a lane; a session that waited there is forgotten."""
        self._forget(lane)
        row.lane = lane
        self.running[lane] = row

    def release(self, lane: int, held: tuple[int, ...]) -> Row:
        """Take out a finished row; its session waits there, with the ids that the lane holds."""
        row = self.running.pop(lane)
        if row.request.session is not None:
            self._forget(self._lane_of.get(row.request.session, -1))
            self._held[lane], self._lane_of[row.request.session] = (row.request.session, held), lane
        return row

    def close_up(self, num: int) -> list[int]:
        """Move all running rows into the first `num` lanes; returns the source lane of each lane.

        Lanes swap their contents, so no session is lost.
        """
        high = [lane for lane in self.running if lane >= num]
        low = [lane for lane in range(num) if lane not in self.running][: len(high)]
        order = list(range(self.num_lanes))
        for a, b in zip(high, low, strict=True):
            order[a], order[b] = b, a
            row = self.running[b] = self.running.pop(a)
            row.lane = b
            if b in self._held:
                self._held[a] = self._held.pop(b)
                self._lane_of[self._held[a][0]] = a
        return order

    def resize(self, num: int) -> None:
        """Change the number of lanes; sessions in removed lanes are forgotten."""
        assert not self.running, "storage changes only between requests"
        for lane in [lane for lane in self._held if lane >= num]:
            self._forget(lane)
        self.num_lanes = num

    def clear(self) -> None:
        self.running.clear()
        self._held.clear()
        self._lane_of.clear()

    def _forget(self, lane: int) -> None:
        session, _ = self._held.pop(lane, ("", ()))
        self._lane_of.pop(session, None)


# The state of the lanes on the device: what a decoding step reads and writes in addition to keys and values.
#
# All of it is in static tensors, because a captured step reads and writes fixed addresses.
#
# Axes: L lanes, X stop tokens, N steps until the host reads the progress, M tokens of the longest response plus one.

NOTHING = -1
"""No token: fills unused entries of `stops`."""
SampledResponse = tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]
"""Tokens of a response, their log-probs and the entropies."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LaneState:
    """The responses that decode in the lanes: their requests and sampled tokens."""

    token: torch.Tensor
    """The token that is read next (L, 1)."""
    length: torch.Tensor
    """Columns written so far: the column and position of the next token (L)."""
    count: torch.Tensor
    """Sampled tokens (L)."""
    max_tokens: torch.Tensor
    """Maximum number of sampled tokens (L)."""
    is_done: torch.Tensor
    """Whether the response has ended (L); True for unused lanes."""
    temperature: torch.Tensor
    """Divides the logits (L, 1); 1 for greedy lanes."""
    is_greedy: torch.Tensor
    """Whether the most likely token is taken (L)."""
    top_p: torch.Tensor
    """Sum of probabilities from which tokens are left out (L, 1)."""
    top_k: torch.Tensor
    """Number of most likely tokens that are kept (L, 1); 0 = all."""
    stops: torch.Tensor
    """Tokens that end the response (L, X)."""
    ids: torch.Tensor
    """The sampled tokens (L, M)."""
    logp: torch.Tensor
    """Their log-probs (L, M)."""
    entropy: torch.Tensor
    """Their entropies (L, M)."""
    draws: torch.Tensor
    """Random numbers of the next steps (N, L)."""
    next_draw: torch.Tensor
    """Row of `draws` that is used next (1)."""

    @classmethod
    def empty(cls, *, lanes: int, stops: int, tokens: int, steps: int, device: torch.device) -> LaneState:
        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return cls(
            token=zeros(lanes, 1),
            length=zeros(lanes),
            count=zeros(lanes),
            max_tokens=zeros(lanes),
            is_done=zeros(lanes, dtype=torch.bool).fill_(True),
            temperature=zeros(lanes, 1, dtype=torch.float32).fill_(1.0),
            is_greedy=zeros(lanes, dtype=torch.bool),
            top_p=zeros(lanes, 1, dtype=torch.float64).fill_(1.0),
            top_k=zeros(lanes, 1),
            stops=zeros(lanes, stops).fill_(NOTHING),
            ids=zeros(lanes, tokens + 1),
            logp=zeros(lanes, tokens + 1, dtype=torch.float32),
            entropy=zeros(lanes, tokens + 1, dtype=torch.float32),
            draws=zeros(steps, lanes, dtype=torch.float64),
            next_draw=zeros(1),
        )

    def start(self, lanes: Sequence[int], requests: Sequence[Request]) -> None:
        """Start responses in some lanes; the first token that is read is the last one of the prompt."""
        num_stops = self.stops.shape[1]
        table = np.full((len(lanes), 7 + num_stops), NOTHING, dtype=np.float64)
        for row, (lane, request) in enumerate(zip(lanes, requests, strict=True)):
            length = len(request.prompt_ids) - 1
            sampling = request.temperature, request.top_p, request.top_k
            table[row, :7] = lane, request.prompt_ids[-1], length, request.max_tokens, *sampling
            if request.stop_ids:
                table[row, 7 : 7 + len(request.stop_ids)] = request.stop_ids
        numbers = send(table, self.token.device)
        whole, temperature = numbers.long(), numbers[:, 4].float()
        where = whole[:, 0]
        self.token[where] = whole[:, 1:2]
        self.length[where] = whole[:, 2]
        self.count[where] = 0
        self.max_tokens[where] = whole[:, 3]
        self.is_greedy[where] = temperature == 0
        self.temperature[where] = torch.where(temperature == 0, 1.0, temperature)[:, None]
        self.top_p[where] = numbers[:, 5:6]
        self.top_k[where] = whole[:, 6:7]
        self.stops[where] = whole[:, 7:]
        self.is_done[where] = False

    def set_draws(self, draws_NL: npt.NDArray[np.float64]) -> None:
        self.draws[: len(draws_NL)] = send(draws_NL, self.draws.device)
        self.next_draw.zero_()

    def record(self, num: int, token_B1: torch.Tensor, logp_B: torch.Tensor, entropy_B: torch.Tensor) -> None:
        """Record the sampled tokens of the first lanes; the progress of finished lanes does not change.

        In a finished lane, something is written after its last token, which is never read.
        """
        count_B, is_done_B = self.count[:num], self.is_done[:num]
        is_alive_B = ~is_done_B
        self.ids[:num].scatter_(1, count_B[:, None], token_B1)
        self.logp[:num].scatter_(1, count_B[:, None], logp_B[:, None])
        self.entropy[:num].scatter_(1, count_B[:, None], entropy_B[:, None])
        self.token[:num] = torch.where(is_alive_B[:, None], token_B1, self.token[:num])
        count_B += is_alive_B
        self.length[:num] += is_alive_B
        is_done_B |= (token_B1 == self.stops[:num]).any(1) | (count_B >= self.max_tokens[:num])
        self.next_draw.add_(1)

    def read_progress(self) -> tuple[list[int], list[int]]:
        """Whether each lane is done, and its number of sampled tokens; the host waits for the device."""
        is_done, counts = torch.stack((self.is_done.long(), self.count)).tolist()
        return is_done, counts

    def read_responses(self, lanes: Sequence[int], counts: Sequence[int]) -> list[SampledResponse]:
        """The first `counts` tokens of the responses in some lanes."""
        where = send(np.array(lanes), self.token.device)
        sampled = [column[where, : max(counts)].double() for column in (self.ids, self.logp, self.entropy)]
        ids, logp, entropy = torch.stack(sampled).cpu().numpy()
        rows = zip(counts, ids.astype(np.int64).tolist(), logp.tolist(), entropy.tolist(), strict=True)
        return [(tuple(ids[:num]), tuple(logp[:num]), tuple(entropy[:num])) for num, ids, logp, entropy in rows]

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy the state of some lanes to others; all sources are read before anything is written."""
        for column_field in fields(self):
            if column_field.name not in ("draws", "next_draw"):
                column = getattr(self, column_field.name)
                column[targets] = column[sources]


# Tokens of several rows in one flat batch, without padding.
#
# A row is a prompt, or the part of it that its lane does not hold yet, or the single token of a decoding step. Its
# tokens are consecutive, and the position of a token in its sequence is also its column in the lane. A row may go to
# several lanes: those of rollouts with the same prompt.
#
# Axes: N tokens, B rows, L lanes, G tiles of queries.

ALIGNED = 4
"""Numbers that 16 bytes hold."""
Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenBatch:
    """Tokens that are read in one pass."""

    ids: torch.Tensor
    """The tokens (N)."""
    positions: torch.Tensor
    """Their positions, which are also their columns (N)."""
    rows: torch.Tensor
    """The row of each token (N)."""
    begins: torch.Tensor
    """Index of each row's first entry in `lanes` (B + 1)."""
    lanes: torch.Tensor
    """The lanes of all rows, row by row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowTable:
    """The rows of a batch, for attention; it reads from the first lane of a row."""

    firsts: torch.Tensor
    """Index of each row's first token (B)."""
    lengths: torch.Tensor
    """Its number of tokens (B)."""
    known: torch.Tensor
    """Earlier tokens of its sequence, in its lane (B)."""
    lanes: torch.Tensor
    """The lane that it is read from (B)."""
    tile_rows: torch.Tensor
    """The row of each tile (G)."""
    tile_numbers: torch.Tensor
    """The number of the tile within its row (G)."""


@dataclass(frozen=True)
class UnreadRow:
    """A row before it is read."""

    ids: tuple[int, ...]
    """Its tokens, at least one."""
    known: int
    """Tokens of its sequence that the lane holds."""
    lanes: tuple[int, ...]
    """The lanes that it is written to."""


@dataclass(frozen=True)
class TableSizes:
    """The lengths of a batch's columns, with padding, which is read but written to no lane."""

    tokens: int
    rows: int
    """The last row is for padding."""
    lanes: int
    """Lanes of all rows."""
    tiles: int
    """Tiles of queries."""

    @property
    def lengths(self) -> list[int]:
        return [*[self.tokens] * 3, self.rows + 1, self.lanes, *[self.rows] * 4, *[self.tiles] * 2]


def lay_out(rows: Sequence[UnreadRow], *, queries: int, tile: int, device: torch.device) -> tuple[TokenBatch, RowTable]:
    """Put rows into one flat batch, in one transfer to the device.

    Attention reads a row's tokens, each `queries` times, in tiles of `tile`.
    """
    columns = list_columns(rows, queries=queries, tile=tile)
    return split_columns(send(join_columns(columns), device), [len(column) for column in columns])


def list_columns(
    rows: Sequence[UnreadRow], *, queries: int, tile: int, sizes: TableSizes | None = None
) -> list[Integers]:
    """The columns of a batch and of its table, padded to `sizes`."""
    lengths = np.array([len(row.ids) for row in rows], dtype=np.int32)
    known = np.array([row.known for row in rows], dtype=np.int32)
    firsts = (np.cumsum(lengths) - lengths).astype(np.int32)
    row_N = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    counts = np.array([len(row.lanes) for row in rows], dtype=np.int32)
    num_tiles = -(-lengths * queries // tile)
    tile_rows = np.repeat(np.arange(len(rows), dtype=np.int32), num_tiles)
    columns: list[Integers] = [
        np.fromiter(chain.from_iterable(row.ids for row in rows), dtype=np.int32, count=int(lengths.sum())),
        np.arange(len(row_N), dtype=np.int32) + (known - firsts)[row_N],
        row_N,
        np.concatenate([np.zeros(1, np.int32), np.cumsum(counts).astype(np.int32)]),
        np.fromiter(chain.from_iterable(row.lanes for row in rows), dtype=np.int32, count=int(counts.sum())),
        firsts,
        lengths,
        known,
        np.array([row.lanes[0] for row in rows], dtype=np.int32),
        tile_rows,
        np.arange(len(tile_rows), dtype=np.int32) - (np.cumsum(num_tiles) - num_tiles).astype(np.int32)[tile_rows],
    ]
    if sizes is None:
        return columns
    padding_row, end = sizes.rows - 1, int(counts.sum())
    fillers = [0, 0, padding_row, end, 0, 0, 0, 0, 0, padding_row, 0]
    return [
        np.concatenate([column, np.full(length - len(column), filler, np.int32)])
        for column, length, filler in zip(columns, sizes.lengths, fillers, strict=True)
    ]


def join_columns(columns: Sequence[Integers]) -> Integers:
    """Concatenate all columns; each starts at a multiple of 16 bytes.

    A kernel is compiled again for each other alignment of a tensor, and columns have any length.
    """
    starts = _list_starts([len(column) for column in columns])
    joint = np.zeros(starts[-1], dtype=np.int32)
    for start, column in zip(starts, columns, strict=False):
        joint[start : start + len(column)] = column
    return joint


def _list_starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(-(-length // ALIGNED) * ALIGNED for length in lengths)]


def split_columns(joint: torch.Tensor, lengths: list[int]) -> tuple[TokenBatch, RowTable]:
    """The reverse: a batch and its table, as views of one tensor."""
    parts = [joint[start : start + length] for start, length in zip(_list_starts(lengths), lengths, strict=False)]
    batch = TokenBatch(ids=parts[0], positions=parts[1], rows=parts[2], begins=parts[3], lanes=parts[4])
    table = RowTable(
        firsts=parts[5], lengths=parts[6], known=parts[7], lanes=parts[8], tile_rows=parts[9], tile_numbers=parts[10]
    )
    return batch, table


def send(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy an array to the device; the host does not wait."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
