"""Whether layers of our own compute what the model's do: both read the same sequences.

In a narrow precision every layer rounds, and wrong layers of fresh weights may hide in what the rounding of a deep
model adds up to. So the first layers are also held against a copy of them in float32, from which ours may be little
farther than the model's own are.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.engines.static_cache.cache import HeadShape, LaneCache
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.token_batch import UnreadRow

TRIAL_LENGTHS = (37, 5, 150, 1)
"""Tokens of the sequences that are tried; each is read in two parts."""
FIRST_LAYERS = 2
"""Layers that are copied to float32: few, since their weights take twice the memory there."""

TokenIds = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LayersTrial:
    """Layers of our own over a model, and what their cache looks like."""

    model: PreTrainedModel
    layers: OwnLayers
    heads: Sequence[HeadShape]
    """What each layer keeps."""
    dtype: torch.dtype
    """What it is kept in."""
    window: float
    """Tokens up to which every layer of the model sees everything before it, as ours do."""

    @torch.no_grad()
    def measure_gap(self) -> float:
        """How far our layers are from the model's, as a share of the size of the last hidden states."""
        sequences = self._draw_sequences()
        return _find_share(
            self._read_by_ours(sequences, len(self.heads)), self._read_by(self.model.base_model, sequences)
        )

    @torch.no_grad()
    def compare_rounding(self) -> float:
        """How many times as far from float32 the first of our layers are as the model's."""
        sequences = self._draw_sequences()
        narrow: Any = _take_first(self.model.base_model)
        wide = copy.deepcopy(narrow, {id(narrow.embed_tokens): torch.nn.Identity()}).float()
        exact = self._read_by(wide, sequences, dtype=torch.float32)
        ours = _find_share(self._read_by_ours(sequences, len(narrow.layers)), exact)
        return ours / _find_share(self._read_by(narrow, sequences), exact)

    def _draw_sequences(self) -> list[TokenIds]:
        draw = torch.Generator().manual_seed(0)
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        lengths = [int(min(length, self.window)) for length in TRIAL_LENGTHS]
        return [tuple(torch.randint(vocabulary, (length,), generator=draw).tolist()) for length in lengths]

    def _read_by_ours(self, sequences: Sequence[TokenIds], num: int) -> torch.Tensor:
        """The last hidden states of the second halves, by so many of our layers."""
        device, heads = self.model.device, self.heads[:num]
        cache = LaneCache.empty(heads, lanes=len(sequences), width=256, dtype=self.dtype, device=device)
        layers = self.layers.take_first(num)
        first = [UnreadRow(ids[: len(ids) // 2], 0, (lane,)) for lane, ids in enumerate(sequences) if len(ids) > 1]
        rest = [UnreadRow(ids[len(ids) // 2 :], len(ids) // 2, (lane,)) for lane, ids in enumerate(sequences)]
        layers.read_rows(first, cache)
        return layers.read_rows(rest, cache, is_needed=True).double()

    def _read_by(self, body: Any, sequences: Sequence[TokenIds], dtype: torch.dtype | None = None) -> torch.Tensor:
        """The same by a body like the model's, from the model's embeddings."""
        states, embed = list[torch.Tensor](), self.model.get_input_embeddings()
        for ids in sequences:
            embedded = embed(torch.tensor([ids], device=self.model.device))
            hidden = body(inputs_embeds=embedded.to(dtype or embedded.dtype)).last_hidden_state
            states.append(hidden[0, len(ids) // 2 :].double())
        return torch.cat(states)


def _take_first(body: Any) -> Any:
    """The body with its first layers only, which stay the same modules."""
    shorter = copy.copy(body)
    shorter._modules = {**body._modules, "layers": torch.nn.ModuleList(body.layers[:FIRST_LAYERS])}
    return shorter


def _find_share(states: torch.Tensor, expected: torch.Tensor) -> float:
    return float((states - expected).norm() / expected.norm())
