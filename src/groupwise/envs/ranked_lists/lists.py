"""Ranked lists in an answer: how it is cut into items, and how good their order is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from groupwise.envs.kit.words import split_words

ITEM_END = ";"
"""What ends an item; a new line does too."""
MAX_ITEMS = 200
"""Items that are told apart; whatever comes after them belongs to the last."""
MAX_NAME = 200
"""Characters of an item that are read."""
_END = re.compile(r"[;\n]")

Gain = Literal["linear", "exponential"]
"""What an item of relevance r adds before its rank is discounted: r, or 2^r - 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadList:
    """The items of an answer, in their order.

    Worked example: among frog and pea of relevance 2 and 3, "pea ; boat ; pea ; frog" has the names ("pea", "", "pea",
    "frog") and the relevance (3, 0, 0, 2): a boat was not offered, and what comes again adds nothing.
    """

    names: tuple[str, ...]
    """The thing that each item names; empty where it names none of those offered."""
    relevance: tuple[int, ...]
    """How relevant each item is; 0 for what was not offered and for what was named before."""
    spans: tuple[tuple[int, int], ...]
    """Where each item begins and ends in the answer, in characters; the sign that ends it belongs to it."""


def read_list(answer: str, relevance: Mapping[str, int]) -> ReadList:
    """Read the items of an answer, given the relevance of those that were offered; any text can be read."""
    names: list[str] = []
    earned: list[int] = []
    spans = _cut_items(answer)
    for begin, end in spans:
        name = _name_item(answer[begin:end])
        earned.append(relevance.get(name, 0) if name not in names else 0)
        names.append(name if name in relevance else "")
    return ReadList(names=tuple(names), relevance=tuple(earned), spans=tuple(spans))


def score_order(relevance: Sequence[int], offered: Sequence[int], *, length: int, gain: Gain = "linear") -> float:
    """NDCG of the first items of a list: its discounted gain over that of the best list there is, 0 to 1.

        DCG = sum over ranks j = 1 .. length of gain_j / log2(j + 1);   NDCG = DCG / DCG of the best order

    Source: Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques" (linear gain); the gain
    2^r - 1 is that of Burges et al. 2005, "Learning to rank using gradient descent". Ranks that a list does not fill
    add nothing. Where nothing offered is relevant, every list has 0.

    >>> round(score_order([1, 0, 1], [1, 1, 0, 0], length=3), 6), score_order([1, 1], [1, 1, 0, 0], length=3)
    (0.919721, 1.0)
    """
    best = _discount(sorted(offered, reverse=True)[:length], gain)
    return _discount(relevance[:length], gain) / best if best else 0.0


def _discount(relevance: Sequence[int], gain: Gain) -> float:
    gains = relevance if gain == "linear" else [2**degree - 1 for degree in relevance]
    return math.fsum(amount / math.log2(rank + 1) for rank, amount in enumerate(gains, start=1))


def _name_item(text: str) -> str:
    """What an item says, in lower case, without signs and without the number that models like to put before it."""
    words = _find_words(text[:MAX_NAME])
    return " ".join(words[1:] if len(words) > 1 and words[0].isdigit() else words)


def _cut_items(answer: str) -> list[tuple[int, int]]:
    """Where the items of an answer lie; what has no word belongs to the item before it, or to the first."""
    ends = [match.end() for match in islice(_END.finditer(answer), MAX_ITEMS - 1)]
    spans: list[tuple[int, int]] = []
    first = 0
    for begin, end in pairwise([0, *ends, len(answer)]):
        if _find_words(answer[begin:end]):
            spans.append((first, end))
        elif spans:
            spans[-1] = (spans[-1][0], end)
        else:
            continue  # it belongs to the item that is to come
        first = end
    return spans


def _find_words(text: str) -> list[str]:
    return [word for word in split_words(text) if word.isalnum()]
