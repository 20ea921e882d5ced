"""Advantages of tokens: returns per token, whitening, discounting within a response, and GAE.

The reward of a step is on the last token of its response. The tokens of a rollout follow one another, step by step.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeFloat

from groupwise.credit.answer_segments import ENDS, VALUES, read_comparison, read_segments, read_token_numbers
from groupwise.credit.gae import derive_sum, find_surprises, place_rewards
from groupwise.credit.signals import discount
from groupwise.data.credit import Credit, Derivation, OwnTokenTrace, TokenCredit, TokenTrace, describe_mask
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.part import Count, NotNegative, Part, Share, name_of
from groupwise.parts.slots import TokenCreditSlot

REFERENCE = "reference_token_logps"
"""The step info with the log-prob of each sampled token under the reference policy."""


def train_all(values: FloatArray, trace: TokenTrace | OwnTokenTrace) -> TokenCredit:
    """Advantages of tokens (K) that all train."""
    return TokenCredit(values=values, trains=np.ones(len(values), dtype=np.bool_), trace=trace)


class TokenReturn(Part, slot="token_credit"):
    """The return from a token on, discounted per token; the advantage of the step is not read.

        G_k = r_k + gamma * G_(k+1),   r_k = reward of the step where k is its last token, else 0
        with `kl`:   r_k <- r_k - kl * (ln pi(token) - ln pi_ref(token)),   pi the policy that sampled

    Source: the return of REINFORCE, token by token (Sutton and Barto 2018, chapter 13). Inside `whitened_tokens` it is
    REINFORCE++ (arXiv:2501.03262), at any gamma. **Choices.** Tokens of later steps follow those of earlier ones;
    prompts between them are not discounted. A final score replaces the rewards and is on the last token. A step without
    tokens passes its reward to the last token before it in the rollout, if there is one. Off-policy rollouts have no KL
    term, because their log-probs are not those of pi.
    """

    gamma: Share = 1.0
    """Discount from one token to the next."""
    kl: NotNegative = 0.0
    """Cost of a nat of divergence from the reference; above 0 it reads what `reference_score` writes per token."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({REFERENCE} if self.kl else ())

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        return train_all(discount(self._pay(table, tokens), table.rollout[tokens.row], self.gamma), self)

    def _pay(self, table: StepTable, tokens: TokenTable) -> FloatArray:
        """The reward of each token alone (K)."""
        rewards = place_rewards(table, tokens)
        if not self.kl:
            return rewards
        known = read_token_numbers(
            table, tokens, REFERENCE, writer="the scorer reference_score, by_token = true", skipped=table.off_policy
        )
        apart = np.where(table.off_policy[tokens.row], 0.0, tokens.column("logp", table) - known)
        return rewards - self.kl * apart

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        paid, rollout = self._pay(table, tokens), table.rollout[tokens.row]
        return derive_sum(paid, rollout, token, share=self.gamma, unit="tokens")


class WhitenedTokens(Part, slot="token_credit"):
    """Shift and scale the advantages of tokens to mean 0 and variance 1 over all tokens of the table that train.

        A = (v - mean) / sqrt(var + eps),   var with Bessel's correction

    Source: whitening of advantages in PPO and REINFORCE++ (arXiv:2501.03262), as verl computes it. Choices: tasks mix
    by design. Tokens that do not train, by the inner part or by filters, do not count. If all are equal, or if there
    are fewer than two tokens, all get exactly 0.
    """

    mixes_tasks: ClassVar[bool] = True
    of: TokenCreditSlot
    """The advantages that are whitened."""
    eps: NonNegativeFloat = 1e-8
    """Added to the variance."""

    @property
    def gives_spans(self) -> bool:
        return getattr(self.of, "gives_spans", False)

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        inner = self.of(table, credit, tokens)
        counted = self._list_counted(table, inner, tokens)
        values = np.zeros(len(tokens))
        if len(counted) >= 2:
            # Relative to one value that counts, so that equal values give exactly 0.
            distance, own = counted - counted[0], inner.values[inner.trains] - counted[0]
            variance = float(np.var(distance, ddof=1))
            if distance.any():
                values[inner.trains] = (own - distance.mean()) / np.sqrt(variance + self.eps)
        return TokenCredit(values=values, trains=inner.trains, trace=self, span=inner.span)

    def _list_counted(self, table: StepTable, inner: TokenCredit, tokens: TokenTable) -> FloatArray:
        """The advantages in the statistics: those of tokens that train, of steps that train."""
        counts: BoolArray = inner.trains & table.trains[tokens.row]
        return inner.values[counts]

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        inner = self.of(table, credit, tokens)
        trace, known = inner.trace, self._list_counted(table, inner, tokens).tolist()
        if isinstance(trace, TokenTrace):
            weight, earned = float(trace.weight[token]), float(credit.values[tokens.row[token]])
            within = Derivation(value=weight * earned, formula=f"{weight:.6g} x {earned:.6g} = {weight * earned:.6g}")
        elif hasattr(trace, "derive"):
            within = trace.derive(table, credit, tokens, token)
        else:
            taken = float(inner.values[token])
            reason = f"the advantage of {name_of(self.of)}, whose trace {type(trace).__name__} has no derive"
            within = Derivation(value=taken, formula=f"{taken:.6g}", not_derived=reason)
        own, lines = within.value, (*within.lines, f"{name_of(self.of)}: {within.formula}")
        if len(known) < 2 or len(set(known)) == 1:
            return replace(within, value=0.0, formula="nothing to whiten by: 0", lines=lines)
        mean = sum(known) / len(known)
        spread = (sum((value - mean) ** 2 for value in known) / (len(known) - 1) + self.eps) ** 0.5
        value = (own - mean) / spread
        return replace(
            within,
            value=value,
            formula=f"({own:.6g} - {mean:.6g}) / {spread:.6g} = {value:.6g}",
            lines=(*lines, f"over the {len(known)} tokens that train: mean {mean:.6g}, deviation {spread:.6g}"),
        )

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        return describe_mask(self.of(table, credit, tokens), table, credit, tokens, token)


