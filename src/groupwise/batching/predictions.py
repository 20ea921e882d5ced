"""Which hidden states predict which tokens, worked out on the host: asking a device would mean waiting for it.

Axes: U predicting nodes, T trained tokens (several may be predicted by one node).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from groupwise.batching.to_device import to_device
from groupwise.core.segments import IntArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """The trained tokens of a layout, sorted by the node that predicts them; each such node is a row of the head.

    Worked example: predictor [1, 2, 1, 2] and target [3, 4, 3, 5] have node [1, 2], row [0, 0, 1, 1], target
    [3, 3, 4, 5], back [0, 2, 1, 3], first [0, 2], others [1, 3] and starts [0, 2, 4].
    """

    node: torch.Tensor
    """Place of each predicting state in the flattened rows, ascending (U)."""
    row: torch.Tensor
    """Which of them predicts each token, ascending (T)."""
    target: torch.Tensor
    """Token id of each token (T)."""
    back: torch.Tensor
    """Where each trained token, in the order of the layout, stands in this one (T)."""
    first: torch.Tensor
    """Where the tokens of each row begin (U)."""
    others: torch.Tensor
    """Where the tokens stand that are not the first of their row."""
    starts: IntArray
    """Where the tokens of each row begin, and T (U + 1); on the host."""

    @classmethod
    def of(cls, predictor: IntArray, target: IntArray) -> Predictions:
        """The tokens `target` (T), predicted by the states at `predictor` (T)."""
        node, row = np.unique(predictor, return_inverse=True)
        order = np.argsort(row, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        starts = np.searchsorted(row[order], np.arange(len(node) + 1))
        is_other = np.ones(len(order), dtype=bool)
        is_other[starts[:-1]] = False
        arrays = {"node": node, "row": row[order], "target": target[order], "back": back, "first": starts[:-1]}
        arrays |= {"others": np.flatnonzero(is_other)}
        return cls(**{name: torch.from_numpy(array) for name, array in arrays.items()}, starts=starts)

    def to(self, device: torch.device | str) -> Predictions:
        """The same on a device."""
        return to_device(self, device)
