"""A shop's catalogue: its products, the search over them, and the goals that shoppers are given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import product as combinations
from pathlib import Path
from random import Random
from typing import Any

from groupwise.data.records import Task
from groupwise.envs.kit.draws import Draws
from groupwise.envs.webshop.search import Index, Search, make_index
from groupwise.system.errors import ConfigError, FileError, RecordError

MAX_RESULTS = 50
"""Products that a search finds at most."""
MAX_REMEMBERED_SEARCHES = 4096
"""Searches that a catalogue caches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Something that can be bought.

    Worked example: asin "B07DJJXGB5", title "Acme tea tree scrub", attributes ("tea tree",), options {"size":
    ("4 ounce", "8 ounce")}, price 12.5, price_tag "$12.5".
    """

    asin: str
    """Its name in the shop, ten letters and digits."""
    title: str
    query: str
    """The publisher's search that found it: its kind."""
    category: str
    product_category: str
    """Its place in the shop, from the department down, with a single right-pointing quotation mark between."""
    price: float
    price_tag: str
    """The price on pages; a range if it depends on the options."""
    attributes: tuple[str, ...]
    """What it is, in two words each; a page does not list them."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    description: str = ""
    features: tuple[str, ...] = ()
    rating: str = "N.A."
    reviews: tuple[str, ...] = ()

    @property
    def search_text(self) -> str:
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.title, self.description, *self.features[:1], options)).lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What a shopper is asked to buy."""

    instruction: str
    """The task in words, with the price limit."""
    asin: str
    """The product that it was written for; another product with all wanted properties is as good."""
    attributes: tuple[str, ...]
    """What the product must be."""
    options: Mapping[str, str]
    """What must be chosen, by the option's name."""
    price_upper: float
    is_paired: bool = True
    """Whether the published score has its options as pairs of name and value: True for goals made from products, False
    for those that people wrote."""

    @classmethod
    def of(cls, task: Task) -> Goal:
        payload = task.payload
        return cls(
            instruction=str(payload["instruction"]),
            asin=str(payload["asin"]),
            attributes=tuple(payload["attributes"]),
            options=dict(payload["options"]),
            price_upper=float(payload["price_upper"]),
            is_paired=bool(payload["is_paired"]),
        )

    def payload(self) -> dict[str, Any]:
        return asdict(self) | {"attributes": list(self.attributes), "options": dict(self.options)}


