"""Recipes that weigh a task by how hard it was."""

from __future__ import annotations

from groupwise.advantages import Asymmetric, EpisodeReturn, MeanAbsoluteDeviation, QuestionWeighted, Relative
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def dgpo(*, temperature: Finite = 2.0, reference: bool = False) -> Algorithm:
    """DGPO (MathForge, 2026, arXiv:2601.20614): mixed groups push equally hard, harder tasks weigh more.

    A_i = lambda_s * (R_i - mean(R)) / mean|R - mean(R)|,   lambda_s = B_v * softmax_s(-accuracy_s / T)

    Choices: 1e-9 is added to the sum of distances, so that returns equal up to rounding get no credit; `reference=True`
    adds the released 1e-4. See `QuestionWeighted` for accuracy and the token factor. Clip 0.2, mean over tokens, no KL.
    """
    balanced = Relative(by=ByTask(), of=EpisodeReturn(), scale=MeanAbsoluteDeviation(eps=1e-4 if reference else 1e-9))
    return Algorithm(
        advantage=QuestionWeighted(of=balanced, temperature=temperature),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


@recipe
def a_grae(*, alpha: Finite = 1.0, reference: bool = False) -> Algorithm:
    """A-GRAE (2026, arXiv:2602.05548, eq. 11-13): GRPO, leaning to hard tasks as the policy improves.

    A = (w/2) z / sqrt(p) + ((1-w)/2) z / sqrt(1-p);   positive A times min(1, w / alpha)

    Choices: the paper's sqrt(1-p); the release divides by 1 - sqrt(p) and adds 1e-6 to both denominators
    (`reference=True`). Returns must lie in [0, 1]. Loss as for GRPO.
    """
    base = grpo()
    if reference:
        credit = Asymmetric(of=base.advantage, alpha=alpha, easy_denominator="code", eps=1e-6)
    else:
        credit = Asymmetric(of=base.advantage, alpha=alpha)
    return Algorithm(advantage=credit, loss=base.loss)
