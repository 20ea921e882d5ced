"""A shop's catalogue: its products, the search over them, and the goals that shoppers are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from json import dumps
from typing import Any

from groupwise.core.errors import RecordError
from groupwise.core.records import Task
from groupwise.envs.kit.bm25 import Bm25

MAX_RESULTS = 50
"""How many products a search finds at most."""
MAX_REMEMBERED_SEARCHES = 4096
"""How many searches a catalogue remembers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Something that can be bought.

    Worked example: asin "B07DJJXGB5", title "Acme tea tree scrub", attributes ("tea tree",), options {"size":
    ("4 ounce", "8 ounce")}, price 12.5, price_tag "$12.5".
    """

    asin: str
    """Its name in the shop, ten letters and digits."""
    title: str
    """What it is called."""
    query: str
    """The search under which the publisher found it: its kind."""
    category: str
    """The department of the shop."""
    product_category: str
    """Its place in the shop, from the department down, with a single right-pointing quotation mark between."""
    price: float
    """What it costs."""
    price_tag: str
    """The price as pages show it; a range where it depends on the options."""
    attributes: tuple[str, ...]
    """What it is, in two words each; a page does not list them."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What can be chosen, by name: colour, size."""
    description: str = ""
    """The text of its description page."""
    features: tuple[str, ...] = ()
    """The lines of its features page."""
    rating: str = "N.A."
    """Its average rating."""
    reviews: tuple[str, ...] = ()
    """The lines of its reviews page."""

    @property
    def search_text(self) -> str:
        """The text that a search looks at."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.title, self.description, *self.features[:1], options)).lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What a shopper is asked to buy."""

    instruction: str
    """The task in words, with the price limit."""
    asin: str
    """The product that it was written for; another one that has all that is asked for is as good."""
    attributes: tuple[str, ...]
    """What the product must be."""
    options: Mapping[str, str]
    """What must be chosen, by the option's name."""
    price_upper: float
    """What it may cost."""
    is_paired: bool = True
    """Whether the published score sees its options as pairs of name and value: so in goals made from products, but not
    in those that people wrote."""

    @classmethod
    def of(cls, task: Task) -> Goal:
        """The goal of a task."""
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
        """The goal as a task carries it."""
        return asdict(self) | {"attributes": list(self.attributes), "options": dict(self.options)}


class Catalogue:
    """The products of a shop, and the search over them."""

    def __init__(self, products: Sequence[Product], *, env: str) -> None:
        self.products = tuple(products)
        """What is sold, in the shop's order."""
        self.by_asin = {product.asin: product for product in self.products}
        """The same, by name."""
        self._env = env
        self._searches: dict[str, tuple[Product, ...]] = {}

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all there is in the shop: a task belongs to the shop that it was made for."""
        digest = sha256()
        for product in self.products:  # one by one: the publisher's whole catalogue is gigabytes of text
            digest.update(dumps(asdict(product), sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def search(self, query: str) -> tuple[Product, ...]:
        """The products that fit a query best; remembered, because the attempts of a group search for the same."""
        if query not in self._searches:
            if len(self._searches) >= MAX_REMEMBERED_SEARCHES:
                self._searches.clear()
            self._searches[query] = tuple(self.products[number] for number in self._index.search(query, MAX_RESULTS))
        return self._searches[query]

    def check(self, task: Task) -> None:
        """Raise if a task was made for another shop."""
        made_for = task.payload.get("catalogue")
        if made_for != self.digest:
            raise RecordError(
                f"task {task.id} was made for the catalogue {made_for}, but this one is {self.digest}; "
                "open it with the products, and the fields, that its panel was made with"
            )

    @cached_property
    def _index(self) -> Bm25:
        return Bm25([product.search_text for product in self.products], needed_by=self._env, extra="webshop")
