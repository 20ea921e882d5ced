from __future__ import annotations

from groupwise.credit import ByState, Deviation, Relative, StepRewardSignal
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite


@method
def step_grpo(*, eps: Finite = 1e-6) -> Algorithm:
    """Step-GRPO (R1-Router, 2025, arXiv:2505.22095): every step is a GRPO prompt of its own, with its own reward.

    A_t = (r_t - mean(r)) / (std(r) + eps) over the steps with the same state

    Choices: steps are compared by their state, not by their whole prompt as published. If prompts show past steps too,
    a group may hold different prompts (with `history = {kind = "window", steps = 0}` they show none). R1-Router's own
    rewards (similarity of the sub-question, the right retriever, replay of the answer) are not included; the
    environment's reward of each step is compared. Sample standard deviation. Loss as for GRPO.
    """
    return Algorithm(
        advantage=Relative(by=ByState(), of=StepRewardSignal(), scale=Deviation(eps=eps), average="step"),
        loss=grpo().loss,
    )
