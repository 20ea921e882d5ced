"""A loss that weighs channels of credit (HDPO, arXiv:2604.08545)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from groupwise.extend import LossResult, Part, PolicyLoss, TokenColumns, Totals


class ChannelLoss(Part, slot="loss"):
    """One surrogate a channel, summed: not one surrogate of the summed credit, since each is clipped by itself.

    loss = L_clip(A) + sum_k weight_k * L_clip(A_k)
    """

    weights: Mapping[str, float]
    """How much each channel counts beside the main credit."""
    surrogate: ClassVar[PolicyLoss] = PolicyLoss()

    @property
    def needs(self) -> frozenset[str]:
        """What the surrogate reads."""
        return self.surrogate.needs

    @property
    def unit(self) -> str:
        """What the surrogate must see whole."""
        return self.surrogate.unit

    @property
    def channels(self) -> frozenset[str]:
        """The channels that it weighs."""
        return frozenset(self.weights)

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        main = self.surrogate(columns, totals)
        loss = main.loss
        for name, weight in self.weights.items():
            loss = loss + weight * self.surrogate(replace(columns, advantage=columns.channel(name)), totals).loss
        return LossResult(loss=loss, metrics=main.metrics)
