"""Recipes that weigh a task by how hard it was."""

from __future__ import annotations

from groupwise.advantages import Asymmetric, EpisodeReturn, MeanAbsoluteDeviation, QuestionWeighted, Relative
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import recipe


@recipe
def dgpo(*, temperature: float = 2.0, reference: bool = False) -> Algorithm:
    """DGPO (MathForge, released code): every mixed group pushes equally hard, and harder tasks weigh more.

    A_i = lambda_s * (R_i - mean(R)) / mean|R - mean(R)|,   lambda_s = B_v * softmax_s(-accuracy_s / T)

    Choices: no epsilon, since a group of equal returns is 0 by rule; `reference=True` adds the released 1e-4 to the sum
    of distances. See `QuestionWeighted` for accuracy and the token factor. Clip 0.2, mean over tokens, no KL.
    """
    balanced = Relative(by=ByTask(), of=EpisodeReturn(), scale=MeanAbsoluteDeviation(eps=1e-4 if reference else 0.0))
    return Algorithm(
        advantage=QuestionWeighted(of=balanced, temperature=temperature),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


@recipe
def a_grae(*, alpha: float = 1.0, reference: bool = False) -> Algorithm:
    """A-GRAE ("Unveiling Implicit Advantage Symmetry", eq. 11-13): GRPO, leaning to hard tasks as the policy improves.

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
