"""A shop as an environment: search, look, choose, buy. WebShop and the storefront are both played in it."""

from __future__ import annotations

import re
from typing import Protocol

from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import split_words
from groupwise.envs.webshop.catalogue import Catalogue, Goal
from groupwise.envs.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PAGE_SIZE,
    PREVIOUS,
    SEPARATOR,
    Page,
    buttons_of,
    key_of,
    texts_of,
)
from groupwise.envs.webshop.reward import score_purchase

ACTION = re.compile(r"(search|click)\s*+\[(.*)\]", re.DOTALL)
MAX_ACTION_CHARACTERS = 10_000
"""Of an action that is still read; what is searched for is remembered."""


class ShopRules(Protocol):
    """What a shop's part says about its attempts; see the fields of `Webshop`."""

    @property
    def max_steps(self) -> int: ...
    @property
    def is_graded(self) -> bool: ...
    @property
    def success_reward(self) -> float: ...
    @property
    def reference(self) -> bool: ...
    @property
    def tagger(self) -> str: ...
    @property
    def show_chosen(self) -> bool: ...
    @property
    def goal_in_text(self) -> bool: ...


class ShopEnvironment:
    """One attempt to buy what a goal asks for."""

    __slots__ = ("_buttons", "_catalogue", "_goal", "_observation", "_page", "_progress", "_rules")

    def __init__(self, task: Task, rules: ShopRules, catalogue: Catalogue) -> None:
        catalogue.check(task)
        self._rules, self._catalogue, self._goal = rules, catalogue, Goal.of(task)
        self._progress = Progress(task, max_steps=rules.max_steps)
        self._show(Page())

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        page = self._follow(action)
        if page is None:
            return self._progress.outcome(self._observation, accepted=False)
        self._show(page)
        return self._buy() if page.is_bought else self._progress.outcome(self._observation)

    def fork(self) -> ShopEnvironment:
        twin = ShopEnvironment.__new__(ShopEnvironment)
        twin._rules, twin._catalogue, twin._goal = self._rules, self._catalogue, self._goal
        twin._page, twin._buttons, twin._observation = self._page, self._buttons, self._observation
        twin._progress = self._progress.fork()
        return twin

    def expert(self) -> str | None:
        """Search for the instruction, go to the product that it was written for, choose its options, buy.

        Where fifty results do not hold the product, its title is searched for; None where that fails too.
        """
        if self._progress.ended:
            return None
        page = self._page
        if page.query is None:
            query = self._find_best_query()
            return None if query is None else f"search[{query}]"
        if not page.asin:
            return self._approach(page.query, page.number)
        if page.asin != self._goal.asin:
            return _click(BACK)
        if page.sub_page:
            return _click(PREVIOUS)
        chosen = dict(page.chosen)
        missing = [value for name, value in self._goal.options.items() if chosen.get(name) != value]
        known = [value for value in missing if value in self._buttons]
        return _click(known[0] if known else BUY)

    def _approach(self, query: str, number: int) -> str:
        rank = self._find_rank(query)
        if rank is None or rank // PAGE_SIZE + 1 < number:
            return _click(BACK)
        return _click(self._goal.asin if rank // PAGE_SIZE + 1 == number else NEXT)

    def _find_best_query(self) -> str | None:
        title = self._catalogue.by_asin[self._goal.asin].title
        ranked = [
            (rank // PAGE_SIZE, query)
            for query in (self._goal.instruction.lower(), title.lower())
            if (rank := self._find_rank(" ".join(split_words(query)))) is not None
        ]
        return min(ranked, key=lambda rank_and_query: rank_and_query[0])[1] if ranked else None

    def _find_rank(self, query: str) -> int | None:
        results = [product.asin for product in self._catalogue.search(query)]
        return results.index(self._goal.asin) if self._goal.asin in results else None

    def _follow(self, action: str) -> Page | None:
        """The page that an action leads to; None where there is no such action here."""
        match = ACTION.fullmatch(action.strip()) if len(action) <= MAX_ACTION_CHARACTERS else None
        if match is None:
            return None
        verb, target = match[1], match[2].strip().lower()
        if verb == "search":
            may_search = self._page.query is None or self._rules.reference
            return Page(query=" ".join(split_words(target))) if target and may_search else None
        if target in self._buttons:
            return self._buttons[target]
        target_words = split_words(target)  # a tokenizer may put spaces around punctuation
        return next((page for text, page in self._buttons.items() if split_words(text) == target_words), None)

    def _buy(self) -> Outcome:
        bought, wanted = self._catalogue.by_asin[self._page.asin], self._catalogue.by_asin[self._goal.asin]
        score = score_purchase(
            bought,
            dict(self._page.chosen),
            self._goal,
            wanted,
            reference=self._rules.reference,
            tagger=self._rules.tagger,
        ).total
        worth = score if self._rules.is_graded else float(score == 1.0)
        return self._progress.outcome(
            self._observation, success=score == 1.0, reward=worth * self._rules.success_reward
        )

    def _show(self, page: Page) -> None:
        self._page, self._buttons = page, buttons_of(page, self._catalogue)
        texts = texts_of(page, self._catalogue, show_chosen=self._rules.show_chosen)
        # As the published text mode begins its pages.
        head = ["Instruction:", self._goal.instruction] if self._rules.goal_in_text else []
        clicks = tuple(_click(text) for text in self._buttons)
        searches = (f"search[{self._goal.instruction.lower()}]",) if page.query is None else ()
        self._observation = Observation(
            text=SEPARATOR.join((*head, *texts)),
            state_key=key_of(page, self._catalogue),
            admissible=(*searches, *clicks),
            goal=self._goal.instruction,
        )


def _click(text: str) -> str:
    return f"click[{text.lower()}]"
