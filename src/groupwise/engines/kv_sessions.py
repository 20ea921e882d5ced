"""Keys and values kept from an attempt's last prompt, for the part that its next prompt repeats.

With a full or anchored memory a step's prompt begins with the step before, prompt and response; with a sliding window
little is shared and nothing is kept for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from groupwise.engines.engine import Request

WORTHWHILE = 0.3
"""Share of the prompts' tokens that must be known already for reuse to beat a plain prefill."""


@dataclass(frozen=True)
class Past:
    """What a batch of prompts starts from: a cache, its mask, and how many tokens of each prompt it holds."""

    cache: DynamicCache
    mask: torch.Tensor
    lengths: list[int]


@dataclass(frozen=True)
class _Kept:
    ids: tuple[int, ...]
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]


class KvSessions:
    """Keys and values by session, the oldest dropped first when too many tokens are held."""

    def __init__(self, *, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._kept: dict[str, _Kept] = {}
        self._tokens = 0

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._tokens = 0

    def forget(self, sessions: Sequence[str]) -> None:
        """Forget some sessions."""
        for session in sessions:
            kept = self._kept.pop(session, None)
            self._tokens -= 0 if kept is None else len(kept.ids)

    def keep(
        self, request: Request, response: Sequence[int], cache: DynamicCache, row: int, mask: torch.Tensor
    ) -> None:
        """Keep a finished row: its prompt and all sampled tokens but the last, which was never read."""
        if request.session is None or not self._most_tokens:
            return
        ids = (*request.prompt_ids, *response[:-1])
        known = mask.bool()
        layers = tuple(_kept_positions(layer, row, known) for layer in cache.layers)
        self.forget([request.session])
        self._kept[request.session] = _Kept(ids=ids, layers=layers)
        self._tokens += len(ids)
        while self._tokens > self._most_tokens:
            self.forget([next(iter(self._kept))])

    def recall(self, requests: Sequence[Request], device: torch.device) -> Past:
        """The longest known beginnings of prompts; nothing where too little is known to be worth the copying."""
        lengths = [self._known(request) for request in requests]
        if sum(lengths) < WORTHWHILE * sum(len(request.prompt_ids) for request in requests):
            lengths = [0] * len(requests)
        width = max(lengths)
        mask = torch.zeros(len(requests), width, dtype=torch.long, device=device)
        cache = DynamicCache()
        if not width:
            return Past(cache, mask, lengths)
        for row, length in enumerate(lengths):
            mask[row, width - length :] = 1
        kept = [self._kept[request.session or ""] if n else None for request, n in zip(requests, lengths, strict=True)]
        sample = next(entry for entry in kept if entry is not None)
        for layer, (keys, _) in enumerate(sample.layers):
            shape = (len(requests), keys.shape[0], width, keys.shape[2])
            padded = keys.new_zeros(shape), keys.new_zeros(shape)
            for row, (entry, length) in enumerate(zip(kept, lengths, strict=True)):
                if entry is not None:
                    for target, source in zip(padded, entry.layers[layer], strict=True):
                        target[row, :, width - length :] = source[:, :length]
            cache.update(*padded, layer)
        return Past(cache, mask, lengths)

    def _known(self, request: Request) -> int:
        kept = self._kept.get(request.session or "")
        if kept is None:
            return 0
        most = min(len(kept.ids), len(request.prompt_ids) - 1)  # at least one token must be read to predict the next
        return next((i for i in range(most) if kept.ids[i] != request.prompt_ids[i]), most)


def _kept_positions(layer: Any, row: int, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A row's keys and values at the positions that were read, padding left out."""
    read = known[-layer.keys.shape[2] :]
    return layer.keys[row][:, read], layer.values[row][:, read]
