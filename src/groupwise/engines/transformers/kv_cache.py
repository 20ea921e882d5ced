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

from groupwise.engines.engine import Request
from groupwise.models.attention import UnwrittenTensor

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
        start, end = self.length, self.length + key_states.shape[2]
        written: list[torch.Tensor] = []
        for stored, new in zip(self.stored, (key_states, value_states), strict=True):
            room = stored
            if end > stored.shape[2]:  # it is full
                room = new.new_zeros(*new.shape[:2], max(int(GROWTH * end), end + ROOM), new.shape[3])
                room[:, :, :start] = stored[:, :, :start]
            room[:, :, start:end] = new
            written.append(room)
        self.stored = written[0], written[1]
        return self._show(end)

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
        self.stored = _make_storage(keys, len(places.prompt)), _make_storage(values, len(places.prompt))
        self._show(0)

    def _show(self, length: int) -> KeysAndValues:
        self.length = length
        self.keys, self.values = self.stored[0][:, :, :length], self.stored[1][:, :, :length]
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


def _make_storage(like: torch.Tensor, rows: int, width: int = 0) -> torch.Tensor:
    return like.new_zeros(rows, like.shape[1], width + ROOM, like.shape[3])


# Keys and values kept from an attempt's last prompt, for the part that its next prompt repeats.
#
# With a full or anchored memory a step's prompt begins with the step before, prompt and response; with a sliding window
# little is shared and nothing is reused. A row is kept where it was computed, in its batch, as a reference; only what
# is used again is copied, a batch at a time.
#
# Axes: B rows, W columns.

WORTHWHILE = 0.3
"""Share of the prompts' tokens that must be known already for reuse to beat a plain prefill."""
DENSE = 0.6
"""Share of a batch's columns that must hold tokens; below it the gaps that rows of unequal length leave are closed."""

Layers = tuple[KeysAndValues, ...]
"""Keys and values (B, A, W, D), a pair a layer."""


@dataclass(frozen=True)
class Past:
    """What a batch of prompts starts from: a cache, its mask, and how many tokens of each prompt it holds."""

    cache: Cache
    mask: torch.Tensor
    lengths: list[int]


@dataclass(frozen=True, eq=False)
class _Kept:
    """A row of a batch: where its keys and values stand."""

    ids: tuple[int, ...]
    layers: tuple[Stored, ...]
    row: int
    mask: torch.Tensor
    """Columns that hold its tokens, in order (W)."""


