from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat

from groupwise.credit import ByTask, EpisodeReturn, MeanAbsoluteDeviation, Relative, weigh_credit
from groupwise.data.credit import Credit
from groupwise.data.segments import FloatArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, Part


@method
def dgpo(*, temperature: Finite = 2.0, reference: bool = False) -> Algorithm:
    """DGPO (MathForge, 2026, arXiv:2601.20614): mixed groups have equal total weight, harder tasks weigh more.

    A_i = lambda_s * (R_i - mean(R)) / mean|R - mean(R)|,   lambda_s = B_v * softmax_s(-accuracy_s / T)

    Choices: 1e-9 is added to the sum of distances, so returns that are equal up to rounding get no advantage;
    `reference=True` adds the released 1e-4. See `QuestionWeighted` for accuracy and the token factor. Clip 0.2, mean
    over tokens, no KL.
    """
    balanced = Relative(by=ByTask(), of=EpisodeReturn(), scale=MeanAbsoluteDeviation(eps=1e-4 if reference else 1e-9))
    return Algorithm(
        advantage=QuestionWeighted(of=balanced, temperature=temperature),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


class QuestionWeighted(Part, slot="estimator"):
    """Weigh hard tasks more: each informative task by a softmax of its error, over the informative tasks.

        lambda_s = B_v * softmax_s(-accuracy_s / T) * (tokens of all tasks / tokens of informative tasks)

    A task is informative if its rollouts' returns differ; B_v counts those. Other tasks have advantage 0 and weight 1.
    The last factor corrects for tokens without an advantage in the loss, so only tokens that train count in it.

    Source: DGPO (MathForge), difficulty-aware question weighting, from the released code. This part mixes tasks by
    design. Choices: accuracy is the mean over rollouts of the column `accuracy`, or of the return without it. An
    informative task that is all wrong counts as accuracy 1, as released. Returns that are not success rates (10 for a
    win, say) make poor accuracies: pass the column `accuracy`.
    """

    mixes_tasks: ClassVar[bool] = True
    of: EstimatorPart
    """The advantages that are weighted."""
    temperature: PositiveFloat = 2.0
    """T of the softmax."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        informative = ~table.tasks.is_constant(table.episode_return)
        weight = np.ones(len(informative))
        if informative.any():
            accuracy = average_by_task(table, table.extra.get("accuracy", table.episode_return))[informative]
            logit = -np.where(accuracy == 0, 1.0, accuracy) / self.temperature
            soft = np.exp(logit - logit.max())
            tokens = table.tasks.sum(table.trained_tokens)
            useful = tokens[informative].sum()
            factor = tokens.sum() / useful if useful else 1.0
            weight[informative] = len(soft) * soft / soft.sum() * factor
        return weigh_credit(table, inner, table.tasks.spread(weight, 1.0), self)


def average_by_task(table: StepTable, per_step: FloatArray) -> FloatArray:
    """Mean over a task's rollouts of a number that their steps share (M)."""
    first = table.rollouts.first
    return Segments.of(table.task[first]).mean(np.asarray(per_step, dtype=np.float64)[first])
