"""Samples as tensors: prefix-shared packs under a token budget, padded rows, the totals of an update."""

from __future__ import annotations

from groupwise.batching.count_totals import count_totals
from groupwise.batching.forest import Forest, merge_samples, merge_sequences
from groupwise.batching.layout import Layout
from groupwise.batching.pack import Pack, pack, unpack
from groupwise.batching.padded_rows import PaddedRows, pad_rows, pad_within_budget
from groupwise.batching.token_values import spread_over_tokens

__all__ = [
    "Forest",
    "Layout",
    "Pack",
    "PaddedRows",
    "count_totals",
    "merge_samples",
    "merge_sequences",
    "pack",
    "pad_rows",
    "pad_within_budget",
    "spread_over_tokens",
    "unpack",
]
