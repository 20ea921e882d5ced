"""Tasks against each other where the attempts at one say little: COPO. Axes: S steps, M tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.answer_blend import AnswerBlend
from groupwise.core.credit import Credit, Derivation, Mixture
from groupwise.core.pairs import differ
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.segments import BoolArray, FloatArray, Segments
from groupwise.core.step_table import StepTable


class LocalShare(Part, slot="estimator"):
    """Credit within a task, times how much that counts: w * A."""

    of: EstimatorPart
    """The credit within a task."""
    blend: AnswerBlend = AnswerBlend()
    """How much it counts."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        weight = self.blend.weigh(table, inner.values)
        trace = Mixture(
            values=weight * inner.values, compared=inner.compared, weights=(weight,), terms=(inner,), part=self
        )
        return Credit.of(table, trace)


class GlobalShare(Part, slot="estimator"):
    """What the attempts at a task bring together against other tasks, times how much that counts.

        R = mean(r) * (1 - lam * H),   lam = (1 - 1/G) / log2(G) for G attempts, 0 for one
        A = (1 - w) * (R - mean(R)) / (std(R) + eps),   over the tasks of the update

    Source: COPO (2025, arXiv:2508.04138) and its release. **Choices.** A single task, or tasks that all bring the same,
    get exactly 0. Answers are compared as the environment tells them; attempts without one share a label. The entropy
    is that of attempts, an attempt counting once.
    """

    mixes_tasks: ClassVar[bool] = True
    needs_solved_groups: ClassVar[bool] = True
    of: EstimatorPart
    """The credit within a task, which decides where it counts."""
    blend: AnswerBlend = AnswerBlend()
    """How much the comparison within a task counts."""
    consistency: bool = True
    """Whether disagreement takes something off; else R = mean(r)."""
    eps: Annotated[float, Field(ge=0)] = 1e-6
    """Added to the deviation."""

    @property
    def reads(self) -> frozenset[str]:
        """The facts that it reads beyond its rule of weights."""
        return frozenset({self.blend.answers} if self.consistency else ())

    def __call__(self, table: StepTable) -> Credit:
        weight = 1 - self.blend.weigh(table, self.of(table).trace.values)
        reward_M = self.reward_tasks(table)
        global_M = np.zeros(len(reward_M))
        if len(reward_M) and differ(reward_M.max(), reward_M.min()):
            centred_M = (reward_M - reward_M[0]) - (reward_M - reward_M[0]).mean()
            global_M = centred_M / (np.sqrt((centred_M**2).sum() / (len(reward_M) - 1)) + self.eps)
        trace = GlobalTrace(
            values=weight * global_M[table.task],
            compared=np.full(len(table), len(reward_M) > 1),
            weight=weight,
            part=self,
        )
        return Credit.of(table, trace)

    def reward_tasks(self, table: StepTable) -> FloatArray:
        """R of each task (M)."""
        tasks = Segments.of(table.task[table.attempts.first])
        mean_M = tasks.mean(table.attempts.mean(table.episode_return))
        if not self.consistency:
            return mean_M
        size_M = tasks.size.astype(np.float64)
        lam_M = (1 - 1 / size_M) / np.log2(np.maximum(size_M, 2))
        return mean_M * (1 - lam_M * self.blend.measure_entropy(table))


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalTrace:
    """How a task's credit came about."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether there was more than one task (S)."""
    weight: FloatArray
    """How much the comparison between tasks counts at each step (S)."""
    part: GlobalShare
    """The estimator."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        """What the task brought against the others, in plain arithmetic, times the weight."""
        brought, first = self.part.reward_tasks(table).tolist(), table.tasks.first.tolist()
        own, mean = brought[int(table.task[step])], math.fsum(brought) / len(brought)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in brought) / max(len(brought) - 1, 1))
        share = (own - mean) / (deviation + self.part.eps) if differ(max(brought), min(brought)) else 0.0
        weight = float(self.weight[step])
        formula = f"{weight:.6g} x ({own:.6g} - {mean:.6g}) / {deviation + self.part.eps:.6g} = {weight * share:.6g}"
        return Derivation(value=weight * share, formula=formula, members=tuple(zip(first, brought, strict=True)))
