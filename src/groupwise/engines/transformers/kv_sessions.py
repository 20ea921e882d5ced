"""Keys and values kept from an attempt's last prompt, for the part that its next prompt repeats.

With a full or anchored memory a step's prompt begins with the step before, prompt and response; with a sliding window
little is shared and nothing is reused. A row is kept where it was computed, in its batch, as a reference; only what is
used again is copied, a batch at a time.

Axes: B rows, W columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import Cache

from groupwise.engines.engine import Request
from groupwise.engines.transformers.kv_cache import (
    ROOM,
    KeysAndValues,
    RoomyLayer,
    Stored,
    make_cache,
    make_empty_cache,
)

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
            self._forget(session)

    def keep(self, request: Request, response: Sequence[int], cache: Cache, row: int, mask: torch.Tensor) -> None:
        """Keep a finished row: its prompt and all sampled tokens but the last, which was never read."""
        if request.session is None:
            return
        self._forget(request.session)
        ids = (*request.prompt_ids, *response[:-1])
        if self._tokens + len(ids) > self._max_tokens:
            return
        layers = tuple(layer.snapshot() for layer in cache.layers if isinstance(layer, RoomyLayer))
        self._kept[request.session] = _Kept(ids=ids, layers=layers, row=row, mask=mask)
        self._tokens += len(ids)

    def recall(self, requests: Sequence[Request], device: torch.device) -> Past:
        """The longest known beginnings of prompts; nothing where too little is known to be worth the copying."""
        kept = [self._kept.get(request.session or "") for request in requests]
        lengths = [_count_known(entry, request) for entry, request in zip(kept, requests, strict=True)]
        if sum(lengths) < WORTHWHILE * sum(len(request.prompt_ids) for request in requests):
            nothing = torch.zeros(len(requests), 0, dtype=torch.long, device=device)
            return Past(make_empty_cache(), nothing, [0] * len(requests))
        mask, layers = _gather(kept, lengths, device)
        mask, layers = _close_gaps(mask, layers)
        return Past(make_cache(layers, mask.shape[1]), mask, lengths)

    def _forget(self, session: str) -> None:
        kept = self._kept.pop(session, None)
        self._tokens -= 0 if kept is None else len(kept.ids)


def _count_known(kept: _Kept | None, request: Request) -> int:
    """How many tokens of a prompt are known; at least one must be read to predict the next."""
    if kept is None:
        return 0
    comparable = min(len(kept.ids), len(request.prompt_ids) - 1)
    if kept.ids[:comparable] == request.prompt_ids[:comparable]:
        return comparable
    return next(i for i in range(comparable) if kept.ids[i] != request.prompt_ids[i])


def _gather(kept: Sequence[_Kept | None], lengths: Sequence[int], device: torch.device) -> tuple[torch.Tensor, Layers]:
    """Put the rows of several batches side by side, their last columns aligned."""
    batches: dict[int, list[int]] = {}
    for number, (entry, length) in enumerate(zip(kept, lengths, strict=True)):
        if entry is not None and length:
            batches.setdefault(id(entry.layers[0].own[0]), []).append(number)
    masks = {n: _cut_mask(entry.mask, lengths[n]) for n, entry in enumerate(kept) if entry is not None}
    width = max(len(masks[number]) for numbers in batches.values() for number in numbers)
    mask = torch.zeros(len(kept), width, dtype=torch.long, device=device)
    gathered: Layers = ()
    for numbers in batches.values():
        shown = max(len(masks[number]) for number in numbers)
        for number in numbers:
            mask[number, width - shown : width - shown + len(masks[number])] = masks[number]
        rows = torch.tensor([entry.row for number in numbers if (entry := kept[number])], device=device)
        source = next(entry.layers for number in numbers if (entry := kept[number]))
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


def _make_storage(like: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    return like.new_zeros(rows, like.shape[1], width + ROOM, like.shape[3])


def _cut_mask(mask: torch.Tensor, length: int) -> torch.Tensor:
    """The columns up to the one that holds token number `length`; later ones are left out."""
    if not length:
        return mask[:0]
    return mask[: int(torch.searchsorted(mask.cumsum(0), length)) + 1]


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
