"""PPO with a critic (Schulman et al. 2017, arXiv:1707.06347), per token and per turn (Turn-PPO, arXiv:2512.17008)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.credit import (
    CRITIC_VALUE,
    CRITIC_VALUES,
    StepTrace,
    Whitened,
    WhitenedTokens,
    compute_gae,
    derive_sum,
    find_surprises,
    list_rewards,
    place_rewards,
    read_step_values,
    read_token_values,
    train_all,
)
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.learner import ValueHead, ValueModel
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean, SequenceRatio, TokenMean
from groupwise.methods.method import method
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part, Positive, Share

CriticKind = Literal["value_model", "value_head"]
"""Whether the critic is a copy of the policy's model, or a head on the policy's hidden states."""
ValueClip = Annotated[float, Field(gt=0)] | Literal["off"]


@method
def ppo(
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    critic_kind: CriticKind = "value_model",
    critic_lr: Positive = 1e-5,
    value_clip: ValueClip = 0.5,
    whiten: bool = True,
) -> Algorithm:
    """PPO (Schulman et al. 2017, arXiv:1707.06347, as verl and verl-agent run it): each token is compared with the
    value that a critic gives the state before it.

    delta_k = r_k + gamma V_(k+1) - V_k,   A_k = delta_k + gamma lam A_(k+1),   V = 0 after the end
    critic: mean of max((V - G)^2, (clip(V, V_old +- value_clip) - G)^2) / 2,   G_k = V_k + A_k

    Choices: the settings are those of verl-agent's PPO, the baseline of GiGPO and HGPO: gamma and lam 1, value clip
    0.5, learning rate of the critic 1e-5, advantages whitened over all tokens. There, each step of a rollout is a
    sequence of its own that gets the return of the whole rollout. Here, the tokens of later steps follow those of
    earlier ones. If the only reward is the last one, and gamma and lam are 1, both give the same advantages. Prompts
    are not discounted. The value after the end is 0, even if a limit cut the rollout off. No penalty on malformed
    responses: add the reward `malformed_response`. Clip 0.2, dual clip 3, mean over tokens, KL 0.01 as k3. In reports
    the advantage of a step is its GAE over steps, from the value before its first token.
    """
    of = CriticTokenGae(gamma=gamma, lam=lam)
    kind = ValueModel if critic_kind == "value_model" else ValueHead
    return Algorithm(
        advantage=CriticGae(gamma=gamma, lam=lam),
        token_credit=WhitenedTokens(of=of) if whiten else of,
        critic=kind(by="token", gamma=gamma, lam=lam, learning_rate=critic_lr, value_clip=value_clip),
        loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=TokenMean(), penalties=(Kl(estimator="k3", weight=0.01),)),
    )


@method
def turn_ppo(
    *,
    gamma: Share = 0.99,
    lam: Share = 0.9,
    critic_kind: CriticKind = "value_model",
    critic_lr: Positive = 1e-5,
    value_clip: ValueClip = 0.5,
    whiten: bool = True,
) -> Algorithm:
    """Turn-PPO (Li et al. 2025, arXiv:2512.17008, from its abstract and summaries): PPO in which a whole turn is one
    action, with the value of the state in which the turn begins.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),   A_t = delta_t + gamma lam A_(t+1),   V = 0 after the end

    Choices: the paper's text was not read. gamma 0.99, lam 0.9 and one ratio per turn are those of summaries. The ratio
    is the geometric mean over the turn's tokens, and every turn counts the same. The value is read at the last token of
    the turn's prompt. Whitened over all tokens, clip 0.2, KL 0.01 as k3, and all of the critic as for `ppo`.
    """
    of = CriticGae(gamma=gamma, lam=lam)
    kind = ValueModel if critic_kind == "value_model" else ValueHead
    return Algorithm(
        advantage=Whitened(of=of) if whiten else of,
        critic=kind(by="step", gamma=gamma, lam=lam, learning_rate=critic_lr, value_clip=value_clip),
        loss=PolicyLoss(
            ratio=SequenceRatio(unit="step"),
            surrogate=Clip(),
            aggregate=SequenceMean(),
            penalties=(Kl(estimator="k3", weight=0.01),),
        ),
    )


class CriticGae(Part, slot="estimator"):
    """GAE per step: how far a step exceeded the critic's value of its state, plus a fading fraction of what came after.

        delta_t = r_t + gamma * V_(t+1) - V_t,   A_t = delta_t + gamma * lam * A_(t+1)

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438). V is the column `critic_value`, which a run with a critic
    records. **Choices.** The value after the end of a rollout is 0, even if a limit cut it off. A final score replaces
    the rewards and is on the last step. With gamma = lam = 1, the advantage is the remaining return minus V; if all
    values are 0, it is that return. Every step counts as compared with other rollouts: those that the critic learned
    from.
    """

    reads: ClassVar[frozenset[str]] = frozenset({CRITIC_VALUE})
    gamma: Share = 1.0
    """Discount from one step to the next."""
    lam: Share = 1.0
    """Fraction of the next step's advantage that is added."""

    def __call__(self, table: StepTable) -> Credit:
        values = read_step_values(table)
        credit = compute_gae(list_rewards(table), values, table.rollout, gamma=self.gamma, lam=self.lam)
        return Credit.of(table, StepTrace(values=credit, compared=np.ones(len(table), dtype=np.bool_), part=self))

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        surprises = find_surprises(list_rewards(table), read_step_values(table), table.rollout, gamma=self.gamma)
        return derive_sum(surprises, table.rollout, step, share=self.gamma * self.lam, unit="steps")

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray:
        return trace.compared  # a value stands for all rollouts that the critic learned from


class CriticTokenGae(Part, slot="token_credit"):
    """GAE per token: how far a token exceeded the critic's value of the state before it, plus a fading fraction of what
    came after.

        delta_k = r_k + gamma * V_(k+1) - V_k,   A_k = delta_k + gamma * lam * A_(k+1)

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), as in PPO for language models. V is the column
    `critic_values`, with one number per sampled token, which a run with a critic by token records. **Choices.** The
    reward of a step is on its last token. The tokens of later steps follow those of earlier ones. The advantage of the
    step is not read. The value after the end is 0, even if a limit cut the rollout off.
    """

    reads: ClassVar[frozenset[str]] = frozenset({CRITIC_VALUES})
    gamma: Share = 1.0
    """Discount from one token to the next."""
    lam: Share = 1.0
    """Fraction of the next token's advantage that is added."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        rewards, values = place_rewards(table, tokens), read_token_values(table, tokens)
        rollout = table.rollout[tokens.row]
        return train_all(compute_gae(rewards, values, rollout, gamma=self.gamma, lam=self.lam), self)

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        rollout = table.rollout[tokens.row]
        surprises = find_surprises(
            place_rewards(table, tokens), read_token_values(table, tokens), rollout, gamma=self.gamma
        )
        return derive_sum(surprises, rollout, token, share=self.gamma * self.lam, unit="tokens")
