"""Samples as tensors: prefix-shared packs under a token budget, padded rows, log-probs, the totals of an update."""

from __future__ import annotations

from groupwise.batching.columns import column
from groupwise.batching.counts import totals
from groupwise.batching.forest import Forest, forest, merge
from groupwise.batching.layout import Layout
from groupwise.batching.logps import check_sharing, token_logps
from groupwise.batching.masks import attention_mask, dense_mask
from groupwise.batching.pack import Pack, pack, unpack
from groupwise.batching.padded import PaddedRows, padded

__all__ = [
    "Forest",
    "Layout",
    "Pack",
    "PaddedRows",
    "attention_mask",
    "check_sharing",
    "column",
    "dense_mask",
    "forest",
    "merge",
    "pack",
    "padded",
    "token_logps",
    "totals",
    "unpack",
]
