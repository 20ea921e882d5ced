"""The estimator that most methods are made of: a number, less its group's level, over its group's spread.

Axes: S steps, C members of the statistics (steps, or attempts within a group, and virtual members), M groups.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from groupwise.advantages.baselines import Mean
from groupwise.advantages.scales import Deviation
from groupwise.core.credit import Comparison, Credit
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part, name_of
from groupwise.core.parts.slots import BaselinePart, GrouperPart, ScalePart, SignalPart
from groupwise.core.segments import BoolArray, FloatArray, IntArray, Segments, pair_labels
from groupwise.core.step_table import StepTable


class Relative(Part, slot="estimator"):
    """Compare each step's signal with its group's.

        credit = (signal - baseline(group)) / scale(group)

    Edge behaviour: all members equal gives exactly 0 (unless nothing is subtracted: `NoBaseline` keeps the values); a
    group of one follows `alone`; a step in no group gets 0 and is
    not compared.
    """

    by: GrouperPart
    """Who is compared with whom."""
    of: SignalPart
    """What is compared."""
    baseline: BaselinePart = Mean()
    """What is subtracted."""
    scale: ScalePart = Deviation()
    """What it is divided by."""
    mixed_scale: ScalePart | None = None
    """What groups with off-policy members are divided by; None = the same as others (R^3 tempers them)."""
    average: Literal["attempt", "step"] = "attempt"
    """Who counts in the statistics: each attempt once (with the mean of its steps in the group), or each step."""
    alone: Literal["zero", "raw", "error"] = "zero"
    """What a group of one receives: 0, its raw signal (as several released codes do), or an error."""
    virtual: tuple[float, ...] = ()
    """Values of made-up members that join every group's statistics and receive nothing (NGRPO)."""
    virtual_is_company: bool = True
    """Whether a group with one real member and made-up ones counts as a comparison, or its member as alone."""

    def __call__(self, table: StepTable) -> Credit:
        signal, label = table.ask_once(self.of), table.ask_once(self.by)
        member, values, groups = self._find_members(table, signal, label)
        centred = self.baseline(values, groups)
        scale = self._find_scales(table, member, values, groups)

        group = groups.label[member]
        distance = (signal - values[member]) + centred[member]
        made_up = 0 if self.virtual_is_company else len(self.virtual)
        compared = np.append(groups.size - made_up > 1, False)[group]
        scale_of_step = np.append(scale, np.nan)[group]
        # All members equal: 0 for every step, even where an attempt's own steps differ from its mean.
        flat = np.append(groups.sum((centred != 0).astype(np.float64)) == 0, False)[group]
        divisor = np.where(compared & ~flat & (scale_of_step > 0), scale_of_step, np.inf)
        credit = np.where(
            compared, distance / divisor + 0.0, self._credit_lone_steps(table, signal, (group >= 0) & ~compared)
        )
        trace = Comparison(
            values=credit,
            compared=compared,
            signal=signal,
            label=group,
            baseline=np.where(compared, signal - distance, np.nan),
            scale=np.where(compared, scale_of_step, np.nan),
            part=self,
        )
        return Credit.of(table, trace)

    def _find_scales(self, table: StepTable, member: IntArray, values: FloatArray, groups: Segments) -> FloatArray:
        """What each group is divided by (M)."""
        scale = self.scale(values, groups)
        if self.mixed_scale is None or not table.off_policy.any():
            return scale
        group = groups.label[member]
        is_mixed = np.zeros(len(groups) + 1, dtype=np.bool_)  # the last one is for steps in no group
        is_mixed[group[table.off_policy]] = True
        return np.where(is_mixed[:-1], self.mixed_scale(values, groups), scale)

    def _find_members(
        self, table: StepTable, signal: FloatArray, label: IntArray
    ) -> tuple[IntArray, FloatArray, Segments]:
        """Who counts in the statistics: the member that each step is (S), the members' values and groups (C)."""
        if self.average == "step":
            member, values, label_of_member = np.arange(len(label)), signal, label
        else:
            # An attempt's steps in no group would share the label -1; each attempt keeps them apart from its others.
            cells = Segments.of(pair_labels(label + 1, table.attempt))
            member, values, label_of_member = cells.label, cells.mean(signal), label[cells.first]
        if not self.virtual:
            return member, values, Segments.of(label_of_member)
        groups = Segments.of(label_of_member)
        joined = np.append(groups.label, np.repeat(np.arange(len(groups)), len(self.virtual)))
        return member, np.append(values, np.tile(self.virtual, len(groups))), Segments.of(joined)

    def _credit_lone_steps(self, table: StepTable, signal: FloatArray, lone: BoolArray) -> FloatArray:
        """What steps without peers receive (S)."""
        if self.alone == "error" and lone.any():
            raise RecordError(
                f"{table.describe_step(int(np.flatnonzero(lone)[0]))}: nobody to compare with ({name_of(self.by)}); "
                "add attempts, or set alone to 'zero' or 'raw'"
            )
        return np.where(lone & (self.alone == "raw"), signal, 0.0)
