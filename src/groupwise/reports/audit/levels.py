"""Groups at each depth of history: how many steps are compared there, and what groups of equal states hide.

Axis: S steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.credit import Comparison
from groupwise.core.own_rollout import spans_rollouts
from groupwise.core.segments import BoolArray, IntArray, Segments, pair_labels
from groupwise.core.step_table import StepTable


@dataclass(frozen=True, kw_only=True)
class HistoryLevel:
    """What comparing at one depth of history gives."""

    depth: int
    """Number of earlier states that must be equal; 0 = the state alone."""
    groups: int
    """Groups with at least two steps."""
    compared_steps: int
    """Steps in such a group."""
    own_rollout_steps: int
    """Compared steps whose whole group is of their own rollout."""
    alone_steps: int
    """Steps that have this much history and nobody who shares it."""
    too_early_steps: int
    """Steps without this much history, or without a state."""
    equal_steps: int
    """Compared steps whose whole group has one return: compared, and nothing learnt."""
    mean_size: float
    """Mean size of the groups with at least two steps."""
    split_steps: int
    """Steps compared at depth 0 whose state group holds several histories of this depth."""
    baseline_shift: float
    """Mean distance between the baseline at this depth and at depth 0, over steps compared at both."""
    relative_shift: float
    """The same, in deviations of the depth-0 group."""
    sign_flips: int
    """Steps compared at both whose distance from the baseline changes sign."""
    compared_at_both: int
    """Steps compared at both."""


class LevelTally:
    """Counts chunk by chunk; the comparisons come from outside, one per depth, in units of the return."""

    def __init__(self, depths: int) -> None:
        self._counts: list[Counter[str]] = [Counter() for _ in range(depths)]
        self._shift = np.zeros(depths)
        self._relative_shift = np.zeros(depths)
        self._scaled = np.zeros(depths)

    def add(self, table: StepTable, comparisons: Sequence[Comparison]) -> None:
        """Count one chunk: its comparisons by state and ever more history."""
        shallow = comparisons[0]
        for depth, level in enumerate(comparisons):
            groups = Segments.of(level.label)
            several = groups.size > 1
            equal = np.append(groups.is_constant(level.signal) & several, False)[groups.label]
            self._counts[depth].update(
                groups=int(several.sum()),
                compared_steps=int(level.compared.sum()),
                own_rollout_steps=int(np.sum(level.compared & ~spans_rollouts(table, level.label))),
                alone_steps=int(np.sum((level.label >= 0) & ~level.compared)),
                too_early_steps=int(np.sum(level.label < 0)),
                equal_steps=int(equal.sum()),
                split_steps=int(np.sum(_find_split(shallow.label, level.label) & shallow.compared)),
            )
            self._add_shift(depth, shallow, level)

    def _add_shift(self, depth: int, shallow: Comparison, level: Comparison) -> None:
        both = shallow.compared & level.compared
        shift = np.abs(level.baseline[both] - shallow.baseline[both])
        spread = _measure_deviation(shallow)[both]
        flips = (shallow.signal - shallow.baseline)[both] * (level.signal - level.baseline)[both] < 0
        self._shift[depth] += float(shift.sum())
        self._relative_shift[depth] += float((shift[spread > 0] / spread[spread > 0]).sum())
        self._scaled[depth] += float(np.sum(spread > 0))
        self._counts[depth].update(sign_flips=int(flips.sum()), compared_at_both=int(both.sum()))

    def result(self) -> list[HistoryLevel]:
        """The levels so far, shallowest first."""
        return [
            HistoryLevel(
                depth=depth,
                groups=counts["groups"],
                compared_steps=counts["compared_steps"],
                own_rollout_steps=counts["own_rollout_steps"],
                alone_steps=counts["alone_steps"],
                too_early_steps=counts["too_early_steps"],
                equal_steps=counts["equal_steps"],
                mean_size=counts["compared_steps"] / max(counts["groups"], 1),
                split_steps=counts["split_steps"],
                baseline_shift=float(self._shift[depth]) / max(counts["compared_at_both"], 1),
                relative_shift=float(self._relative_shift[depth]) / max(float(self._scaled[depth]), 1.0),
                sign_flips=counts["sign_flips"],
                compared_at_both=counts["compared_at_both"],
            )
            for depth, counts in enumerate(self._counts)
        ]


def _find_split(shallow: IntArray, deep: IntArray) -> BoolArray:
    """Whether a step's shallow group holds several deep groups (S); steps too early for depth count as one more."""
    states = Segments.of(shallow)
    pairs = Segments.of(pair_labels(states.label, deep + 1))
    kinds = np.bincount(states.label[pairs.first], minlength=len(states))
    return np.append(kinds > 1, False)[states.label]


def _measure_deviation(level: Comparison) -> np.ndarray:
    """Population deviation of each step's group (S); 0 outside."""
    groups = Segments.of(level.label)
    distance = np.where(level.compared, level.signal - level.baseline, 0.0)
    return groups.spread(np.sqrt(groups.sum(distance**2) / groups.size), 0.0)
