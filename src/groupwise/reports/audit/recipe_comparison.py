"""Credit under several recipes, side by side.

Axes: R recipes, S steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.credit import Credit
from groupwise.core.own_rollout import find_own_rollout_only
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.unearned import find_unearned


@dataclass(frozen=True, kw_only=True)
class RecipeColumn:
    """What one recipe gives the file's steps."""

    name: str
    """Name of the recipe."""
    compared_steps: int
    """Steps compared with anybody."""
    own_rollout_steps: int | None
    """Compared steps that have no other rollout in any of their groups; None = the recipe does not say."""
    silent_steps: int
    """Compared steps whose credit is exactly 0."""
    mean_size: float
    """Mean absolute credit over all steps."""
    largest: float
    """Largest absolute credit."""
    unrewarded_share: float
    """Share of the absolute credit in tasks in which nobody earned anything, such as that of penalties."""
    flips: dict[str, int]
    """Against each other recipe: steps whose credit has the opposite sign."""
    both_signed: dict[str, int]
    """Against each other recipe: steps where both credits have a sign."""
    correlation: dict[str, float | None]
    """Against each other recipe: correlation of the two credits over all steps; None where one is constant."""


class RecipeTally:
    """Adds up credit chunk by chunk."""

    def __init__(self, names: Sequence[str]) -> None:
        num = len(names)
        self._names = list(names)
        self._steps = 0
        self._compared, self._silent = np.zeros(num, dtype=np.int64), np.zeros(num, dtype=np.int64)
        self._own_rollout: list[int | None] = [0] * num
        self._size, self._largest, self._unrewarded = np.zeros(num), np.zeros(num), np.zeros(num)
        self._flips, self._both = np.zeros((num, num), dtype=np.int64), np.zeros((num, num), dtype=np.int64)
        self._sum, self._product = np.zeros(num), np.zeros((num, num))

    def add(self, table: StepTable, credits: Mapping[str, Credit]) -> None:
        """Add one chunk's credit, recipe by recipe."""
        traces = [credits[name].trace for name in self._names]
        values_RS = np.stack([trace.values for trace in traces])
        compared_RS = np.stack([trace.compared for trace in traces])
        signs_RS = np.sign(values_RS)
        self._steps += values_RS.shape[1]
        self._compared += compared_RS.sum(axis=1)
        for place, trace in enumerate(traces):
            own, before = find_own_rollout_only(table, trace), self._own_rollout[place]
            self._own_rollout[place] = None if own is None or before is None else before + int(own.sum())
        self._silent += (compared_RS & (values_RS == 0)).sum(axis=1)
        self._size += np.abs(values_RS).sum(axis=1)
        self._unrewarded += np.abs(values_RS[:, find_unearned(table)]).sum(axis=1)
        self._largest = np.maximum(self._largest, np.abs(values_RS).max(axis=1, initial=0.0))
        agreement = signs_RS @ signs_RS.T
        both = np.abs(signs_RS) @ np.abs(signs_RS).T
        self._both += both.astype(np.int64)
        self._flips += ((both - agreement) / 2).astype(np.int64)
        self._sum += values_RS.sum(axis=1)
        self._product += values_RS @ values_RS.T

    def result(self) -> list[RecipeColumn]:
        """One column a recipe."""
        correlation = self._correlation()
        return [
            RecipeColumn(
                name=name,
                compared_steps=int(self._compared[i]),
                own_rollout_steps=self._own_rollout[i],
                silent_steps=int(self._silent[i]),
                mean_size=float(self._size[i] / max(self._steps, 1)),
                largest=float(self._largest[i]),
                unrewarded_share=float(self._unrewarded[i] / self._size[i]) if self._size[i] else 0.0,
                flips={other: int(self._flips[i, j]) for j, other in enumerate(self._names) if j != i},
                both_signed={other: int(self._both[i, j]) for j, other in enumerate(self._names) if j != i},
                correlation={
                    other: None if np.isnan(correlation[i, j]) else float(correlation[i, j])
                    for j, other in enumerate(self._names)
                    if j != i
                },
            )
            for i, name in enumerate(self._names)
        ]

    def _correlation(self) -> FloatArray:
        mean = self._sum / max(self._steps, 1)
        covariance = self._product / max(self._steps, 1) - np.outer(mean, mean)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        product = np.outer(deviation, deviation)
        return np.where(product > 0, covariance / np.where(product > 0, product, 1.0), np.nan)
