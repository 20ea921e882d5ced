from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from groupwise.credit import Deviation, centre_values
from groupwise.data.column_checks import quote_value
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.field_kinds import is_count, is_finite
from groupwise.data.records import Step, Trajectory
from groupwise.data.segments import FloatArray, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceRatio, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Draw, Finite, NotNegative, Part
from groupwise.rollout.scorers import Tools
from groupwise.system.errors import RecordError


@method
def rank_grpo(
    *,
    reward: Literal["exp_inf", "log_decay"] = "exp_inf",
    overflow: Finite = -0.1,
    exact_end: Finite = 0.1,
    early_end: Finite = -0.1,
    kl: Finite = 0.001,
) -> Algorithm:
    """Rank-GRPO (2025, release yaochenzhu/Rank-GRPO): each item of a list is compared, and has a ratio, by its rank.

    A_k = (r_k - mean(r_k)) / (std(r_k) + 1e-4),   w_k = exp(mean over tokens of item k of logp - logp_old), clipped

    Choices: those of the parts `item_tokens` and `rank_credit`; the advantages of steps are GRPO's, for reports and for
    text around the list. Clip 0.06 below and 0.08 above, mean over tokens, KL 0.001 as k3, as released. The release
    begins from a model that imitated lists; so do runs with a warm start.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=RankCredit(reward=reward, overflow=overflow, exact_end=exact_end, early_end=early_end),
        scorers=(ItemTokens(),),
        loss=PolicyLoss(
            ratio=SequenceRatio(unit="span"),
            surrogate=Clip(low=0.06, high=0.08),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=kl),),
        ),
    )


class RankCredit(Part, slot="token_credit"):
    """Give the tokens of an item the reward of its rank, compared with that rank in the other rollouts of the task.

        A_k = (r_k - mean(r_k)) / (std(r_k) + eps)
        exp_inf     r_k = relevance_k
        log_decay   r_k = sum over j >= k of relevance_j / log2(j + 1)

    The tokens of an item are a span, so a loss can give each item one ratio; items beyond the last rank are one span
    together. It reads the step info `item_relevance` and `list_length`, and what the scorer `item_tokens` writes.

    Source: Rank-GRPO (release yaochenzhu/Rank-GRPO). **Choices.** Sample standard deviation. A rank that a list does
    not fill has reward 0 and is compared. Equal rewards at a rank give exactly 0, and so does a task with one rollout.
    The end token after too many items counts as beyond the last rank, as released. Otherwise it is a span of its own;
    in the release it is in the ratio of the last item. Text around the list has the advantage of its step, and one
    ratio. Rollouts have one step.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"item_tokens", "end_token", "list_length", "item_relevance"})
    gives_spans: ClassVar[bool] = True
    reward: Literal["exp_inf", "log_decay"] = "exp_inf"
    """The reward of a rank: its item's own relevance, or the discounted gain from it on."""
    eps: NotNegative = 1e-4
    """Added to the standard deviation."""
    overflow: Finite = -0.1
    """Advantage of tokens beyond the last rank."""
    exact_end: Finite = 0.1
    """Advantage of ending after exactly as many items as asked for."""
    early_end: Finite = -0.1
    """Advantage of ending after fewer."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        items = read_items(table, tokens)
        earned = [self.pay_ranks(relevance, num) for relevance, num in zip(items.relevance, items.length, strict=True)]
        rank_credit = self._compare(table, earned)
        owners = zip(tokens.row.tolist(), items.span.tolist(), strict=True)
        values = [self._credit_span(items, k, span, rank_credit[k], float(credit.values[k])) for k, span in owners]
        made, trains = np.array(values, dtype=np.float64), np.ones(len(tokens), dtype=np.bool_)
        return TokenCredit(values=made, trains=trains, trace=self, span=items.span)

    def pay_ranks(self, relevance: list[float], num: int) -> list[float]:
        """The reward of each of `num` ranks, given the relevance of a list's items.

        >>> [round(paid, 6) for paid in RankCredit(reward="log_decay").pay_ranks([1, 0, 1], 3)]
        [1.5, 0.5, 0.5]
        """
        filled = [*relevance[:num], *[0.0] * (num - len(relevance))]
        if self.reward == "exp_inf":
            return filled
        gains = [degree / math.log2(rank + 1) for rank, degree in enumerate(filled, start=1)]
        return [math.fsum(gains[rank:]) for rank in range(num)]

    def _compare(self, table: StepTable, earned: list[list[float]]) -> list[FloatArray]:
        """The advantage of each rank of each step (S lists of N)."""
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

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        items, step = read_items(table, tokens), int(tokens.row[token])
        number, num = int(items.span[token]), items.length[step]
        if number >= num:
            words = {num: "beyond the last rank", num + 1: "the end of the list"}.get(number, "said around the list")
            value = self._credit_span(items, step, number, np.zeros(0), float(credit.values[step]))
            return Derivation(value=value, formula=f"{words}: {value:.6g}")
        others = [k for k in range(len(table)) if table.task[k] == table.task[step]]
        paid = {k: self.pay_ranks(items.relevance[k], num)[number] for k in others}
        mean = sum(paid.values()) / len(paid)
        spread = math.sqrt(sum((value - mean) ** 2 for value in paid.values()) / max(len(paid) - 1, 1)) + self.eps
        value = (paid[step] - mean) / spread if len(set(paid.values())) > 1 else 0.0
        words = f"rank {number + 1} of {num}: ({paid[step]:.6g} - {mean:.6g}) / {spread:.6g} = {value:.6g}"
        return Derivation(value=value, formula=words)


# Items of ranked lists, from the step info of the environment and of the scorer `item_tokens`.


@dataclass(frozen=True, eq=False, kw_only=True)
class RankedItems:
    """The lists of all steps, and the span that each token belongs to.

    Worked example: asked for two items, three tokens say one, a fourth ends the answer: `length` (2,), `relevance`
    ([1.0],), `span` [0, 0, 0, 3].
    """

    length: tuple[int, ...]
    """How many items each step was asked for (S): its last rank."""
    relevance: tuple[list[float], ...]
    """How relevant each item of each step is (S)."""
    span: IntArray
    """The rank of each token's item, from 0 (K). With n ranks, tokens beyond the last item have n.
    The end of a list that is not too long has n + 1. Tokens around the list have n + 2."""


def read_items(table: StepTable, tokens: TokenTable) -> RankedItems:
    """The lists in the columns of a table; columns that do not fit are an error that names the step."""
    columns = [table.column(name).tolist() for name in ("list_length", "item_relevance", "item_tokens", "end_token")]
    num_tokens = np.bincount(tokens.row, minlength=len(table)).tolist()
    span = np.empty(len(tokens), dtype=np.int64)
    first = 0
    lengths: list[int] = []
    listed: list[list[float]] = []
    again = np.flatnonzero(table.rollout[1:] == table.rollout[:-1])
    if len(again):
        raise RecordError(
            f"{table.describe_step(int(again[0]) + 1)}: its rollout has several steps, and rank_credit compares lists "
            "of one answer; use it where a rollout is one answer"
        )
    for step, num in enumerate(num_tokens):
        length, relevance, places, end = (column[step] for column in columns)
        _check_step(table, step, length, relevance, places, end, num)
        own = np.full(num, length + 2, dtype=np.int64)
        for rank, (begin, after) in enumerate(places):
            own[begin:after] = min(rank, length)
        if end is not None:
            own[end] = length if len(relevance) > length else length + 1
        span[first : first + num] = own
        first += num
        lengths.append(int(length))
        listed.append([float(degree) for degree in relevance])
    return RankedItems(length=tuple(lengths), relevance=tuple(listed), span=span)


def _check_step(table: StepTable, step: int, length: Any, relevance: Any, places: Any, end: Any, num: int) -> None:
    """Raise an error unless the step info describes a list whose items follow one another among the step's tokens."""
    is_list = isinstance(relevance, list | tuple) and all(is_finite(degree) for degree in relevance)
    if not is_count(length) or length < 1 or not is_list:
        raise RecordError(
            f"{table.describe_step(step)}: list_length is {quote_value(length)} and item_relevance "
            f"{quote_value(relevance)}; expected the number of items that the task asks for, and one finite number per "
            "given item. Use an environment that reports them, such as ranked_lists"
        )
    is_sorted = isinstance(places, list | tuple) and all(
        isinstance(place, list | tuple) and len(place) == 2 and all(map(is_count, place)) for place in places
    )
    flat = [0, *(bound for place in places for bound in place), num] if is_sorted else []
    if not is_sorted or flat != sorted(flat) or len(places) != len(relevance):
        raise RecordError(
            f"{table.describe_step(step)}: item_tokens is {quote_value(places)}, but a begin and an end, one after the "
            f"other, among the {num} sampled tokens belong to each of its {len(relevance)} items; measure them with "
            "item_tokens"
        )
    if end is not None and not (is_count(end) and end < num):
        raise RecordError(
            f"{table.describe_step(step)}: end_token is {quote_value(end)}, but the step has {num} sampled tokens; "
            "measure it with item_tokens"
        )


