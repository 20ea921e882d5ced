"""Samples as tensors: prefix-shared packs under a token budget, padded rows, the totals of an update."""

from __future__ import annotations

from groupwise.batching.counts import totals
from groupwise.batching.forest import Forest, forest, merge
from groupwise.batching.layout import Layout
from groupwise.batching.pack import Pack, pack, unpack
from groupwise.batching.padded import PaddedRows, padded, padded_within
from groupwise.batching.token_values import column

__all__ = [
    "Forest",
    "Layout",
    "Pack",
    "PaddedRows",
    "column",
    "forest",
    "merge",
    "pack",
    "padded",
    "padded_within",
    "totals",
    "unpack",
]
