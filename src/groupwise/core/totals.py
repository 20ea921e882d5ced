"""Totals: what an update holds, counted once over all its micro-batches, and what a loss divides by.

Axis: N samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.column_checks import check_lengths, to_integers
from groupwise.core.pairs import Pair
from groupwise.core.segments import IntArray, Segments, pair_labels


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The denominators of one update, over all micro-batches and ranks.

    Only what trains is counted: a sample, step, trajectory or group counts if at least one of its tokens trains. A
    sample that is masked as a whole (a filter dropped it, or it pads the batch) leaves every denominator.

    Worked example: two trajectories of one group. The first has steps of 2 and 4 tokens; the second has a step of 3
    tokens and one that a filter dropped. A sample may hold at most 8 tokens.

    >>> totals = Totals.count(
    ...     tokens=[2, 4, 3, 0], trajectory=[0, 0, 1, 1], step=[0, 1, 0, 1], group=[0, 0, 0, 0], max_tokens=8
    ... )
    >>> totals.tokens, totals.samples, totals.steps, totals.trajectories, totals.groups
    (9, 3, 3, 2, 1)
    >>> totals.trajectory_tokens, totals.trajectory_steps
    ((6, 3), (2, 1))
    """

    tokens: int
    """Tokens that train."""
    samples: int
    """Samples (training sequences) with a token that trains."""
    steps: int
    """Steps with a token that trains; a step that was cut into several samples counts once."""
    trajectories: int
    """Trajectories with a token that trains."""
    groups: int
    """Groups of attempts with a token that trains."""
    max_tokens: int
    """The most tokens a sample may have: a setting, never the padded width, which changes from batch to batch."""
    trajectory_tokens: tuple[int, ...] = ()
    """Tokens that train of each trajectory, by its number in the update."""
    trajectory_steps: tuple[int, ...] = ()
    """Steps with a token that trains of each trajectory, by its number in the update."""
    pair_members: tuple[Pair, ...] = ()
    """The pairs of trajectories that a loss holds against each other; both members of each have a token that trains."""

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.pair_members)

    @property
    def pair_weight(self) -> float:
        """What the weights of all pairs sum to."""
        return math.fsum(pair.weight for pair in self.pair_members)

    @classmethod
    def count(
        cls,
        *,
        tokens: Sequence[int] | IntArray,
        trajectory: Sequence[int] | IntArray,
        step: Sequence[int] | IntArray,
        group: Sequence[int] | IntArray,
        max_tokens: int,
        pairs: Sequence[Pair] = (),
    ) -> Totals:
        """Count an update from one entry a sample (N).

        Args:
            tokens: tokens of the sample that train.
            trajectory: number of its trajectory in the update, from 0.
            step: index of its step within the trajectory.
            group: number of its group.
            max_tokens: the most tokens a sample may have.
            pairs: pairs of trajectories, or of their steps; those of which a member does not train are left out.
        """
        columns = {"tokens": tokens, "trajectory": trajectory, "step": step, "group": group}
        # An empty list has no type of its own; numpy would make it one of floats.
        columns = {
            name: np.asarray(column, dtype=None if len(column) else np.int64) for name, column in columns.items()
        }
        check_lengths(columns)
        tokens_N, trajectory_N, step_N, group_N = (to_integers(name, column) for name, column in columns.items())
        trains = tokens_N > 0
        num = int(trajectory_N.max()) + 1 if len(trajectory_N) else 0
        steps = Segments.of(pair_labels(trajectory_N[trains], step_N[trains]))
        tokens_of = np.bincount(trajectory_N, weights=tokens_N, minlength=num).astype(np.int64)
        steps_of = np.bincount(trajectory_N[trains][steps.first], minlength=num)
        return cls(
            tokens=int(tokens_N.sum()),
            samples=int(trains.sum()),
            steps=len(steps),
            trajectories=int((tokens_of > 0).sum()),
            groups=len(np.unique(group_N[trains])),
            max_tokens=max_tokens,
            trajectory_tokens=tuple(tokens_of.tolist()),
            trajectory_steps=tuple(steps_of.tolist()),
            pair_members=_keep_trained(pairs, trajectory_N[trains].tolist(), step_N[trains].tolist()),
        )


def _keep_trained(pairs: Sequence[Pair], trajectories: list[int], steps: list[int]) -> tuple[Pair, ...]:
    """The pairs of which both members train; of whole attempts, at least one step."""
    if not pairs:
        return ()
    trained: set[tuple[int, int | None]] = {*zip(trajectories, steps, strict=True), *((n, None) for n in trajectories)}
    return tuple(pair for pair in pairs if trained.issuperset(pair.members))
