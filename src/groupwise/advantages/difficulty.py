"""Credit reweighted by how hard its task was, compared with the other tasks of the table.

Axes: S steps, M tasks.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Mixture, Trace
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart
from groupwise.core.segments import FloatArray, Segments
from groupwise.core.step_table import StepTable


class QuestionWeighted(Part, slot="estimator"):
    """Weigh hard tasks more: each informative task by a softmax of its error, over the informative tasks.

        lambda_s = B_v * softmax_s(-accuracy_s / T) * (tokens of all tasks / tokens of informative tasks)

    A task is informative if its attempts' returns differ; B_v counts those. Others have credit 0 and weight 1. The last
    factor makes up for idle tokens in the loss, so only tokens that train count in it.

    Source: DGPO (MathForge), difficulty-aware question weighting, from the released code. This part mixes tasks by
    design. Choices: accuracy is the mean over attempts of the column `accuracy`, or of the return without it; an
    informative task that is all wrong counts as accuracy 1, as released. Returns that are not shares of success (10 for
    a win, say) make poor accuracies: hand in `accuracy`.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The credit that is weighted."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """T of the softmax."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        informative = ~table.tasks.is_constant(table.episode_return)
        weight = np.ones(len(informative))
        if informative.any():
            accuracy = _average_by_task(table, table.extra.get("accuracy", table.episode_return))[informative]
            logit = -np.where(accuracy == 0, 1.0, accuracy) / self.temperature
            soft = np.exp(logit - logit.max())
            tokens = table.tasks.sum(table.trained_tokens)
            useful = tokens[informative].sum()
            factor = tokens.sum() / useful if useful else 1.0
            weight[informative] = len(soft) * soft / soft.sum() * factor
        return _weigh_credit(table, inner, table.tasks.spread(weight, 1.0), self)


class Asymmetric(Part, slot="estimator"):
    """Lean to hard tasks as the policy improves, and hold praise back while it is weak.

        A  = (w/2) * z / sqrt(p) + ((1-w)/2) * z / sqrt(1-p)        (0 where p is 0 or 1)
        A* = A * min(1, w / alpha) where A > 0

    p is the task's mean return, w the mean return of all attempts of the table; returns lie in [0, 1].

    Source: A-GRAE, "Unveiling Implicit Advantage Symmetry", eq. 11-13. This part mixes tasks by design. Choice: the
    paper's sqrt(1-p); the released code divides the second term by 1 - sqrt(p) (`easy_denominator="code"`)
    and adds 1e-6 to both denominators.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The credit z."""
    alpha: Annotated[float, Field(gt=0)] = 1.0
    """Mean return at which praise is no longer held back."""
    easy_denominator: Literal["paper", "code"] = "paper"
    """sqrt(1-p), or 1 - sqrt(p)."""
    eps: Annotated[float, Field(ge=0)] = 0.0
    """Added to both denominators; 1e-6 in the released code."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        self._check_range(table)
        p = _average_by_task(table, table.episode_return)
        w = float(table.episode_return[table.attempts.first].mean()) if len(table) else 0.0
        mixed = (p > 0) & (p < 1)
        inside = np.where(mixed, p, 0.5)
        easy = np.sqrt(1 - inside) if self.easy_denominator == "paper" else 1 - np.sqrt(inside)
        hard = np.sqrt(inside)
        factor = np.where(mixed, w / 2 / (hard + self.eps) + (1 - w) / 2 / (easy + self.eps), 0.0)
        weight = table.tasks.spread(factor)
        weight = np.where(inner.values > 0, weight * min(1.0, w / self.alpha), weight)
        return _weigh_credit(table, inner, weight, self)

    def _check_range(self, table: StepTable) -> None:
        # A sum of rewards may miss 1 by its last digit.
        outside = np.flatnonzero((table.episode_return < -1e-9) | (table.episode_return > 1 + 1e-9))
        if len(outside):
            raise RecordError(
                f"{table.describe_step(int(outside[0]))}: the return is {table.episode_return[outside[0]]:g}, but "
                "A-GRAE needs returns in [0, 1]; rescale them, or hand in `outcome`"
            )


def _average_by_task(table: StepTable, per_step: FloatArray) -> FloatArray:
    """Mean over a task's attempts of a number that its steps share (M)."""
    first = table.attempts.first
    return Segments.of(table.task[first]).mean(np.asarray(per_step, dtype=np.float64)[first])


def _weigh_credit(table: StepTable, inner: Trace, weight: FloatArray, part: Part) -> Credit:
    trace = Mixture(values=inner.values * weight, compared=inner.compared, weights=(weight,), terms=(inner,), part=part)
    return Credit.of(table, trace)
