"""Shaping a group: what comparing its attempts adds to what they earned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import name_of
from groupwise.core.parts.slots import Shaper
from groupwise.core.records import Trajectory


def shape_group(group: Sequence[Trajectory], shapers: Sequence[Shaper]) -> list[Trajectory]:
    """The attempts of a group with what each shaper adds, one after the other; their own rewards stay known."""
    trajectories = list(group)
    for shaper in shapers:
        trajectories = [
            _add_amounts(trajectory, amounts, shaper)
            for trajectory, amounts in zip(trajectories, shaper(trajectories), strict=True)
        ]
    return trajectories


def _add_amounts(trajectory: Trajectory, amounts: Sequence[float], shaper: Shaper) -> Trajectory:
    if len(amounts) != len(trajectory.steps) or not all(math.isfinite(amount) for amount in amounts):
        raise RecordError(
            f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: shaper {name_of(shaper)} gave {amounts!r} for "
            f"{len(trajectory.steps)} steps; give one finite number per step"
        )
    if not any(amounts):
        return trajectory
    steps = [replace(step, shaped=step.shaped + amount) for step, amount in zip(trajectory.steps, amounts, strict=True)]
    return replace(trajectory, steps=tuple(steps))
