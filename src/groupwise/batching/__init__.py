"""Samples as tensors: prefix-shared packs under a token budget, padded rows, log-probs, the totals of an update."""

from __future__ import annotations

from groupwise.batching.chosen_layout import lay_out, packing_fault
from groupwise.batching.columns import column
from groupwise.batching.counts import totals
from groupwise.batching.forest import Forest, forest, merge
from groupwise.batching.layout import Layout
from groupwise.batching.logps import check_packs, token_logps
from groupwise.batching.masks import attention_mask, dense_mask
from groupwise.batching.pack import Pack, pack, unpack
from groupwise.batching.padded import PaddedRows, padded, padded_within

__all__ = [
    "Forest",
    "Layout",
    "Pack",
    "PaddedRows",
    "attention_mask",
    "check_packs",
    "column",
    "dense_mask",
    "forest",
    "lay_out",
    "merge",
    "pack",
    "packing_fault",
    "padded",
    "padded_within",
    "token_logps",
    "totals",
    "unpack",
]