class KvSessions:
    """The last prompt of each session that is under way."""

    def __init__(self, *, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: dict[str, _Kept] = {}
        self._tokens = 0

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._tokens = 0

    def keep_only(self, requests: Sequence[Request]) -> None:
        """Forget the sessions that no request goes on with: attempts are played in step, so theirs are over."""
        going_on = {request.session for request in requests}
        for session in [session for session in self._kept if session not in going_on]:
            self._tokens -= len(self._kept.pop(session).ids)

    def keep(self, finished: Sequence[tuple[int, Request, Sequence[int]]], cache: Cache, mask: torch.Tensor) -> None:
        """Keep finished rows (number, request, response): the prompt and all sampled tokens but the last.

        The last was never read.
        """
        if not finished:
            return
        layers = tuple([Stored(layer.stored, layer.prompts) for layer in cache.layers if isinstance(layer, RoomyLayer)])
        for row, request, response in finished:
            if request.session is None:
                continue
            before = self._kept.pop(request.session, None)
            self._tokens -= 0 if before is None else len(before.ids)
            ids = (*request.prompt_ids, *response[:-1])
            if self._tokens + len(ids) <= self._max_tokens:
                self._kept[request.session] = _Kept(ids=ids, layers=layers, row=row, mask=mask[row])
                self._tokens += len(ids)

    def recall(self, requests: Sequence[Request], device: torch.device) -> Past:
        """The longest known beginnings of prompts; nothing where too little is known to be worth the copying."""
        kept, lengths, asked = list[_Kept | None](), list[int](), 0
        for request in requests:
            entry, known, prompt = self._kept.get(request.session or ""), 0, request.prompt_ids
            if entry is not None:
                comparable = min(len(entry.ids), len(prompt) - 1)  # at least one is read to predict the next
                if entry.ids[:comparable] == prompt[:comparable]:
                    known = comparable
                else:
                    known = next(i for i in range(comparable) if entry.ids[i] != prompt[i])
            kept.append(entry)
            lengths.append(known)
            asked += len(prompt)
        if sum(lengths) < WORTHWHILE * asked:
            nothing = torch.zeros(len(requests), 0, dtype=torch.long, device=device)
            return Past(make_empty_cache(), nothing, [0] * len(requests))
        mask, layers = _gather(kept, lengths, device)
        mask, layers = _close_gaps(mask, layers)
        cache = make_empty_cache()
        for stored in layers:
            layer = RoomyLayer()  # type: ignore[no-untyped-call]
            layer.hold(stored, mask.shape[1])
            cache.layers.append(layer)
        return Past(cache, mask, lengths)


def _gather(kept: Sequence[_Kept | None], lengths: Sequence[int], device: torch.device) -> tuple[torch.Tensor, Layers]:
    """Put the rows of several batches side by side, their last columns aligned."""
    batches: dict[int, dict[int, _Kept]] = {}
    masks: dict[int, torch.Tensor] = {}
    for number, (entry, length) in enumerate(zip(kept, lengths, strict=True)):
        if entry is not None and length:
            batches.setdefault(id(entry.layers[0].own[0]), {})[number] = entry
            # Up to the column that holds the last token that is known.
            masks[number] = entry.mask[: int(torch.searchsorted(entry.mask.cumsum(0), length)) + 1]
    width = max(map(len, masks.values()))
    mask = torch.zeros(len(kept), width, dtype=torch.long, device=device)
    gathered: Layers = ()
    for entries in batches.values():
        numbers = [*entries]
        shown = max([len(masks[number]) for number in numbers])
        for number in numbers:
            mask[number, width - shown : width - shown + len(masks[number])] = masks[number]
        rows = torch.tensor([entry.row for entry in entries.values()], device=device)
        source = entries[numbers[0]].layers
        taken = tuple(layer.select_rows(rows) for layer in source)
        if len(numbers) == len(kept):
            return mask, taken
        gathered = gathered or tuple(
            (_make_storage(keys, len(kept), width), _make_storage(values, len(kept), width)) for keys, values in taken
        )
        places = torch.tensor(numbers, device=device)
        for targets, pair in zip(gathered, taken, strict=True):
            for target, values in zip(targets, pair, strict=True):
                target[places, :, width - shown : width] = values[:, :, :shown]
    return mask, gathered


def _close_gaps(mask: torch.Tensor, layers: Layers) -> tuple[torch.Tensor, Layers]:
    """Close the gaps between a row's columns where they take up too much of the batch."""
    longest = int(mask.sum(1).max())
    if int(mask.sum()) >= DENSE * mask.numel():
        return mask, layers
    # A stable sort moves the columns that hold tokens to the right, in their order.
    order = torch.sort(mask, dim=1, stable=True).indices[:, mask.shape[1] - longest :]
    room = order.new_zeros(len(order), ROOM)  # any column: nothing has been written there yet
    index = torch.cat([order, room], dim=1)[:, None, :, None]
    closed = tuple(
        (
            keys.gather(2, index.expand(-1, keys.shape[1], -1, keys.shape[3])),
            values.gather(2, index.expand(-1, values.shape[1], -1, values.shape[3])),
        )
        for keys, values in layers
    )
    return mask.gather(1, order), closed


# Keys and values of rows that begin with one of a few prompts: each prompt is held once, however many rows read it.
#
# The attempts of a group decode from one prompt. Copied for every row, its keys fill the memory that a decoding step on
# a CPU spends its time reading; held once, all rows of a prompt are multiplied with it together:
#
#     softmax(q [K_prompt, K_own]) [V_prompt, V_own] = p_prompt V_prompt + p_own V_own
#
# `SharedStates` brings this to a model: a tensor of keys or values in which the prompts are not repeated.
#
# Axes: B rows, G prompts, N most rows of a prompt, A attention heads, K heads of keys and values, P columns of a
# prompt, R columns of a row's own, W = P + R, D width of a head.


@dataclass(frozen=True, eq=False)
class Places:
    """Which prompt each row reads.

    Worked example: where rows 0 and 1 read prompt 0 and row 2 reads prompt 1, `rows` is [[0, 1], [2, 2]], in which the
    last is a filler, and `back` is [0, 1, 2]: row 2 stands in place 2 of the four.
    """

    prompt: torch.Tensor
    """Number of each row's prompt (B)."""
    rows: torch.Tensor
    """The rows of each prompt, filled up with one of them (G, N)."""
    back: torch.Tensor
    """Where each row stands in that table, read row by row (B)."""
    is_in_order: bool
    """Whether that table is the rows as they come, so that nothing has to be moved."""

    @classmethod
    def of(cls, prompt: torch.Tensor, num_prompts: int) -> Places:
        """The places of rows, from the number of each row's prompt; every prompt has a row."""
        order = torch.argsort(prompt, stable=True)
        counts = torch.bincount(prompt, minlength=num_prompts)
        first = counts.cumsum(0) - counts
        widest = int(counts.max())
        within = torch.minimum(torch.arange(widest)[None], counts[:, None] - 1)
        rows = order[first[:, None] + within]
        back = torch.empty_like(prompt)
        back[order] = torch.repeat_interleave(torch.arange(num_prompts) * widest - first, counts) + torch.arange(
            len(prompt)
        )
        is_in_order = rows.numel() == len(prompt) and bool((order == torch.arange(len(prompt))).all())
        return cls(prompt=prompt, rows=rows, back=back, is_in_order=is_in_order)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Values of rows (B, K, M, ...) by prompt (G, K, N x M, ...)."""
        placed = values if self.is_in_order else values[self.rows.flatten()]
        split: torch.Tensor = placed.unflatten(0, tuple(self.rows.shape)).transpose(1, 2)
        return split.flatten(2, 3)

    def scatter(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Values by prompt (G, K, N x M, ...) back by row (B, K, M, ...), where M is `width`."""
        placed: torch.Tensor = values.unflatten(2, (self.rows.shape[1], width)).transpose(1, 2).flatten(0, 1)
        return placed if self.is_in_order else placed[self.back]


class SharedStates(UnwrittenTensor):
    """Keys or values of rows (B, K, W, D), of which the first columns are those of a prompt that rows share."""

    prompts: torch.Tensor
    places: Places
    own: torch.Tensor

    @classmethod
    def of(cls, prompts: torch.Tensor, places: Places, own: torch.Tensor) -> SharedStates:
        """Rows with the columns of their prompts (G, K, P, D), then their own (B, K, R, D)."""
        shape = (*own.shape[:2], prompts.shape[2] + own.shape[2], own.shape[3])
        states = own.new_zeros(()).expand(shape).as_subclass(cls)
        states.prompts, states.places, states.own = prompts, places, own
        return states

    def write_out(self) -> torch.Tensor:
        return torch.cat((self.prompts[self.places.prompt], self.own), dim=2)

    @classmethod
    def attend(cls, *tensors: Any, **settings: Any) -> torch.Tensor | None:
        """Attention of one query a row, without dropout, with a mask that is the same for all heads or none."""
        if len(tensors) != 3 or tensors[0].shape[2] != 1 or settings.get("dropout_p") or settings.get("is_causal"):
            return None
        query, key, value = tensors
        mask = settings.get("attn_mask")
        is_row_mask = mask is None or (mask.ndim == 4 and mask.shape[1:3] == (1, 1))
        if not (is_row_mask and isinstance(key, SharedStates) and isinstance(value, SharedStates)):
            return None
        return attend_to_shared_prompts(query, key, value, mask=mask, scale=settings.get("scale"))


def attend_to_shared_prompts(
    query: torch.Tensor, key: SharedStates, value: SharedStates, *, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Attention of one query a row (B, A, 1, D) to its prompt and its own columns."""
    num_rows, num_heads, _, width = query.shape
    num_kept = key.own.shape[1]
    repeats, length = num_heads // num_kept, key.prompts.shape[2]
    scaled = query * (width**-0.5 if scale is None else scale)
    query_BKMD = scaled.reshape(num_rows, num_kept, repeats, width)
    places = key.places
    to_prompt = places.scatter(places.gather(query_BKMD) @ key.prompts.mT, repeats)
    scores = torch.cat((to_prompt, query_BKMD @ key.own.mT), dim=-1)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
    shares = scores.softmax(-1)
    from_prompt = places.scatter(places.gather(shares[..., :length]) @ value.prompts, repeats)
    attended = from_prompt + shares[..., length:] @ value.own
    return attended.reshape(num_rows, num_heads, 1, value.own.shape[-1])
