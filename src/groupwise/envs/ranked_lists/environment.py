"""Ranked lists: name the things that fit a wish best, in order; every item of the list has a relevance."""

from __future__ import annotations

from functools import cache
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.keyed_draws import Draws
from groupwise.envs.kit.panel import Panels, Proposal, build_panels, check_env, choose_split
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import vocabulary_of
from groupwise.envs.ranked_lists.lists import ITEM_END, Gain, read_list, score_order
from groupwise.envs.ranked_lists.things import PROPERTIES, THINGS, judge_relevance

ENV = "ranked_lists"
SIZES = {"train": 8000, "validation": 200, "test": 400}
BEST, NOT_BEST, NO_LIST = "No order is better.", "There is a better order.", "That is not a list."


class RankedLists(Part, slot="env", stays_inside=True):
    """Things in the order of how well they fit a wish: "cherry ; ruby ; frog ; egg", in one answer.

    One step: the action is the whole list. A thing is as relevant as it has wanted properties, 0 to 3, and the reward
    is the NDCG of the list. What each item is worth is told as facts of the step, for methods that give credit by
    rank: `items` (what each names, empty where it was not offered), `item_relevance`, `items_exact` (whether an item
    is as relevant as the best list's at its rank), `item_spans` (where it lies in the answer, in characters, the sign
    that ends it included); and of the list `graded_match` (its NDCG), `best_relevance` (by rank of the best list) and
    `list_length` (how many are asked for).

    Choices: items end with ; or a new line, and may be numbered. What was not offered or was named before has relevance
    0. A list may be shorter or longer than asked for; items beyond the last rank add nothing. Only the best order of
    just as many items is a success. An answer that names nothing that was offered is refused.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"graded_match", "items", "item_relevance", "items_exact", "item_spans", "best_relevance", "list_length"}
    )
    num_offered: Annotated[int, Field(ge=3, le=20)] = 8
    """Things to choose from."""
    list_length: Annotated[int, Field(ge=2, le=20)] = 4
    """Items that are asked for."""
    gain: Gain = "linear"
    """What relevance r adds to the discounted gain: r, or 2^r - 1 (`exponential`)."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the attempt, so one step is all there is."""
    success_reward: float = 1.0
    """Reward of a list that no order is better than; others have their share of it."""

    @model_validator(mode="after")
    def _offers_enough(self) -> RankedLists:
        if self.list_length > self.num_offered:
            raise ValueError(
                f"a list of {self.list_length} cannot be made of {self.num_offered} things; lower list_length or raise "
                "num_offered"
            )
        return self

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_panels(self.num_offered), split)

    def open(self, task: Task) -> RankedListsEnvironment:
        check_env(task, ENV)
        return RankedListsEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        properties = (word for options in PROPERTIES for word in options)
        sentences = f"Wanted: , . Offered: {BEST} {NOT_BEST} {NO_LIST} {ITEM_END}"
        return vocabulary_of((self.instruction(), sentences, *properties, *THINGS))

    def instruction(self) -> str:
        return f"List the {self.list_length} things that fit best, the best first, with {ITEM_END} between them."


class RankedListsEnvironment:
    """One attempt at a list."""

    __slots__ = ("_observation", "_part", "_progress", "_relevance")

    def __init__(self, task: Task, part: RankedLists) -> None:
        self._part = part
        wanted, offered = task.payload["wanted"], task.payload["offered"]
        self._relevance = {thing: judge_relevance(thing, wanted) for thing in offered}
        self._progress = Progress(task, max_steps=part.max_steps)
        self._observation = _make_observation(f"Wanted: {', '.join(wanted)}. Offered: {', '.join(offered)}.")

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        length, offered = self._part.list_length, list(self._relevance.values())
        best = sorted(offered, reverse=True)[:length]
        read = read_list(action, self._relevance)
        facts = {
            "items": list(read.names),
            "item_relevance": list(read.relevance),
            "items_exact": [degree == ideal for degree, ideal in zip(read.relevance, best, strict=False)],
            "item_spans": [list(span) for span in read.spans],
            "best_relevance": best,
            "list_length": length,
        }
        if not any(read.names):
            self._observation = _make_observation(NO_LIST)
            return self._progress.outcome(self._observation, success=False, accepted=False, facts=facts)
        is_best = list(read.relevance) == best
        self._observation = _make_observation(BEST if is_best else NOT_BEST)
        score = score_order(read.relevance, offered, length=length, gain=self._part.gain)
        return self._progress.outcome(
            self._observation,
            success=is_best,
            reward=self._part.success_reward * score,
            facts={"graded_match": score, **facts},
        )

    def fork(self) -> RankedListsEnvironment:
        twin = RankedListsEnvironment.__new__(RankedListsEnvironment)
        twin._part, twin._relevance = self._part, self._relevance
        twin._observation, twin._progress = self._observation, self._progress.fork()
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        # Sorting is stable: of two that fit equally well, the one that was offered first.
        ordered = sorted(self._relevance, key=lambda thing: -self._relevance[thing])
        return f" {ITEM_END} ".join(ordered[: self._part.list_length])


def _make_observation(text: str) -> Observation:
    return Observation(text=text, state_key=text)


@cache
def _build_panels(num_offered: int) -> Panels:
    return build_panels(ENV, lambda index: _draw(num_offered, index), sizes=SIZES)


def _draw(num_offered: int, index: int) -> Proposal | None:
    """A wish and things to choose from, of which some list is better than another."""
    draws = Draws(ENV, num_offered, index)
    wanted = [draws.pick(options) for options in PROPERTIES]
    offered = draws.sample(list(THINGS), num_offered)
    if len({judge_relevance(thing, wanted) for thing in offered}) == 1:
        return None
    return Proposal(payload={"wanted": wanted, "offered": offered})
