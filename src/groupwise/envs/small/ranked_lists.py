"""Ranked lists: name the things that fit a wish best, in order; every item of the list has a relevance."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.progress import SteppedEnvironment, show_text
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import split_words, vocabulary_of
from groupwise.parts.part import Part

# Ranked lists in an answer: how it is cut into items, and how good their order is.

ITEM_END = ";"
"""What ends an item; a new line does too."""
MAX_ITEMS = 200
"""Items at most; the rest of the text belongs to the last one."""
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
    """The thing that each item names; empty if it was not offered."""
    relevance: tuple[int, ...]
    """The relevance of each item; 0 for things that were not offered or were named before."""
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
    """The name in an item: lower case, without punctuation and without a leading number."""
    words = _find_words(text[:MAX_NAME])
    return " ".join(words[1:] if len(words) > 1 and words[0].isdigit() else words)


def _cut_items(answer: str) -> list[tuple[int, int]]:
    """The spans of items; text without words belongs to the item before it, or to the first one."""
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


ENV = "ranked_lists"
SIZES = TaskSetSizes(train=8000, validation=200, test=400)
BEST, NOT_BEST, NO_LIST = "No order is better.", "There is a better order.", "That is not a list."


class RankedLists(Part, slot="env", self_contained=True):
    """Things in the order of how well they fit a wish: "cherry ; ruby ; frog ; egg", in one answer.

    One step: the action is the whole list. The relevance of a thing is the number of wanted properties that it has, 0
    to 3. The reward is the NDCG of the list. For methods that give advantages by rank, the step info has, per item:
    `items` (its name, empty if it was not offered), `item_relevance`, `items_exact` (whether it is as relevant as the
    best list's item at that rank), `item_spans` (its characters in the answer, with the sign that ends it). For the
    list it has `graded_match` (its NDCG), `best_relevance` (by rank of the best list) and `list_length` (items asked
    for).

    Choices: items end with ; or a new line, and may be numbered. Things that were not offered or were named before have
    relevance 0. A list may be shorter or longer than asked for; items beyond the last rank add nothing. Success is a
    best order of exactly that many items. An answer without any offered thing is invalid.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"graded_match", "items", "item_relevance", "items_exact", "item_spans", "best_relevance", "list_length"}
    )
    num_offered: Annotated[int, Field(ge=3, le=20)] = 8
    """Things to choose from."""
    list_length: Annotated[int, Field(ge=2, le=20)] = 4
    """Items that are asked for."""
    gain: Gain = "linear"
    """Gain of relevance r before the discount: r, or 2^r - 1 (`exponential`)."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""
    success_reward: float = 1.0
    """Reward of a best list; others get this times their NDCG."""

    @model_validator(mode="after")
    def _offers_enough(self) -> RankedLists:
        if self.list_length > self.num_offered:
            raise ValueError(
                f"a list of {self.list_length} cannot be made of {self.num_offered} things; lower list_length or raise "
                "num_offered"
            )
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(draw_task_sets(ENV, _draw, self.num_offered, sizes=SIZES), split)

    def open(self, task: Task) -> RankedListsEnvironment:
        check_env(task, ENV)
        return RankedListsEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        properties = (word for options in PROPERTIES for word in options)
        sentences = f"Wanted: , . Offered: {BEST} {NOT_BEST} {NO_LIST} {ITEM_END}"
        return vocabulary_of((self.instruction(), sentences, *properties, *THINGS))

    def instruction(self) -> str:
        return f"List the {self.list_length} things that fit best, the best first, with {ITEM_END} between them."


class RankedListsEnvironment(SteppedEnvironment):
    """One rollout of a list."""

    def __init__(self, task: Task, part: RankedLists) -> None:
        super().__init__(task, part.max_steps)
        wanted, offered = task.payload["wanted"], task.payload["offered"]
        self._part, self._relevance = part, {thing: judge_relevance(thing, wanted) for thing in offered}
        self._progress.observation = show_text(f"Wanted: {', '.join(wanted)}. Offered: {', '.join(offered)}.")

    def act(self, action: str) -> Outcome:
        self._progress.step()
        length, offered = self._part.list_length, list(self._relevance.values())
        best = sorted(offered, reverse=True)[:length]
        read = read_list(action, self._relevance)
        info = {
            "items": list(read.names),
            "item_relevance": list(read.relevance),
            "items_exact": [degree == ideal for degree, ideal in zip(read.relevance, best, strict=False)],
            "item_spans": [list(span) for span in read.spans],
            "best_relevance": best,
            "list_length": length,
        }
        if not any(read.names):
            return self._progress.outcome(show_text(NO_LIST), success=False, accepted=False, info=info)
        is_best = list(read.relevance) == best
        score = score_order(read.relevance, offered, length=length, gain=self._part.gain)
        return self._progress.outcome(
            show_text(BEST if is_best else NOT_BEST),
            success=is_best,
            reward=self._part.success_reward * score,
            info={"graded_match": score, **info},
        )

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        # Sorting is stable: of two that fit equally well, the one that was offered first.
        ordered = sorted(self._relevance, key=lambda thing: -self._relevance[thing])
        return f" {ITEM_END} ".join(ordered[: self._part.list_length])


def _draw(num_offered: int, index: int) -> Proposal | None:
    draws = Draws(ENV, num_offered, index)
    wanted = [draws.pick(options) for options in PROPERTIES]
    offered = draws.sample(list(THINGS), num_offered)
    if len({judge_relevance(thing, wanted) for thing in offered}) == 1:
        return None
    return Proposal(payload={"wanted": wanted, "offered": offered})


# The things that lists are made of, and what they are like; a thing fits a wish as far as it has its properties.

COLOURS = ("red", "green", "yellow", "white", "black")
SORTS = ("food", "animal", "thing")
THING_SIZES = ("small", "large")
"""What a hand can hold is small."""
PROPERTIES = (COLOURS, SORTS, THING_SIZES)
"""A wish names one of each."""

THINGS: dict[str, tuple[str, str, str]] = {
    "cherry": ("red", "food", "small"),
    "strawberry": ("red", "food", "small"),
    "tomato": ("red", "food", "small"),
    "ladybird": ("red", "animal", "small"),
    "ruby": ("red", "thing", "small"),
    "brick": ("red", "thing", "small"),
    "fire engine": ("red", "thing", "large"),
    "pea": ("green", "food", "small"),
    "lime": ("green", "food", "small"),
    "cabbage": ("green", "food", "large"),
    "watermelon": ("green", "food", "large"),
    "frog": ("green", "animal", "small"),
    "grasshopper": ("green", "animal", "small"),
    "crocodile": ("green", "animal", "large"),
    "emerald": ("green", "thing", "small"),
    "christmas tree": ("green", "thing", "large"),
    "lemon": ("yellow", "food", "small"),
    "banana": ("yellow", "food", "small"),
    "chick": ("yellow", "animal", "small"),
    "canary": ("yellow", "animal", "small"),
    "lion": ("yellow", "animal", "large"),
    "gold coin": ("yellow", "thing", "small"),
    "school bus": ("yellow", "thing", "large"),
    "egg": ("white", "food", "small"),
    "garlic": ("white", "food", "small"),
    "cauliflower": ("white", "food", "large"),
    "swan": ("white", "animal", "large"),
    "polar bear": ("white", "animal", "large"),
    "pearl": ("white", "thing", "small"),
    "snowman": ("white", "thing", "large"),
    "olive": ("black", "food", "small"),
    "ant": ("black", "animal", "small"),
    "panther": ("black", "animal", "large"),
    "coal": ("black", "thing", "small"),
    "piano": ("black", "thing", "large"),
}
"""Colour, sort and size of each thing, by its name in lower case."""


def judge_relevance(thing: str, wanted: Sequence[str]) -> int:
    """How many of the wanted properties a thing has: 0 to 3.

    >>> judge_relevance("frog", ("green", "food", "small"))
    2
    """
    return sum(has == wants for has, wants in zip(THINGS[thing], wanted, strict=True))
