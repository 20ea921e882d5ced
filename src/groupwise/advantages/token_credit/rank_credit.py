"""Credit of the items of a list: each is compared with the items at its rank in the other attempts (Rank-GRPO).

Axes: S steps of the table, K sampled tokens of all steps, N ranks that are asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.advantages.baselines import centre_values
from groupwise.advantages.scales import Deviation
from groupwise.advantages.token_credit.ranked_items import RankedItems, read_items
from groupwise.core.credit import Credit, Derivation
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray, Segments, pair_labels
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

Amount = Annotated[float, Field(allow_inf_nan=False)]


class RankCredit(Part, slot="token_credit"):
    """Give the tokens of an item what it earned at its rank, compared with that rank in the other attempts at the task.

        A_k = (r_k - mean(r_k)) / (std(r_k) + eps)
        exp_inf     r_k = relevance_k
        log_decay   r_k = sum over j >= k of relevance_j / log2(j + 1)

    Tokens of an item are a span, so that a loss can give each item one ratio; items beyond the last rank are one span
    together. It reads the facts `item_relevance` and `list_length`, and what the measure `item_tokens` writes.

    Source: Rank-GRPO (release yaochenzhu/Rank-GRPO). **Choices.** Sample deviation; a rank that a list does not fill
    earned 0 and is compared; equal at a rank gives exactly 0, and so does a task with one attempt. The end token after
    too many items counts as beyond the last rank, as released, and is otherwise a span of its own, where the release
    has it in the ratio of the last item. What is said around the list has the credit of its step, and one ratio.
    Attempts are one answer.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"item_tokens", "end_token", "list_length", "item_relevance"})
    gives_spans: ClassVar[bool] = True
    reward: Literal["exp_inf", "log_decay"] = "exp_inf"
    """What a rank earned: its item's own relevance, or the discounted gain from it on."""
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-4
    """Added to the deviation."""
    overflow: Amount = -0.1
    """Credit of tokens beyond the last rank."""
    exact_end: Amount = 0.1
    """Credit of ending after just as many items as asked for."""
    early_end: Amount = -0.1
    """Credit of ending after fewer."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        items = read_items(table, tokens)
        earned = [self.pay_ranks(relevance, num) for relevance, num in zip(items.relevance, items.length, strict=True)]
        rank_credit = self._compare(table, earned)
        owners = zip(tokens.step.tolist(), items.span.tolist(), strict=True)
        values = [self._credit_span(items, k, span, rank_credit[k], float(credit.values[k])) for k, span in owners]
        made, trains = np.array(values, dtype=np.float64), np.ones(len(tokens), dtype=np.bool_)
        return TokenCredit(values=made, trains=trains, trace=RankTrace(part=self), span=items.span)

    def pay_ranks(self, relevance: list[float], num: int) -> list[float]:
        """What each of `num` ranks earned, given the relevance of a list's items.

        >>> [round(paid, 6) for paid in RankCredit(reward="log_decay").pay_ranks([1, 0, 1], 3)]
        [1.5, 0.5, 0.5]
        """
        filled = [*relevance[:num], *[0.0] * (num - len(relevance))]
        if self.reward == "exp_inf":
            return filled
        gains = [degree / math.log2(rank + 1) for rank, degree in enumerate(filled, start=1)]
        return [math.fsum(gains[rank:]) for rank in range(num)]

    def _compare(self, table: StepTable, earned: list[list[float]]) -> list[FloatArray]:
        """The credit of each rank of each step (S lists of N)."""
        values = np.array([paid for ranks in earned for paid in ranks], dtype=np.float64)
        rank = np.array([rank for ranks in earned for rank in range(len(ranks))], dtype=np.int64)
        lengths = np.array([len(ranks) for ranks in earned], dtype=np.int64)
        groups = Segments.of(pair_labels(np.repeat(table.task, lengths), rank))
        scale = groups.spread(Deviation(eps=self.eps)(values, groups), 1.0)
        centred = centre_values(values, groups)
        compared = np.divide(centred, scale, out=np.zeros(len(values)), where=centred != 0)
        return np.split(compared, np.cumsum(lengths)[:-1])

    def _credit_span(self, items: RankedItems, step: int, number: int, ranks: FloatArray, own: float) -> float:
        num, is_exact = items.length[step], len(items.relevance[step]) == items.length[step]
        if number < num:
            return float(ranks[number])
        around = {num: self.overflow, num + 1: self.exact_end if is_exact else self.early_end}
        return around.get(number, own)


@dataclass(frozen=True, eq=False, kw_only=True)
class RankTrace:
    """How `RankCredit` comes by a token's credit."""

    part: RankCredit
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The rank's payment in each attempt at the task, and how far the token's own is above their mean."""
        part, items, step = self.part, read_items(table, tokens), int(tokens.step[token])
        number, num = int(items.span[token]), items.length[step]
        if number >= num:
            words = {num: "beyond the last rank", num + 1: "the end of the list"}.get(number, "said around the list")
            value = part._credit_span(items, step, number, np.zeros(0), float(credit.values[step]))
            return Derivation(value=value, formula=f"{words}: {value:.6g}")
        others = [k for k in range(len(table)) if table.task[k] == table.task[step]]
        paid = {k: part.pay_ranks(items.relevance[k], num)[number] for k in others}
        mean = sum(paid.values()) / len(paid)
        spread = math.sqrt(sum((value - mean) ** 2 for value in paid.values()) / max(len(paid) - 1, 1)) + part.eps
        value = (paid[step] - mean) / spread if len(set(paid.values())) > 1 else 0.0
        words = f"rank {number + 1} of {num}: ({paid[step]:.6g} - {mean:.6g}) / {spread:.6g} = {value:.6g}"
        return Derivation(value=value, formula=words)
