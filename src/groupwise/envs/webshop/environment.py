"""WebShop: buy what an instruction asks for, over the publisher's products and goals."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.info import write_call, write_checks, write_text
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import TaskSets, check_env, choose_split
from groupwise.envs.kit.words import split_words, vocabulary_of
from groupwise.envs.webshop.catalogue import (
    LIMIT_TEXT,
    MAX_RESULTS,
    Catalogue,
    Goal,
    Product,
    read_goals,
    read_products,
)
from groupwise.envs.webshop.reward import PurchaseScore, score_purchase
from groupwise.envs.webshop.search import Search
from groupwise.parts.part import Part
from groupwise.parts.path_settings import PathText
from groupwise.system.errors import ConfigError

# A shop as an environment: search, look, choose, buy. WebShop and the storefront both use it.

ACTION = re.compile(r"(search|click)\s*+\[(.*)\]", re.DOTALL)
MAX_ACTION_CHARACTERS = 10_000
"""Longest valid action; searches are cached."""


class ShopPart(Part):
    """The settings that all shops have."""

    writes: ClassVar[frozenset[str]] = frozenset(
        {"answer", "gold_answer", "exact", "graded_match", "match_parts", "calls", "num_calls", "checks"}
    )
    max_steps: Annotated[int, Field(ge=1)] = 15
    """Steps before a rollout is truncated; the storefront's expert needs 9 at most."""
    is_graded: bool = True
    """Whether the reward is the score; otherwise it is 1 for a success and 0 for less."""
    success_reward: float = 1.0
    """Factor of the reward."""
    reference: bool = False
    """Whether to follow the published code. It normalises the colour of an option on one side only, so some right
    choices count as wrong. It allows a search on every page, and lists a search button that does nothing."""
    tagger: str = ""
    """spaCy model for the nouns of titles in the score, such as "en_core_web_sm"; empty = all words of letters that are
    not in a short list."""
    show_chosen: bool = False
    """Whether a product's page shows the chosen options; the published text does not."""
    goal_in_text: bool = False
    """Whether each text begins with the instruction, as the published one does."""
    key: Literal["situation", "observation"] = "situation"
    """What makes two steps comparable: the page and the chosen options, or the text without the instruction."""
    listed_search: Literal["instruction", "placeholder"] = "instruction"
    """The search in the list of possible actions: one for the instruction, or `search[<your query>]`, as released."""
    texts: Literal["plain", "quoted"] = "plain"
    """Whether the texts of a page stand in quotation marks, as in GiGPO's and HGPO's prompts: 'a' [SEP] 'b'."""
    search: Search = "bm25"
    """The search engine: BM25; BM25 over stemmed words, close to the publisher's; or the publisher's, by pyserini."""

    def instruction(self) -> str:
        return INSTRUCTION

    def write_page(self, texts: Iterable[str]) -> str:
        return SEPARATOR.join(f"'{text}'" for text in texts) if self.texts == "quoted" else SEPARATOR.join(texts)


