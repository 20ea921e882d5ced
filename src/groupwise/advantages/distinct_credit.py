"""More credit for good attempts that are unlike the others: GARDO's diversity. Axes: S steps, A attempts, W width."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Mixture
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable

SAME = 1e-12
"""Mean distance below which the attempts at a task count as the same."""


class DistinctCredit(Part, slot="estimator"):
    """Multiply credit that is not negative by how far the attempt is from the one most like it.

        near_i = min over the other attempts j at its task of (1 - cos(e_i, e_j));   d_i = near_i / mean(near)
        A_i    = d_i * A_i where A_i >= 0, else A_i

    Source: GARDO (2025, arXiv:2512.24138) and its release, for images. **Choices.** An attempt lies at the mean of its
    responses' points, each at length 1; what the points are is the measure's (`response_embedding` writes them). An
    attempt that is alone, or none of whose responses has a point, keeps its credit and is nobody's neighbour. Where all
    are the same, so do all.
    """

    of: EstimatorPart
    """The credit that is weighed."""
    fact: Annotated[str, Field(min_length=1)] = "embedding"
    """The column that says where each response lies, as a list of numbers."""

    @property
    def reads(self) -> frozenset[str]:
        """The fact that it reads."""
        return frozenset({self.fact})

    def __call__(self, table: StepTable) -> Credit:
        trace, weight = self.of(table).trace, self.weigh_attempts(table)[table.attempt]
        weight = np.where(trace.values >= 0, weight, 1.0)
        mixed = Mixture(
            values=weight * trace.values, compared=trace.compared, weights=(weight,), terms=(trace,), part=self
        )
        return Credit.of(table, mixed)

    def weigh_attempts(self, table: StepTable) -> FloatArray:
        """d of each attempt (A)."""
        point_A, is_known_A = self._read_points(table)
        weight_A = np.ones(len(table.attempts))
        task_A = table.task[table.attempts.first]
        for task in np.unique(task_A):
            members = np.flatnonzero((task_A == task) & is_known_A)
            if len(members) > 1:
                weight_A[members] = _weigh_group(point_A[members])
        return weight_A

    def _read_points(self, table: StepTable) -> tuple[FloatArray, BoolArray]:
        """Where each attempt lies (A, W), at length 1, and whether that is known (A)."""
        column = table.column(self.fact)
        width = max((len(numbers) for numbers in column if isinstance(numbers, list | tuple)), default=0)
        point_S = np.zeros((len(table), width))
        for step, numbers in enumerate(column):
            if not isinstance(numbers, list | tuple) or len(numbers) not in (0, width):
                raise RecordError(
                    f"{table.describe_step(step)}: {self.fact} is no list of {width} numbers; measure it with "
                    "response_embedding"
                )
            if len(numbers):
                point_S[step] = numbers
        if not np.isfinite(point_S).all():
            raise RecordError(f"{self.fact} holds a number that is not finite; measure it with response_embedding")
        unit_S = _shorten(point_S)
        sum_A = np.zeros((len(table.attempts), width))
        np.add.at(sum_A, table.attempt, unit_S)
        return _shorten(sum_A), np.asarray(np.any(sum_A != 0, axis=1))


def _shorten(points: FloatArray) -> FloatArray:
    """Points at length 1; 0 stays 0."""
    length = np.sqrt((points**2).sum(axis=1, keepdims=True))
    return points / np.where(length > 0, length, 1.0)


def _weigh_group(points: FloatArray) -> FloatArray:
    """The distance of each to its nearest neighbour, over the mean of these; 1 where all are the same.

    Half the square of the difference is 1 - cos, and exactly 0 for equal points.
    """
    apart = np.array([((points - point) ** 2).sum(axis=1) / 2 for point in points])
    np.fill_diagonal(apart, np.inf)
    near = apart.min(axis=1)
    mean = near.mean()
    return near / mean if mean > SAME else np.ones(len(points))
