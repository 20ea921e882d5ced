"""A shop as an environment: search, look, choose, buy. WebShop and the storefront are both played in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.facts import write_call, write_checks, write_text
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
from groupwise.envs.webshop.reward import PurchaseScore, score_purchase

ACTION = re.compile(r"(search|click)\s*+\[(.*)\]", re.DOTALL)
MAX_ACTION_CHARACTERS = 10_000
"""Of an action that is still read; what is searched for is remembered."""


SHOP_FACTS = frozenset(
    {"answer", "gold_answer", "exact", "graded_match", "match_parts", "calls", "num_calls", "checks"}
)
"""What a shop tells of a step. There is more than one way to a product, so it has no gold calls."""


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
        read = _read_action(action)
        page = None if read is None else self._follow(*read)
        if page is None:
            checks = write_checks(read=read is not None, fits=None if read is None else False)
            return self._progress.outcome(self._observation, accepted=False, facts=self._tell_facts(read, checks))
        self._show(page)
        if page.is_bought:
            return self._buy()
        facts = self._tell_facts(read, write_checks(read=True, fits=True))
        return self._progress.outcome(self._observation, facts=facts)

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

    def _follow(self, verb: str, target: str) -> Page | None:
        """The page that an action leads to; None where there is no such action here."""
        if verb == "search":
            may_search = self._page.query is None or self._rules.reference
            return Page(query=" ".join(split_words(target))) if may_search else None
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
        )
        right = score.total == 1.0
        worth = score.total if self._rules.is_graded else float(right)
        return self._progress.outcome(
            self._observation,
            success=right,
            reward=worth * self._rules.success_reward,
            facts=self._tell_facts(None, write_checks(read=True, fits=True, right=right)) | self._tell_match(score),
        )

    def _tell_facts(self, read: tuple[str, str] | None, checks: dict[str, bool]) -> dict[str, Any]:
        calls = []
        if read is not None:
            verb, target = read
            calls.append(write_call(verb, {"query" if verb == "search" else "button": target}))
        gold_answer = _describe_purchase(self._goal.asin, self._goal.options.items())
        return {"gold_answer": gold_answer, "calls": calls, "num_calls": len(calls), "checks": checks}

    def _tell_match(self, score: PurchaseScore) -> dict[str, Any]:
        """How well a purchase matches; one that has all that was asked for is as good as the gold answer, and is it."""
        is_right = score.total == 1.0
        asin, chosen = (
            (self._goal.asin, self._goal.options.items()) if is_right else (self._page.asin, self._page.chosen)
        )
        parts = {"type": score.type, "price": float(score.price)}
        if self._goal.attributes:
            parts["attributes"] = score.attributes / len(self._goal.attributes)
        if self._goal.options:
            parts["options"] = score.options / len(self._goal.options)
        answer = _describe_purchase(asin, chosen)
        return {"answer": answer, "exact": is_right, "graded_match": score.total, "match_parts": parts}

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


def _read_action(action: str) -> tuple[str, str] | None:
    """What an action asks for, its verb and what stands in brackets; None where it is no action of a shop."""
    match = ACTION.fullmatch(action.strip()) if len(action) <= MAX_ACTION_CHARACTERS else None
    if match is None:
        return None
    verb, target = match[1], match[2].strip().lower()
    return None if verb == "search" and not target else (verb, target)


def _describe_purchase(asin: str, chosen: Iterable[tuple[str, str]]) -> str:
    return write_text("; ".join((asin, *(f"{name}: {value}" for name, value in sorted(chosen)))))


def _click(text: str) -> str:
    return f"click[{text.lower()}]"