class ShopEnvironment(SteppedEnvironment):
    """One rollout to buy what a goal asks for."""

    def __init__(self, task: Task, rules: ShopPart, catalogue: Catalogue) -> None:
        super().__init__(task, rules.max_steps)
        catalogue.check(task)
        self._rules, self._catalogue, self._goal = rules, catalogue, Goal.of(task)
        self._progress.observation = self._show(Page())

    def act(self, action: str) -> Outcome:
        self._progress.step()
        read = _read_action(action)
        page = None if read is None else self._follow(*read)
        if page is None:
            checks = write_checks(read=read is not None, fits=None if read is None else False)
            return self._progress.outcome(self.observe(), accepted=False, info=self._tell_info(read, checks))
        seen = self._show(page)
        if not page.is_bought:
            return self._progress.outcome(seen, info=self._tell_info(read, write_checks(read=True, fits=True)))
        score = score_purchase(
            self._catalogue.by_asin[page.asin],
            dict(page.chosen),
            self._goal,
            self._catalogue.by_asin[self._goal.asin],
            reference=self._rules.reference,
            tagger=self._rules.tagger,
        )
        right = score.total == 1.0
        worth = score.total if self._rules.is_graded else float(right)
        info = self._tell_info(None, write_checks(read=True, fits=True, right=right)) | self._tell_match(score)
        return self._progress.outcome(seen, success=right, reward=worth * self._rules.success_reward, info=info)

    def expert(self) -> str | None:
        """Search for the instruction, go to the product that it was written for, choose its options, buy.

        If fifty results do not contain the product, it searches for the title; None if that fails too.
        """
        if self._progress.ended:
            return None
        page = self._page
        if page.query is None:
            query = self._find_best_query()
            return None if query is None else f"search[{query}]"
        if not page.asin:
            rank = self._find_rank(page.query)
            if rank is None or rank // PAGE_SIZE + 1 < page.number:
                return _click(BACK)
            return _click(self._goal.asin if rank // PAGE_SIZE + 1 == page.number else NEXT)
        if page.asin != self._goal.asin:
            return _click(BACK)
        if page.sub_page:
            return _click(PREVIOUS)
        chosen = dict(page.chosen)
        missing = [value for name, value in self._goal.options.items() if chosen.get(name) != value]
        known = [value for value in missing if value in self._buttons]
        return _click(known[0] if known else BUY)

    def _find_best_query(self) -> str | None:
        title = self._catalogue.by_asin[self._goal.asin].title
        ranked = [
            (rank // PAGE_SIZE, query)
            for query in (self._goal.instruction.lower(), title.lower())
            if (rank := self._find_rank(query)) is not None
        ]
        return min(ranked, key=lambda rank_and_query: rank_and_query[0])[1] if ranked else None

    def _find_rank(self, query: str) -> int | None:
        results = [product.asin for product in self._catalogue.search(query)]
        return results.index(self._goal.asin) if self._goal.asin in results else None

    def _follow(self, verb: str, target: str) -> Page | None:
        """The page after an action; None if the action is not possible here."""
        if verb == "search":
            may_search = self._page.query is None or self._rules.reference
            return Page(query=target) if may_search else None
        if target in self._buttons:
            return self._buttons[target]
        target_words = split_words(target)  # a tokenizer may put spaces around punctuation
        return next((page for text, page in self._buttons.items() if split_words(text) == target_words), None)

    def _tell_info(self, read: tuple[str, str] | None, checks: dict[str, bool]) -> dict[str, Any]:
        calls = []
        if read is not None:
            verb, target = read
            calls.append(write_call(verb, {"query" if verb == "search" else "button": target}))
        gold_answer = _describe_purchase(self._goal.asin, self._goal.options.items())
        return {"gold_answer": gold_answer, "calls": calls, "num_calls": len(calls), "checks": checks}

    def _tell_match(self, score: PurchaseScore) -> dict[str, Any]:
        """How well a purchase matches. One with all wanted properties counts as the gold answer."""
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

    def _show(self, page: Page) -> Observation:
        rules = self._rules
        self._page, self._buttons = page, buttons_of(page, self._catalogue, reference=rules.reference)
        texts = texts_of(page, self._catalogue, show_chosen=rules.show_chosen)
        # As the published text mode begins its pages.
        head = ["Instruction:", self._goal.instruction] if rules.goal_in_text else []
        clicks = tuple(_click(text) for text in self._buttons)
        query = self._goal.instruction.lower() if rules.listed_search == "instruction" else PLACEHOLDER
        searches = (f"search[{query}]",) if page.query is None else ()
        return Observation(
            text=rules.write_page((*head, *texts)),
            state_key=key_of(page, self._catalogue) if rules.key == "situation" else rules.write_page(texts),
            admissible=(*searches, *clicks),
            goal=self._goal.instruction,
        )


def _read_action(action: str) -> tuple[str, str] | None:
    """The verb of an action and the text in brackets; None if it is not an action of a shop."""
    match = ACTION.fullmatch(action.strip()) if len(action) <= MAX_ACTION_CHARACTERS else None
    if match is None:
        return None
    verb, target = match[1], match[2].strip().lower()
    return None if verb == "search" and not target else (verb, target)


def _describe_purchase(asin: str, chosen: Iterable[tuple[str, str]]) -> str:
    return write_text("; ".join((asin, *(f"{name}: {value}" for name, value in sorted(chosen)))))


def _click(text: str) -> str:
    return f"click[{text.lower()}]"


# The pages of a shop: what each one shows, and where its buttons lead.

PAGE_SIZE = 10
"""Products on a page of results."""
SEPARATOR = " [SEP] "
"""Separator of the texts of a page, as in the published text mode."""
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
SEARCH_BUTTON = "search"
"""The button of the published search page. A search needs no click, so it does nothing."""
PLACEHOLDER = "<your query>"
"""What the released lists of actions show in place of a query."""
THANKS = "Thank you for shopping with us!"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Where a shopper is; frozen, so forks can share it."""

    query: str | None = None
    """What was searched for; None = the search page."""
    number: int = 1
    asin: str = ""
    """The product that is looked at; empty = the results."""
    sub_page: str = ""
    """Which of the product's further pages; empty = its first."""
    chosen: tuple[tuple[str, str], ...] = ()
    """The options that were chosen, by name, in the order of their names."""
    is_bought: bool = False

    def choose(self, name: str, value: str) -> Page:
        return replace(self, chosen=tuple(sorted({**dict(self.chosen), name: value}.items())))


def texts_of(page: Page, catalogue: Catalogue, *, show_chosen: bool) -> list[str]:
    if page.is_bought:
        return [THANKS]
    if page.query is None:
        return ["Search"]
    if not page.asin:
        total = len(catalogue.search(page.query))
        moves = [PREVIOUS] * (page.number > 1) + [NEXT] * (page.number * PAGE_SIZE < total)
        shown = [(product.asin, product.title, product.price_tag) for product in _list_products(page, catalogue)]
        entries = [text for texts in shown for text in texts]
        return [BACK, f"Page {page.number} (Total results: {total})", *moves, *entries]
    product = catalogue.by_asin[page.asin]
    if page.sub_page:
        pages = {"Description": (product.description,), "Features": product.features, "Reviews": product.reviews}
        said = [text for text in pages[page.sub_page] if text]
        return [BACK, PREVIOUS, *(said or [f"No {page.sub_page}"])]
    options = [text for name, values in product.options.items() for text in (name, *values)]
    about = (product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}")
    chosen = [f"Chosen: {', '.join(value for _, value in page.chosen)}"] if show_chosen and page.chosen else []
    return [BACK, PREVIOUS, *options, *about, *SUB_PAGES, BUY, *chosen]


def buttons_of(page: Page, catalogue: Catalogue, *, reference: bool) -> Mapping[str, Page]:
    """Where each button of a page leads, by its text in lower case.

    If two options have a value in common, a click chooses the later one, as in the published environment.
    """
    if page.query is None:
        return {SEARCH_BUTTON: page} if reference else {}
    if page.is_bought:
        return {}
    buttons = {BACK.lower(): Page()}
    if not page.asin:
        results = catalogue.search(page.query)
        if page.number > 1:
            buttons[PREVIOUS.lower()] = replace(page, number=page.number - 1)
        if page.number * PAGE_SIZE < len(results):
            buttons[NEXT.lower()] = replace(page, number=page.number + 1)
        return buttons | {
            product.asin.lower(): replace(page, asin=product.asin) for product in _list_products(page, catalogue)
        }
    if page.sub_page:
        return buttons | {PREVIOUS.lower(): replace(page, sub_page="")}
    buttons[PREVIOUS.lower()] = Page(query=page.query, number=page.number)
    buttons |= {name.lower(): replace(page, sub_page=name) for name in SUB_PAGES}
    buttons[BUY.lower()] = replace(page, is_bought=True)
    options = catalogue.by_asin[page.asin].options
    return buttons | {value: page.choose(name, value) for name, values in options.items() for value in values}


def key_of(page: Page, catalogue: Catalogue) -> str:
    """The situation as text: the page and the chosen options; the way there does not matter."""
    chosen = "".join(f"; {name}: {value}" for name, value in page.chosen)
    if page.asin:
        where = "bought" if page.is_bought else page.sub_page.lower() or "item"
        return f"{where} {page.asin}{chosen}"
    if page.query is None:
        return "search"
    return " ".join(("results", str(page.number), *(product.asin for product in _list_products(page, catalogue))))


def _list_products(page: Page, catalogue: Catalogue) -> tuple[Product, ...]:
    return catalogue.search(page.query or "")[(page.number - 1) * PAGE_SIZE : page.number * PAGE_SIZE]


ENV = "webshop"
NUM_TEST, NUM_VALIDATION = 500, 1000
"""The published split: goals 0 to 499 are the test, 500 to 1499 the validation, all others the train set."""
SENTENCES = (
    SEPARATOR.join((BACK, PREVIOUS, NEXT, BUY, *SUB_PAGES, THANKS)),
    "Instruction: Page 1 (Total results: 0) Price: Rating: Chosen: , No Search search[] click[]",
    *(str(number) for number in range(MAX_RESULTS + 1)),
)
"""What every shop says."""
INSTRUCTION = "Shop for what is asked: search[words], click[button], and click[buy now] in the end."


class Webshop(ShopPart, slot="env"):
    """Shopping after WebShop (Yao et al. 2022, arXiv:2207.01206), with the publisher's products and goals.

    `search[words]` leads from the search page to results, ten per page. `click[text]` presses a button of the page: a
    product, an option, a page about it, `buy now`. Buying ends the rollout with the published score: type times the
    fraction of attributes, options and price that are right. A score of 1 is a success. An impossible action is invalid
    and leaves the page as it is.

    Choices: search is BM25 by bm25s without stemming; the publisher uses Lucene, whose order of results differs
    (`search`). The score's nouns come from a spaCy model only if `tagger` names one. The publisher draws the price of a
    range, and price limits, at each start. Here they depend on the product and the goal, so task sets are equal
    everywhere. Goals with equal content are kept once, in the test set first. Only one search is listed as admissible,
    the one for the instruction; any other words are possible.

    `state_key` is the page and the chosen options; the way there does not matter. `key = "observation"` is the text
    without the instruction, as in GiGPO's and HGPO's release. It does not show the chosen options, so pages with other
    choices are equal.
    """

    path: PathText
    """Folder of WebShop's data."""
    size: Literal["1000", "all"] = "1000"
    """Which catalogue: items_shuffle_1000.json, or items_shuffle.json with 1.18 million products."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """Goals that were made from products (items_ins_v2), or those that people wrote (items_human_ins.json)."""
    num_test: Annotated[int, Field(ge=1)] = NUM_TEST
    """Goals of the test set: the first ones."""
    num_validation: Annotated[int, Field(ge=0)] = NUM_VALIDATION
    """Goals of the validation set: those after them; 0 in GiGPO's and HGPO's release."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(
            _build_task_sets(self.path, self.size, self.goals, self.num_test, self.num_validation), split
        )

    def open(self, task: Task) -> ShopEnvironment:
        check_env(task, ENV)
        return ShopEnvironment(task, self, _load_catalogue(self.path, self.size, self.search))

    def vocabulary(self) -> tuple[str, ...]:
        goals = [goal.instruction for goal in _load_goals(self.path, self.size, self.goals)]
        return collect_shop_vocabulary(self, _load_catalogue(self.path, self.size), goals)


def collect_shop_vocabulary(rules: ShopPart, catalogue: Catalogue, instructions: list[str]) -> tuple[str, ...]:
    texts = [INSTRUCTION, *SENTENCES, *instructions]
    texts += [PLACEHOLDER] if rules.listed_search == "placeholder" else []
    texts += [rules.write_page([""])]
    for product in catalogue.products:
        options = [text for name, values in product.options.items() for text in (name, *values)]
        about = (product.asin, product.title, product.price_tag, product.rating, product.description)
        texts += [*about, *product.features, *product.reviews, *options]
    return vocabulary_of(texts)


@lru_cache(maxsize=2)
def _load_products(path: str, size: str) -> list[Product]:
    return read_products(Path(path), size)


@lru_cache(maxsize=2)
def _load_catalogue(path: str, size: str, search: Search = "bm25") -> Catalogue:
    return Catalogue(_load_products(path, size), env=ENV, search=search)


@lru_cache(maxsize=2)
def _load_goals(path: str, size: str, goals: str) -> list[Goal]:
    return read_goals(Path(path), size, _load_products(path, size), human=goals == "human")


@lru_cache(maxsize=4)
def _build_task_sets(path: str, size: str, goals: str, num_test: int, num_validation: int) -> TaskSets:
    ordered = _load_goals(path, size, goals)
    cut = {
        "test": ordered[:num_test],
        "validation": ordered[num_test : num_test + num_validation],
        "train": ordered[num_test + num_validation :],
    }
    if not cut["train"]:
        raise ConfigError(
            f"webshop: {path!r} has {len(ordered)} {goals} goals, but test ({num_test}) and validation "
            f"({num_validation}) leave none for training; decrease num_test and num_validation"
        )
    catalogue, seen = _load_catalogue(path, size), set[Hashable]()
    task_sets: dict[str, tuple[Task, ...]] = {}
    for split, chosen in cut.items():
        # A goal that occurs again is left out, or the run trains on test goals. The price limit makes no difference.
        fresh: dict[Hashable, Goal] = {}
        for goal in chosen:
            wish = goal.instruction.partition(LIMIT_TEXT)[0]
            content = goal.asin, goal.attributes, tuple(sorted(goal.options.items())), wish
            if content not in seen:
                fresh[content] = goal
        seen |= set(fresh)
        task_sets[split] = tuple(
            Task.create(
                env=ENV,
                split=split,
                payload=goal.payload() | {"catalogue": catalogue.digest},
                tags=(catalogue.by_asin[goal.asin].category,),
            )
            for goal in fresh.values()
        )
    return task_sets
