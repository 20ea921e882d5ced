"""Rollouts of which only the entropies matter, as a memory hears of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np

from groupwise.data.records import Step, Task, Trajectory
from groupwise.methods.gardo import DoubtGate, GateShare
from groupwise.parts.stateful import ObservedUpdate

Rollout = list[tuple[int, list[float]]]
"""The index of each step and the entropies of its sampled tokens."""


def make_update(number: int, rollouts: Sequence[Rollout]) -> ObservedUpdate:
    """An update that sampled these; each step of an odd index begins with a forced token of entropy 9."""
    trajectories = [
        Trajectory(
            id=f"rollout {place}",
            task=Task(id="t"),
            rollout=place,
            steps=[make_step(index, entropies) for index, entropies in rollout],
        )
        for place, rollout in enumerate(rollouts)
    ]
    return ObservedUpdate(number=number, trajectories=trajectories, credit=[None] * len(trajectories))


def make_step(index: int, entropies: list[float]) -> Step:
    """A step of sampled tokens."""
    forced = index % 2
    num = forced + len(entropies)
    return Step(
        index=index,
        response_ids=(1,) * num,
        logp_behaviour=(-1.0,) * num,
        entropy=(9.0,) * forced + tuple(entropies),
        forced=forced,
    )


def start_share(means: Iterator[float]) -> GateShare:
    """The share of a gate that finds these mean doubts, one an update."""
    settings = {"column": "gate_share", "first": 0.1, "lowest": 0.02, "highest": 0.2, "change": 0.1, "window": 20}
    gate = SimpleNamespace(**settings, measure_doubt=lambda table: np.array([next(means)]))
    return GateShare(cast(DoubtGate, gate))
