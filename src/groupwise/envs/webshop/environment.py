"""WebShop: buy what an instruction asks for, over the publisher's products and goals."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import PathText
from groupwise.core.records import Task
from groupwise.envs.kit.panel import Panels, check_disjoint, check_env, choose_split
from groupwise.envs.kit.words import vocabulary_of
from groupwise.envs.webshop.catalogue import MAX_RESULTS, Catalogue, Goal
from groupwise.envs.webshop.files import LIMIT_TEXT, read_goals, read_products
from groupwise.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SEPARATOR, SUB_PAGES, THANKS
from groupwise.envs.webshop.shop_environment import SHOP_FACTS, ShopEnvironment

ENV = "webshop"
NUM_TEST, NUM_VALIDATION = 500, 1000
"""The published split: goals 0 to 499 are the test, 500 to 1499 the validation, all others the training panel."""
SENTENCES = (
    SEPARATOR.join((BACK, PREVIOUS, NEXT, BUY, *SUB_PAGES, THANKS)),
    "Instruction: Page 1 (Total results: 0) Price: Rating: Chosen: , No Search search[] click[]",
    *(str(number) for number in range(MAX_RESULTS + 1)),
)
"""What every shop says."""
INSTRUCTION = "Shop for what is asked: search[words], click[button], and click[buy now] in the end."


class Webshop(Part, slot="env"):
    """Shopping after WebShop (Yao et al. 2022, arXiv:2207.01206), with the publisher's products and goals.

    `search[words]` leads from the search page to results, ten on a page; `click[text]` presses a button of the page: a
    product, an option, a page about it, `buy now`. Buying ends the attempt with the published score: type times the
    share of attributes, options and price that are right. A score of 1 is a success. An action that is not possible
    leaves the page as it is, and the action is refused.

    Choices: search is BM25 by bm25s, without stemming, where the publisher uses Lucene; the order of the results
    differs from Lucene's. The score's nouns come from a spaCy model only if one is named (`tagger`). The publisher
    draws prices of ranges and price limits anew at each start; here they belong to the product and the goal, so that
    panels are the same everywhere. Goals of equal content are kept once, in the test panel if they are there. One
    search is listed as admissible, the one for the instruction; any other words may be searched for as well.

    `state_key` is what is looked at and which options were chosen, however the shopper came there.
    """

    writes: ClassVar[frozenset[str]] = SHOP_FACTS
    path: PathText
    """Folder of WebShop's data."""
    size: Literal["1000", "all"] = "1000"
    """Which catalogue: items_shuffle_1000.json, or items_shuffle.json with 1.18 million products."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """Goals that were made from products (items_ins_v2), or those that people wrote (items_human_ins.json)."""
    num_test: Annotated[int, Field(ge=1)] = NUM_TEST
    """Goals of the test panel: the first ones."""
    num_validation: Annotated[int, Field(ge=1)] = NUM_VALIDATION
    """Goals of the validation panel: those after them."""
    max_steps: Annotated[int, Field(ge=1)] = 15
    """Steps before an attempt is truncated."""
    is_graded: bool = True
    """Whether buying earns the score; otherwise it earns 1 for a success and 0 for anything less."""
    success_reward: float = 1.0
    """What the score, or the success, is multiplied by."""
    reference: bool = False
    """Whether to do as the published code: the colour of an option is normalised on one side only, so that some right
    choices count as misses; and a search is possible on every page."""
    tagger: str = ""
    """spaCy model that finds the nouns of titles for the score, such as "en_core_web_sm"; empty = all words of letters
    that a short list does not exclude."""
    show_chosen: bool = False
    """Whether a product's page says which options were chosen, which the published text does not."""
    goal_in_text: bool = False
    """Whether each text begins with the instruction, as the published one does."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_panels(self.path, self.size, self.goals, self.num_test, self.num_validation), split)

    def open(self, task: Task) -> ShopEnvironment:
        check_env(task, ENV)
        return ShopEnvironment(task, self, _load_catalogue(self.path, self.size))

    def vocabulary(self) -> tuple[str, ...]:
        goals = [goal.instruction for goal in _load_goals(self.path, self.size, self.goals)]
        return collect_shop_vocabulary(_load_catalogue(self.path, self.size), goals)

    def instruction(self) -> str:
        return INSTRUCTION


def collect_shop_vocabulary(catalogue: Catalogue, instructions: list[str]) -> tuple[str, ...]:
    """Every word that a shop may show or a goal may say."""
    texts = [INSTRUCTION, *SENTENCES, *instructions]
    for product in catalogue.products:
        options = [text for name, values in product.options.items() for text in (name, *values)]
        about = (product.asin, product.title, product.price_tag, product.rating, product.description)
        texts += [*about, *product.features, *product.reviews, *options]
    return vocabulary_of(texts)


@lru_cache(maxsize=2)
def _load_catalogue(path: str, size: str) -> Catalogue:
    return Catalogue(read_products(Path(path), size), env=ENV)


@lru_cache(maxsize=2)
def _load_goals(path: str, size: str, goals: str) -> list[Goal]:
    return read_goals(Path(path), size, list(_load_catalogue(path, size).products), human=goals == "human")


@lru_cache(maxsize=4)
def _build_panels(path: str, size: str, goals: str, num_test: int, num_validation: int) -> Panels:
    ordered = _load_goals(path, size, goals)
    cut = {
        "test": ordered[:num_test],
        "validation": ordered[num_test : num_test + num_validation],
        "train": ordered[num_test + num_validation :],
    }
    if not cut["train"]:
        raise ConfigError(
            f"webshop: {path!r} has {len(ordered)} {goals} goals, and {num_test} for the test and {num_validation} for "
            "the validation leave none to train on; set num_test and num_validation lower"
        )
    catalogue, seen = _load_catalogue(path, size), set[Hashable]()
    panels: dict[str, tuple[Task, ...]] = {}
    for split, chosen in cut.items():
        # A goal that comes again, in this panel or a later one, is left out: it would train on the test.
        fresh = {content: goal for goal in chosen if (content := _identify_goal(goal)) not in seen}
        seen |= set(fresh)
        panels[split] = tuple(_make_task(split, goal, catalogue) for goal in fresh.values())
    check_disjoint(panels)
    return panels


def _identify_goal(goal: Goal) -> Hashable:
    """What a goal asks for, its price limit aside: the same wish with another limit is the same wish."""
    return goal.asin, goal.attributes, tuple(sorted(goal.options.items())), goal.instruction.partition(LIMIT_TEXT)[0]


def _make_task(split: str, goal: Goal, catalogue: Catalogue) -> Task:
    payload = goal.payload() | {"catalogue": catalogue.digest}
    return Task.create(env=ENV, split=split, payload=payload, tags=(catalogue.by_asin[goal.asin].category,))