class Catalogue:
    """The products of a shop, and the search over them."""

    def __init__(self, products: Sequence[Product], *, env: str, search: Search = "bm25") -> None:
        self.products = tuple(products)
        """In the shop's order."""
        self.by_asin = {product.asin: product for product in self.products}
        self._env, self._search = env, search
        self._searches: dict[str, tuple[Product, ...]] = {}

    @cached_property
    def digest(self) -> str:
        """Digest of all products: a task belongs to the shop that it was made for."""
        digest = sha256()
        for product in self.products:  # one by one: the publisher's whole catalogue is gigabytes of text
            digest.update(json.dumps(asdict(product), sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def search(self, query: str) -> tuple[Product, ...]:
        """The best products for a query; cached, because the rollouts of a group repeat searches."""
        if query not in self._searches:
            if len(self._searches) >= MAX_REMEMBERED_SEARCHES:
                self._searches.clear()
            self._searches[query] = tuple(self.products[number] for number in self._index.search(query, MAX_RESULTS))
        return self._searches[query]

    def check(self, task: Task) -> None:
        made_for = task.payload.get("catalogue")
        if made_for != self.digest:
            raise RecordError(
                f"task {task.id} was made for the catalogue {made_for}, but this one is {self.digest}; "
                "open it with the products and fields of its task set"
            )

    @cached_property
    def _index(self) -> Index:
        texts = {asin: product.search_text for asin, product in self.by_asin.items()}
        return make_index(self._search, texts, env=self._env)


# The publisher's files of WebShop: products, attributes and goals, as princeton-nlp/WebShop hands them out.

LIMITS = tuple(10.0 * step for step in range(1, 100))
"""The price limits that goals may have."""
NO_LIMIT = 1_000_000.0
LIMIT_TEXT = ", and price lower than "
PRICE_UNKNOWN = 100.0
SHUFFLE_SEED = 233
"""The published environment shuffles its goals with it; the order decides the split."""
FILES = {
    "1000": ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
    "all": ("items_shuffle.json", "items_ins_v2.json"),
}
"""Products, and their attributes with the goals made from them, by the size of the catalogue."""
HUMAN = "items_human_ins.json"
"""The goals that people wrote."""
REVIEWS = "reviews.json"


def read_products(folder: Path, size: str) -> list[Product]:
    """The products of a catalogue, with reviews if that file exists."""
    items, described = (_read_file(folder, name, kind) for name, kind in zip(FILES[size], (list, dict), strict=True))
    reviews = {}
    if (folder / REVIEWS).is_file():
        reviews = {review.get("asin"): review for review in _read_file(folder, REVIEWS, list)}
    products: dict[str, Product] = {}
    for number, item in enumerate(items):
        if not isinstance(item, Mapping) or "asin" not in item:
            raise FileError(f"{folder / FILES[size][0]}: product {number} has no 'asin'; download the file again")
        asin = str(item["asin"])
        if asin == "nan" or len(asin) > 10 or asin in products:
            continue  # as the published loader does
        attributes = described.get(asin, {}).get("attributes") or ()
        try:
            products[asin] = _make_product(asin, item, tuple(attributes), reviews.get(asin, {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(
                f"{folder / FILES[size][0]}: product {number} ({asin}) does not have the publisher's format "
                f"({type(error).__name__}: {error}); download the file again"
            ) from None
    return list(products.values())


def read_goals(folder: Path, size: str, products: list[Product], *, human: bool) -> list[Goal]:
    """The goals in the order of the published environment, whose places decide the split."""
    descriptions = _read_file(folder, HUMAN if human else FILES[size][1], dict)
    make_goals = _make_human_goals if human else _make_synthetic_goals
    goals = [
        goal
        for product in products
        if product.asin in descriptions
        for goal in make_goals(product, descriptions[product.asin])
    ]
    Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def _make_synthetic_goals(product: Product, description: Mapping[str, Any]) -> Iterator[Goal]:
    """A goal for each combination of the product's options."""
    if not description.get("instruction"):
        return
    names = sorted(product.options)
    for number, values in enumerate(combinations(*(product.options[name] for name in names))):
        chosen = dict(zip(names, values, strict=True))
        options = ", and ".join(f"{name}: {value}" for name, value in chosen.items())
        asked = f"{description['instruction']} with {options}" if options else str(description["instruction"])
        yield _make_goal(product, asked, tuple(description["instruction_attributes"]), chosen, number, is_paired=True)


def _make_human_goals(product: Product, descriptions: list[Mapping[str, Any]]) -> Iterator[Goal]:
    for number, description in enumerate(descriptions):
        if description["instruction_attributes"]:
            options = description["instruction_options"]
            values = list(options.values()) if isinstance(options, Mapping) else list(options)
            # People's goals list values alone: each belongs to the option that has it.
            chosen = {
                next((name for name, own in product.options.items() if value in own), f"option {place}"): value
                for place, value in enumerate(str(value).lower() for value in values)
            }
            asked = str(description["instruction"]).strip(".")
            yield _make_goal(
                product, asked, tuple(description["instruction_attributes"]), chosen, number, is_paired=False
            )


def _make_goal(
    product: Product,
    asked: str,
    attributes: tuple[str, ...],
    chosen: Mapping[str, str],
    number: int,
    *,
    is_paired: bool,
) -> Goal:
    limit = draw_price_limit(product.price, Draws("webshop", "limit", product.asin, number))
    return Goal(
        instruction=append_price_limit(asked, limit),
        asin=product.asin,
        attributes=attributes,
        options=chosen,
        price_upper=limit,
        is_paired=is_paired,
    )


def draw_price_limit(price: float, draws: Draws) -> float:
    """The larger of two of the next four limits above a price, as published; no limit if it is too expensive."""
    above = [limit for limit in LIMITS if limit > price][:4]
    return max(draws.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def append_price_limit(asked: str, limit: float) -> str:
    return asked if limit == NO_LIMIT else f"{asked}{LIMIT_TEXT}{limit:.2f} dollars"


def _make_product(
    asin: str, item: Mapping[str, Any], attributes: tuple[str, ...], review: Mapping[str, Any]
) -> Product:
    lines = item["small_description"]
    price, tag = _read_price(asin, item.get("pricing"))
    return Product(
        asin=asin,
        title=str(item["name"]),
        query=str(item["query"]).lower().strip(),
        category=str(item["category"]),
        product_category=str(item["product_category"]),
        price=price,
        price_tag=tag,
        attributes=attributes,
        options={
            name.lower(): tuple(str(option["value"]).strip().replace("/", " | ").lower() for option in values)
            for name, values in (item["customization_options"] or {}).items()
            if values
        },
        description=str(item["full_description"] or ""),
        features=tuple(str(line) for line in (lines if isinstance(lines, list) else [lines]) if line),
        rating=str(review.get("average_rating", "N.A.")),
        reviews=tuple(str(entry.get("review") or entry.get("title") or "") for entry in review.get("reviews", ())),
    )


def _read_price(asin: str, pricing: str | None) -> tuple[float, str]:
    """A product's price and its tag; of a range, one price that depends only on the product."""
    amounts = [float(re.sub(r"[^\d.]", "", amount)) for amount in (pricing or "").split("$")[1:]]
    if not amounts:
        return PRICE_UNKNOWN, f"${PRICE_UNKNOWN}"
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    low, high = amounts[:2]
    share = Draws("webshop", "price", asin).below(10_001) / 10_000
    return low + share * (high - low), f"${low} to ${high}"


def _read_file(folder: Path, name: str, kind: type) -> Any:
    if not folder.is_dir():
        raise ConfigError(
            f"webshop: there is no folder {str(folder)!r}; set `path` to the folder of WebShop's data, which its "
            "setup.sh downloads"
        )
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"webshop: {str(folder)!r} has no {name}; download it with WebShop's setup.sh")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not JSON ({error}); download the file again") from None
    if not isinstance(content, kind):
        wanted = "a list" if kind is list else "an object"
        raise FileError(f"{path}: found a {type(content).__name__}, not {wanted}; download the file again")
    return content
