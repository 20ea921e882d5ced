"""What every layout of samples has: the way back from its places to the trained tokens.

Axes: T trained tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from groupwise.batching.predictions import Predictions
from groupwise.batching.to_device import to_device


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """Some samples of an update as tensors; `Pack` and `PaddedRows` say how their tokens lie.

    Worked example: the prompt (1, 2) with the response (3, 4), laid out as [1, 2, 3], has predictor [1, 2], target
    [3, 4], sample [0, 0], position [0, 1].
    """

    input_ids: torch.Tensor
    """Tokens as the model reads them, in rows."""
    position_ids: torch.Tensor
    """Position of each of them in every sample through it."""
    sample: torch.Tensor
    """Sample of each trained token (T), numbered as in the list handed in; ascending."""
    position: torch.Tensor
    """Position of each trained token in its response (T), from 0."""
    predictions: Predictions
    """Which places predict which of them, as the head reads it."""
    members: tuple[int, ...]
    """The samples it holds, ascending."""
    longest: int
    """Tokens of the longest sequence: the positions and the attention window a model must have."""
    largest_id: int
    """Largest token id: the vocabulary a model must have."""
    raw_tokens: int
    """Tokens of its samples, none shared and no padding."""

    @property
    def predictor(self) -> torch.Tensor:
        """Place in the flattened rows whose hidden state predicts each trained token (T)."""
        return self.predictions.node[self.predictions.row][self.predictions.back]

    @property
    def target(self) -> torch.Tensor:
        """Token id of each trained token (T)."""
        return self.predictions.target[self.predictions.back]

    def to(self, device: torch.device | str) -> Self:
        """The same layout on a device."""
        return to_device(self, device)
