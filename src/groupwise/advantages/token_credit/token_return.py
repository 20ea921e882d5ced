"""What is earned from a token on: the return of classical reinforcement learning, token by token.

The reward of a step stands on the last token of its response; tokens of an attempt follow one another, step by step.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit, Derivation
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

REFERENCE = "reference_token_logps"
"""The fact with the log-prob of each sampled token under the reference policy."""
Discount = Annotated[float, Field(ge=0, le=1)]


class TokenReturn(Part, slot="token_credit"):
    """What is earned from a token on, discounted from token to token; the credit of the step is not read.

        G_k = r_k + gamma * G_(k+1),   r_k = reward of the step where k is its last token, else 0
        with `kl`:   r_k <- r_k - kl * (ln pi(token) - ln pi_ref(token)),   pi the policy that sampled

    Source: the return of REINFORCE, token by token (Sutton and Barto 2018, chapter 13). With `whitened_tokens` around
    it, it is REINFORCE++ (arXiv:2501.03262), at any gamma. **Choices.** Tokens of later steps of an attempt follow
    those of earlier ones; prompts between them take no time. An outcome replaces the rewards: all of it stands on the
    last token. A step without tokens hands its reward to the last token before it in the attempt, if there is one. Of
    attempts that another policy sampled nothing is taken off: their log-probs are none of pi.
    """

    gamma: Discount = 1.0
    """Discount from one token to the next."""
    kl: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """What a nat of divergence from the reference costs; above 0 it reads what `reference_score` writes by token."""

    @property
    def reads(self) -> frozenset[str]:
        """The facts that it reads."""
        return frozenset({REFERENCE} if self.kl else ())

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        rewards = place_rewards(table, tokens)
        if self.kl:
            rewards = rewards - self.kl * _measure_divergence(table, tokens)
        return TokenCredit(
            values=add_later(rewards, table, tokens, share=self.gamma),
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=ReturnTrace(part=self, amounts=rewards, share=self.gamma),
        )


def _measure_divergence(table: StepTable, tokens: TokenTable) -> FloatArray:
    """How much likelier each token was than under the reference (K); 0 for attempts of another policy."""
    num_tokens = np.bincount(tokens.step, minlength=len(table)).tolist()
    listed: list[float] = []
    for step, (known, num) in enumerate(zip(table.column(REFERENCE).tolist(), num_tokens, strict=True)):
        is_own = not table.off_policy[step]
        if is_own and (not isinstance(known, list | tuple) or len(known) != num):
            raise RecordError(
                f"{table.describe_step(step)}: it has no {REFERENCE} for its {num} sampled tokens, which token_return "
                "with kl reads; add the measure reference_score with by_token = true"
            )
        listed += known if is_own else [0.0] * num
    apart = tokens.column("logp", table) - np.array(listed, dtype=np.float64)
    return np.where(table.off_policy[tokens.step], 0.0, apart)


def place_rewards(table: StepTable, tokens: TokenTable) -> FloatArray:
    """Put each step's reward on its last token (K), or that of a step without tokens on the last token before it."""
    rewards = np.zeros(len(tokens))
    amounts = table.reward
    if "outcome" in table.extra:  # it takes the place of the rewards: all of it on the last step
        amounts = np.where(np.append(table.attempt[1:] != table.attempt[:-1], True), table.episode_return, 0.0)
    last = np.searchsorted(tokens.step, np.arange(len(table)), side="right") - 1
    for token, attempt, amount in zip(last.tolist(), table.attempt.tolist(), amounts.tolist(), strict=True):
        if token >= 0 and table.attempt[tokens.step[token]] == attempt:
            rewards[token] += amount
    return rewards


def add_later(amounts: FloatArray, table: StepTable, tokens: TokenTable, *, share: float) -> FloatArray:
    """Add to each token's amount a share of what the next token of its attempt comes to (K)."""
    sums, attempt, after = amounts.tolist(), table.attempt[tokens.step].tolist(), 0.0
    for token in range(len(sums) - 1, -1, -1):
        if token + 1 == len(sums) or attempt[token + 1] != attempt[token]:
            after = 0.0
        after = sums[token] = sums[token] + share * after
    return np.array(sums, dtype=np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReturnTrace:
    """How a token comes by its return or advantage: a sum over the tokens of its attempt from it on."""

    part: Part
    """The part."""
    amounts: FloatArray
    """What each token brought by itself (K)."""
    share: float
    """What a token has of the next one's sum."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """Every later token's amount, with its discount."""
        attempt, amounts = table.attempt[tokens.step], self.amounts.tolist()
        later = [k for k in range(token, len(tokens)) if attempt[k] == attempt[token]]
        value = sum(self.share ** (k - token) * amounts[k] for k in later)
        members = tuple((k, amounts[k]) for k in later if amounts[k])
        words = f"sum over {len(members)} tokens of {self.share:.6g}^distance x what it brought = {value:.6g}"
        return Derivation(value=value, formula=words, members=members)
