"""How many directions the hidden states of a response take, and how that grows along it.

Axes: n sampled tokens, d width of a hidden state, J prefixes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory
from groupwise.core.segments import FloatArray
from groupwise.rollout.measures.response_states import read_response_states
from groupwise.rollout.measures.tools import Tools


class EffectiveRank(Part, slot="measure"):
    """Write down the effective rank of each response's hidden states, how fast it grew, and how that changed.

        effective_rank    = exp(entropy of s / sum(s)),   s the singular values of the states less their mean
        rank_velocity     = mean over j >= 2 of delta_j,   delta_j = m_j - mean(m_1 .. m_(j-1))
        rank_acceleration = mean over j >= 3 of delta_j - delta_(j-1)

    m_j is the effective rank of the first j * stride + 1 sampled tokens, for as many j as the response has tokens for.
    The token credit `rank_bonus` reads all three.

    Source: VERL (arXiv:2509.23808) and its release; effective rank after Roy and Vetterli (EUSIPCO 2007). **Choices.**
    The states are those of the last layer, after its norm, as the head reads them. Fewer than two tokens, or states
    that are all equal, have rank 0. With fewer prefixes than the means need, velocity and acceleration are 0: up to
    2 * stride tokens both, up to 3 * stride the acceleration. Every step is a response. It takes a decomposition for
    every prefix, on the CPU, whose time grows with the cube of the tokens: seconds for 1,000; a larger stride is less.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    writes: ClassVar[frozenset[str]] = frozenset({"effective_rank", "rank_velocity", "rank_acceleration"})
    stride: Annotated[int, Field(ge=1)] = 40
    """Tokens from one prefix to the next."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """Rank, velocity and acceleration of each step."""
        facts = (self._describe(states) for states in read_response_states(groups, tools))
        return [[[next(facts) for _ in trajectory.steps] for trajectory in group] for group in groups]

    def _describe(self, states: FloatArray) -> dict[str, float]:
        *growth, whole = rank_prefixes(states, range(self.stride + 1, len(states) + 1, self.stride))
        velocity, acceleration = measure_growth(growth)
        return {"effective_rank": whole, "rank_velocity": velocity, "rank_acceleration": acceleration}


def compute_effective_rank(states: FloatArray) -> float:
    """The effective rank of states (n, d): between 1 and the rank of what is left without their mean, or 0.

    >>> round(compute_effective_rank(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])), 6)
    1.928623
    """
    if len(states) < 2:
        return 0.0
    centred = states - states[0]  # equal states give exactly 0
    centred -= centred.mean(axis=0)
    largest = float(np.abs(centred).max())
    if largest == 0.0:
        return 0.0
    singular = np.linalg.svd(centred / largest, compute_uv=False)
    share = singular / singular.sum()
    share = share[share > 0]
    return math.exp(-float(np.sum(share * np.log(share))))


def rank_prefixes(states: FloatArray, ends: Sequence[int]) -> list[float]:
    """The effective ranks of the first tokens up to each end, then that of all.

    A response of fewer tokens than its states are wide is turned into as few columns first, which keeps every singular
    value of every prefix: the first t tokens then lie in the first t columns.
    """
    if not len(states):
        return [0.0]
    moved, lengths = states - states[0], (*ends, len(states))
    if moved.shape[1] <= len(moved):
        return [compute_effective_rank(moved[:length]) for length in lengths]
    triangle = np.asarray(np.linalg.qr(moved.T, mode="r")).T
    return [compute_effective_rank(triangle[:length, :length]) for length in lengths]


def measure_growth(ranks: Sequence[float]) -> tuple[float, float]:
    """Velocity and acceleration of the ranks of growing prefixes.

    >>> [round(value, 6) for value in measure_growth([1.2, 1.6, 1.9, 2.0])]
    [0.444444, 0.016667]
    """
    # Differences first, so that equal ranks give exactly 0.
    deltas = [
        math.fsum(rank - earlier for earlier in ranks[:place]) / place for place, rank in enumerate(ranks) if place
    ]
    velocity = math.fsum(deltas) / len(deltas) if deltas else 0.0
    changes = [after - before for before, after in pairwise(deltas)]
    return velocity, math.fsum(changes) / len(changes) if changes else 0.0
