"""A shop in WebShop's manner with products of our own: it runs without the publisher's files, and is not WebShop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.webshop.catalogue import LIMITS, Catalogue, Goal, Product, append_price_limit, draw_price_limit
from groupwise.envs.webshop.environment import ShopEnvironment, ShopPart, collect_shop_vocabulary
from groupwise.envs.webshop.search import Search

ENV = "storefront"
SIZES = TaskSetSizes(train=2000, validation=200, test=400)
ASIN = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Letters and digits of which the shop's names for its products are made."""
NUM_KINDS = 26
"""Kinds of products that there are."""
MAX_OPTION_VALUES = 4
"""Values that an option has at most."""


class Storefront(ShopPart, slot="env", self_contained=True):
    """Shopping with WebShop's pages, actions and score, over a catalogue that is drawn from a seed.

    The kinds of products, their departments and attributes are those of WebShop's instructions; products, brands,
    options and prices are invented. So scores are not comparable with WebShop's. The rules are those of `Webshop`.

    Choices: every attribute of a product is on one of its pages, half of them in its title. About nine in ten other
    products of the same kind lack something that is asked for.
    """

    shop: int = 0
    """Which shop: each number is another catalogue."""
    num_products: Annotated[int, Field(ge=5, le=100_000)] = 200
    """Products in the shop."""
    num_kinds: Annotated[int, Field(ge=1, le=NUM_KINDS)] = NUM_KINDS
    """Kinds of products, from the first; fewer kinds, fewer words to learn."""
    show_chosen: bool = True
    """Whether a product's page says which options were chosen."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        settings = self.shop, self.num_products, self.num_kinds
        return choose_split(draw_task_sets(ENV, _propose, *settings, sizes=SIZES), split)

    def open(self, task: Task) -> ShopEnvironment:
        check_env(task, ENV)
        return ShopEnvironment(task, self, draw_catalogue(self.shop, self.num_products, self.num_kinds, self.search))

    def vocabulary(self) -> tuple[str, ...]:
        limits = " ".join(append_price_limit("", limit) for limit in LIMITS)
        stock = draw_catalogue(self.shop, self.num_products, self.num_kinds)
        kinds = [text for kind in _list_kinds(self.num_kinds) for text in (kind["query"], *_list_attributes(kind))]
        return collect_shop_vocabulary(
            self, stock, [*_read_stock()["openings"], "From our with for , and :", limits, *kinds]
        )


@lru_cache(maxsize=8)
def draw_catalogue(shop: int, num_products: int, num_kinds: int, search: Search = "bm25") -> Catalogue:
    kinds, products = _list_kinds(num_kinds), dict[str, Product]()
    index = 0
    while len(products) < num_products:
        draws = Draws(ENV, "product", shop, index)
        product = _make_product(draws, kinds[len(products) % len(kinds)])
        products.setdefault(product.asin, product)
        index += 1
    return Catalogue(list(products.values()), env=ENV, search=search)


def _make_product(draws: Draws, kind: Mapping[str, Any]) -> Product:
    own = draws.sample(_list_attributes(kind), min(len(_list_attributes(kind)), 3 + draws.below(3)))
    named, hidden = own[: len(own) // 2], own[len(own) // 2 :]
    options = {
        name: tuple(
            sorted(draws.sample(values, min(len(values), 2 + draws.below(MAX_OPTION_VALUES - 1))), key=values.index)
        )
        for name, values in kind["options"].items()
    }
    low, high = kind["prices"]
    price = low + draws.below(100 * (high - low)) / 100
    title = f"{draws.pick(_read_stock()['brands'])} {kind['noun']}, {', '.join(named)}"
    return Product(
        asin="B0" + "".join(draws.pick(ASIN) for _ in range(8)),
        title=title,
        query=str(kind["query"]),
        category=str(kind["category"]),
        product_category=str(kind["path"]),
        price=price,
        price_tag=f"${price:.2f}",
        attributes=tuple(own),
        options=options,
        description=f"From our {kind['query']}: {hidden[0]}.",
        features=tuple(f"{attribute}." for attribute in hidden),
        rating=f"{3 + draws.below(3)}.0",
    )


def _propose(shop: int, num_products: int, num_kinds: int, index: int) -> Proposal:
    stock = draw_catalogue(shop, num_products, num_kinds)
    draws = Draws(ENV, "goal", shop, num_products, num_kinds, index)
    product = draws.pick(stock.products)
    kind = next(kind for kind in _list_kinds(num_kinds) if kind["query"] == product.query)
    # The instruction is worded like WebShop's: find me ATTRIBUTES KIND with ATTRIBUTES for ATTRIBUTES.
    drawn = draws.sample(product.attributes, 1 + draws.below(min(3, len(product.attributes))))
    asked = tuple(attribute for attribute in _list_attributes(kind) if attribute in drawn)
    options = {name: draws.pick(values) for name, values in sorted(product.options.items())}
    # The wording and the limit depend on the wish only: otherwise a wish could be in two splits in different words.
    wish = Draws(ENV, "wish", product.asin, asked, tuple(options.values()))
    groups = {
        role: ", ".join(attribute for attribute in kind[role] if attribute in asked) for role in ("is", "with", "for")
    }
    parts = [
        wish.pick(_read_stock()["openings"]),
        groups["is"],
        product.query,
        f"with {groups['with']}" if groups["with"] else "",
        f"for {groups['for']}" if groups["for"] else "",
    ]
    chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
    limit = draw_price_limit(product.price, wish)
    goal = Goal(
        instruction=append_price_limit(f"{' '.join(part for part in parts if part)} with {chosen}", limit),
        asin=product.asin,
        attributes=asked,
        options=options,
        price_upper=limit,
    )
    return Proposal(payload=goal.payload() | {"catalogue": stock.digest}, tags=(product.category,))


def _list_attributes(kind: Mapping[str, Any]) -> list[str]:
    return [*kind["is"], *kind["with"], *kind["for"]]


def _list_kinds(count: int) -> list[Mapping[str, Any]]:
    return list(_read_stock()["kinds"][:count])


@cache
def _read_stock() -> dict[str, Any]:
    stock: dict[str, Any] = json.loads((files("groupwise.envs.small") / "storefront.json").read_text(encoding="utf-8"))
    return stock
