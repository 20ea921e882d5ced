"""Weights handed over within the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.core.parts.part import Part
from groupwise.training.learner.weights import collect_weights

if TYPE_CHECKING:
    import torch

    from groupwise.engines.engine import Engine


class InMemory(Part, slot="weight_transfer"):
    """The engine copies the learner's tensors, within one process."""

    def open(self, folder: Path | None) -> InMemory:
        """Nothing to open."""
        return self

    def hand_over(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        engine: Engine,
        *,
        version: int,
    ) -> None:
        """Let the engine copy the weights."""
        engine.load(collect_weights(weights), version=version)