# Simple rules from the advantage of a step to those of its tokens.


class DiscountedTokens(Part, slot="token_credit"):
    """Give the last token of a response the step's advantage, and each token before it gamma times that of the next.

        A_k = gamma^(n - 1 - k) * A,   k = 0 .. n - 1

    Source: the return of a token in REINFORCE++ (arXiv:2501.03262) and PPO, where the reward is on the last token of a
    response and is discounted per token; the published setting is gamma 1. Choices: the advantage is discounted after
    its comparison, within one response; the estimator discounts from step to step. With gamma 0, only the last token
    gets the advantage (0^0 = 1).
    """

    gamma: Share = 1.0
    """Discount from one token to the next."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        weight = np.power(self.gamma, tokens.step_length - 1 - tokens.position, dtype=np.float64)
        return train_all(weight * credit.values[tokens.row], TokenTrace(weight=weight, part=self))


class FirstTokens(Part, slot="token_credit"):
    """Train only the first tokens of each response, with the advantage of their step.

        token k trains where k < count

    Source: ours, a plain mask. Nothing after the last token that trains is computed, so long responses cost less.
    Choice: a shorter response trains whole.
    """

    count: Count
    """How many tokens of a response train."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        return TokenCredit(
            values=credit.values[tokens.row],
            trains=tokens.position < self.count,
            trace=TokenTrace(weight=np.ones(len(tokens)), part=self),
        )

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        first = tokens.num_forced(int(tokens.row[token]))
        return f"only tokens {first} to {first + self.count - 1} of a response do"


class TokenGae(Part, slot="token_credit"):
    """GAE per token: how far a token exceeded its value, plus a fading fraction of what came after.

        delta_k = r_k + gamma * V_(k+1) - V_k,   A_k = delta_k + gamma * lam * A_(k+1)

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), as in PPO. **Choices.** There is no critic. The values are
    those of the scorer `segment_values`, or of any that writes `segment_ends` and `segment_values`. A token has the
    value of its segment's beginning. The beginning of a response has the baseline of the estimator, which is `relative`
    and must not divide by a scale. Without the columns a response is one segment. The value after the end of a rollout
    is 0, even if a limit cut it off. With gamma = lam = 1, the advantage is the remaining return minus V; if all values
    are 0, that is `token_return`. With gamma 1 and lam 0, the last token of a segment gets its whole advantage.
    """

    gamma: Share = 1.0
    """Discount from one token to the next."""
    lam: Share = 0.95
    """Fraction of the next token's advantage that is added."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        surprise = self._find_surprise(table, credit, tokens)
        return train_all(discount(surprise, table.rollout[tokens.row], self.gamma * self.lam), self)

    def _find_surprise(self, table: StepTable, credit: Credit, tokens: TokenTable) -> FloatArray:
        """delta of each token (K)."""
        value = _read_values(table, credit, tokens)
        return find_surprises(place_rewards(table, tokens), value, table.rollout[tokens.row], gamma=self.gamma)

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        surprise = self._find_surprise(table, credit, tokens)
        return derive_sum(surprise, table.rollout[tokens.row], token, share=self.gamma * self.lam, unit="tokens")


def _read_values(table: StepTable, credit: Credit, tokens: TokenTable) -> FloatArray:
    """The value of each token (K): that of its segment's beginning."""
    comparison = read_comparison(table, credit, "token_gae")
    baseline = comparison.signal - comparison.values  # also for steps that were not compared
    if ENDS not in table.extra or not len(tokens):
        return baseline[tokens.row]
    segments = read_segments(table, tokens, ends=ENDS, numbers=VALUES, more=-1)
    by_step = zip(segments.ends, segments.numbers, baseline.tolist(), strict=True)
    return np.array([value for ends, inner, first in by_step if ends for value in (first, *inner)])[segments.of_token]
