from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from groupwise.credit import check_range, weigh_credit
from groupwise.data.credit import Credit
from groupwise.data.step_table import StepTable
from groupwise.methods.dgpo import average_by_task
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, Part


@method
def a_grae(*, alpha: Finite = 1.0, reference: bool = False) -> Algorithm:
    """A-GRAE (2026, arXiv:2602.05548, eq. 11-13): GRPO with more weight on hard tasks as the policy improves.

    A = (w/2) z / sqrt(p) + ((1-w)/2) z / sqrt(1-p);   positive A times min(1, w / alpha)

    Choices: the paper's sqrt(1-p); the release divides by 1 - sqrt(p) and adds 1e-6 to both denominators
    (`reference=True`). Returns must be in [0, 1]. Loss as for GRPO.
    """
    base = grpo()
    if reference:
        credit = Asymmetric(of=base.advantage, alpha=alpha, easy_denominator="code", eps=1e-6)
    else:
        credit = Asymmetric(of=base.advantage, alpha=alpha)
    return Algorithm(advantage=credit, loss=base.loss)


class Asymmetric(Part, slot="estimator"):
    """More weight on hard tasks as the policy improves, and smaller positive advantages while it is weak.

        A  = (w/2) * z / sqrt(p) + ((1-w)/2) * z / sqrt(1-p)        (0 where p is 0 or 1)
        A* = A * min(1, w / alpha) where A > 0

    p is the task's mean return, w the mean return of all rollouts of the table; returns are in [0, 1].

    Source: A-GRAE, "Unveiling Implicit Advantage Symmetry", eq. 11-13. This part mixes tasks by design.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The advantage z."""
    alpha: PositiveFloat = 1.0
    """Mean return from which on positive advantages have their full size."""
    easy_denominator: Literal["paper", "code"] = "paper"
    """sqrt(1-p), or 1 - sqrt(p)."""
    eps: NonNegativeFloat = 0.0
    """Added to both denominators; 1e-6 in the released code."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        needed = "but A-GRAE needs returns in [0, 1]; rescale them, or hand in `outcome`"
        check_range(table, table.episode_return, "the return is", needed, low=0.0, high=1.0)
        p = average_by_task(table, table.episode_return)
        w = float(table.episode_return[table.rollouts.first].mean()) if len(table) else 0.0
        mixed = (p > 0) & (p < 1)
        inside = np.where(mixed, p, 0.5)
        easy = np.sqrt(1 - inside) if self.easy_denominator == "paper" else 1 - np.sqrt(inside)
        hard = np.sqrt(inside)
        factor = np.where(mixed, w / 2 / (hard + self.eps) + (1 - w) / 2 / (easy + self.eps), 0.0)
        weight = table.tasks.spread(factor)
        weight = np.where(inner.values > 0, weight * min(1.0, w / self.alpha), weight)
        return weigh_credit(table, inner, weight, self)
