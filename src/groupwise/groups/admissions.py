"""Admissions: which attempts of a group are compared at all.

An attempt that is not admitted leaves the statistics too: baselines, scales, ranks and counts are those of the others.
Filters differ: what they drop still moves the numbers of its group, and only does not train.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import StopReason, Trajectory


class WithoutTruncated(Part, slot="admission"):
    """Leave out the attempts that a limit on steps or tokens cut off: how they would have ended is not known.

    Ours, after the overlong filtering of DAPO (Yu et al. 2025, arXiv:2503.14476), which keeps such attempts in the
    statistics (`overlong_mask`). Choice: where all attempts of a group were cut off, none is left, and the update goes
    on without the group.
    """

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        return [attempt for attempt in group if attempt.stop is not StopReason.TRUNCATED]


class AtMost(Part, slot="admission"):
    """Compare at most so many attempts of a group, drawn evenly; the others were played and are left out.

    Ours: groups of one size, whatever a plan or a later round brought, so that scales that depend on the number of
    members do not differ between tasks. Those that are drawn keep their order.
    """

    attempts: Annotated[int, Field(ge=1)]
    """Attempts that are compared."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        if len(group) <= self.attempts:
            return group
        generator = draw("at_most", group[0].task.id)
        drawn = sorted(generator.choice(len(group), self.attempts, replace=False).tolist())
        return [group[number] for number in drawn]