SPANS = "item_spans"


class ItemTokens(Part, slot="scorer"):
    """Find the tokens of each item of a list, for any tokenizer; no model is used.

    It reads the step info `item_spans` of the environment (where each item begins and ends in the action, in
    characters). It writes `item_tokens` (where it begins and ends among the sampled tokens) and `end_token` (the place
    of the token that ends the response; None if it was cut off). The token credit `rank_credit` reads them.

    Source: ours; Rank-GRPO's release (yaochenzhu/Rank-GRPO) cuts at tokens that contain a new line. **Choices.** Text
    is compared without white space, which differs between tokenizers. A token belongs to the item in which it begins; a
    token of white space alone belongs to the item that it ends. An item that was forced, or that lies within a token of
    another item, has no token. An action that is not in its response (a number that chooses one) is an error.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"item_tokens", "end_token"})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        return [
            [[_measure_step(trajectory, step, tools) for step in trajectory.steps] for trajectory in group]
            for group in groups
        ]


def _measure_step(trajectory: Trajectory, step: Step, tools: Tools) -> dict[str, Any]:
    where = f"{trajectory.describe()}, step {step.index}"
    spans = step.info.get(SPANS)
    if spans is None:
        raise RecordError(
            f"{where}: the environment says no {SPANS!r}, which item_tokens reads; use one that does, such as "
            "ranked_lists"
        )
    num, num_forced, action = len(step.response_ids), step.forced, step.action or ""
    has_end = num > num_forced and step.response_ids[-1] in tools.stop_ids
    starts = _count_before(step.response_ids[: num - has_end], tools)
    said = _strip_spaces(tools.text(step.response_ids))
    sought = _strip_spaces(action)
    first = said.rfind(sought)  # at its end, if it stands there twice
    if first < 0 and len(said.lower()) == len(said):
        first = said.lower().rfind(sought.lower())
    if first < 0:
        raise RecordError(
            f"{where}: the response does not contain its action, so no token belongs to an item; use an action_parser "
            "that takes the action out of the response"
        )
    # A token without its own character belongs to the item of the token before it.
    keys = [before if after > before else max(before - 1, first) for before, after in pairwise(starts)]
    placed: list[list[int]] = []
    for begin, end in spans:
        low, high = (first + len(_strip_spaces(action[:place])) for place in (begin, end))
        own = [place - num_forced for place, key in enumerate(keys) if low <= key < high and place >= num_forced]
        after_last = placed[-1][1] if placed else 0
        placed.append([own[0], own[-1] + 1] if own else [after_last, after_last])
    return {"item_tokens": placed, "end_token": num - num_forced - 1 if has_end else None}


def _count_before(ids: Sequence[int], tools: Tools) -> list[int]:
    """Characters before each token and after the last, white space left out."""
    pieces = [_strip_spaces(piece) for piece in tools.pieces(ids)]
    if "".join(pieces) == _strip_spaces(tools.text(ids)):
        return [0, *accumulate(len(piece) for piece in pieces)]
    # Some tokens are parts of characters: their text shows only together with their neighbours.
    lengths = (len(_strip_spaces(tools.text(ids[:num]))) for num in range(len(ids) + 1))
    return list(accumulate(lengths, max))


def _strip_spaces(text: str) -> str:
    return "".join(text.split())
