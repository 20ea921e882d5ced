"""The chains of a pack: neighbouring nodes of which each is the first child of the one before, in pre-order.

What a chain sees is its path and itself, causally. Samples side by side are chains without a path.

Axes: L nodes, C chains, K keys: of each chain its path, then its own nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from groupwise.batching.to_device import to_device
from groupwise.core.segments import IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Chains:
    """The chains of a pack.

    Worked example: the nodes 0-1-2 and 0-1-3 have depths [0, 1, 2, 2] and the chains [0, 1, 2] and [3], so that queries
    is [0, 3, 4], keys [0, 3, 6], source [0, 1, 2, 0, 1, 3], order [0, 3, 1, 4, 2, 5] and begins [0, 2, 4, 5].
    """

    queries: torch.Tensor
    """Where each chain begins, and L (C + 1)."""
    keys: torch.Tensor
    """Where the keys of each chain begin, and K (C + 1)."""
    source: torch.Tensor
    """Node of each key (K)."""
    order: torch.Tensor
    """The keys by node, those of a node as they come (K)."""
    begins: torch.Tensor
    """Where the keys of each node begin in that order (L)."""
    max_queries: int
    """Nodes of the longest chain."""
    max_keys: int
    """Keys of the chain that has the largest number."""

    @classmethod
    def of(cls, depth: IntArray) -> Chains:
        """The chains of nodes in pre-order at the given depths (L)."""
        queries = np.append(np.flatnonzero(np.diff(depth, prepend=depth[0]) != 1), len(depth))
        # The path of a node is what came last at each depth.
        last, paths = np.empty(int(depth.max()) + 1, dtype=np.int64), []
        for low, high in pairwise(queries.tolist()):
            last[depth[low] : depth[high - 1] + 1] = np.arange(low, high)
            paths.append(last[: depth[high - 1] + 1].copy())
        keys, source = np.append(0, np.cumsum([len(path) for path in paths])), np.concatenate(paths)
        counts = np.bincount(source)
        return cls(
            queries=torch.from_numpy(queries).to(torch.int32),
            keys=torch.from_numpy(keys).to(torch.int32),
            source=torch.from_numpy(source),
            order=torch.from_numpy(np.argsort(source, kind="stable")),
            begins=torch.from_numpy(np.cumsum(counts) - counts),
            max_queries=int(np.diff(queries).max()),
            max_keys=int(np.diff(keys).max()),
        )

    def to(self, device: torch.device | str) -> Chains:
        """The same on a device."""
        return to_device(self, device)

    @property
    def is_plain(self) -> bool:
        """Whether no node has two children, so that the nodes are the keys."""
        return len(self.source) == len(self.begins)

    @property
    def inputs(self) -> dict[str, Any]:
        """How attention finds its way, in the words of transformers."""
        return {
            # Without any, transformers would write one out for the whole pack, by the positions that begin anew.
            "attention_mask": self.queries.new_zeros((1, 1, 1, 1)),
            "cu_seq_lens_q": self.queries,
            "cu_seq_lens_k": self.keys,
            "max_length_q": self.max_queries,
            "max_length_k": self.max_keys,
            **({} if self.is_plain else {"key_copies": [self.source, self.order, self.begins]}),
        }
