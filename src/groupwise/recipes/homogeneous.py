"""Recipes that learn from tasks at which all attempts did equally well, too: after VGPO, COPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import Anchored, AnswerBlend, GlobalShare, LocalShare
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import Clip, ClippedChannels, PolicyLoss, SequenceMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def after_vgpo(*, k: Finite = 0.1) -> Algorithm:
    """After VGPO (ours; reviews of its ADAE tell the properties, not the equation): GRPO and a share of the return.

    A_i = (R_i - mean(R)) / std(R) + k * R_i;   where all attempts earned the same, exactly k * R

    Choices: k is ours. Returns must not be negative. The source lets k count in its first sampling steps alone, of
    which a language model has none; its values of single steps are not here. An attempt that is alone has k * R. Clip
    0.2, each answer counts the same, no KL. The plan `top_up` and filters that drop solved tasks are refused: these are
    the tasks that it is for. See `anchored`.
    """
    return Algorithm(
        advantage=Anchored(of=grpo().advantage, by=ByTask(), k=k),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )


@recipe
def copo(
    *,
    mode: Literal["soft_forced", "soft", "forced", "zero_only", "global_only", "off"] = "soft_forced",
    gain: Finite = 5.0,
    midpoint: Finite = 1.0,
    consistency: bool = True,
    answers: Annotated[str, Field(min_length=1)] = "answer",
    eps: Finite = 1e-6,
) -> Algorithm:
    """COPO (2025, arXiv:2508.04138, from its release): where answers agree, tasks are compared, else attempts.

    loss = w * L_clip(A) + (1 - w) * L_clip(A_global);   w = sigma(gain * (H - midpoint)), H the entropy of the answers

    Choices: a clipped loss scales with its credit, so w is in the credit: A is w times GRPO's, and the channel `global`
    (1 - w) times what a task brought, R = mean(r) * (1 - lam * H), against the other tasks. `soft_forced`, w = 0 where
    GRPO's credit is 0, fits the abstract; the release does not say which mode it reports. Its mode `soft_zero` is not
    here. Answers are the fact `answers`, compared as texts. gain and midpoint are those of its script. Clip 0.2, dual
    clip 3, no KL. The plan `top_up` and filters that drop solved tasks are refused. See `global_share`.
    """
    local = grpo(eps=eps).advantage
    if mode == "off":
        return Algorithm(advantage=local, loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=SequenceMean()))
    blend = AnswerBlend(mode=mode, gain=gain, midpoint=midpoint, answers=answers)
    return Algorithm(
        advantage=LocalShare(of=local, blend=blend),
        channels={"global": GlobalShare(of=local, blend=blend, consistency=consistency, eps=eps)},
        loss=PolicyLoss(surrogate=ClippedChannels(dual=3.0, weights={"global": 1.0}), aggregate=SequenceMean()),
    )
