"""A shop of four products, and WebShop's files as the publisher writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise import Task
from groupwise.envs.webshop.catalogue import Catalogue, Goal, Product
from groupwise.envs.webshop.search import Search

SCRUB = Product(
    asin="B000SCRUB1",
    title="Acme body scrub with tea tree",
    query="scrubs",
    category="beauty",
    product_category="Beauty \u203a Skin Care \u203a Scrubs",
    price=12.5,
    price_tag="$12.5",
    attributes=("tea tree", "oil free"),
    options={"scent": ("mint", "titanium"), "size": ("family jar", "8 ounce")},
    description="For dead skin.",
    features=("Oil free.", "Cruelty free."),
    reviews=("It works.",),
)
SCRUB_2 = Product(
    asin="B000SCRUB2",
    title="Bolt body scrub",
    query="scrubs",
    category="beauty",
    product_category="Beauty \u203a Skin Care \u203a Scrubs",
    price=30.0,
    price_tag="$30.0",
    attributes=("paraben free",),
    options={"scent": ("mint",)},
)
LAMP = Product(
    asin="B000000LMP",
    title="Corda floor lamp",
    query="floor lamps",
    category="garden",
    product_category="Home \u203a Lighting \u203a Lamps",
    price=60.0,
    price_tag="$50.0 to $70.0",
    attributes=("easy assemble",),
)
SOAP = Product(
    asin="B000000SOP",
    title="Dune bar soap",
    query="soap",
    category="beauty",
    product_category="Beauty \u203a Skin Care \u203a Soap",
    price=5.0,
    price_tag="$5.0",
    attributes=("tea tree",),
)
GOAL = Goal(
    instruction="Find me oil free scrubs with tea tree with scent: mint, and size: 8 ounce, and price lower than 20.00 "
    "dollars",
    asin=SCRUB.asin,
    attributes=("oil free", "tea tree"),
    options={"scent": "mint", "size": "8 ounce"},
    price_upper=20.0,
)


def shop(search: Search = "bm25") -> Catalogue:
    return Catalogue([SCRUB, SCRUB_2, LAMP, SOAP], env="webshop", search=search)


def task(goal: Goal = GOAL, catalogue: Catalogue | None = None, *, env: str = "webshop") -> Task:
    return Task.create(env=env, payload=goal.payload() | {"catalogue": (catalogue or shop()).digest})


def item(product: Product, **changed: Any) -> dict[str, Any]:
    """A product as items_shuffle.json has it."""
    return {
        "asin": product.asin,
        "name": product.title,
        "query": product.query,
        "category": product.category,
        "product_category": product.product_category,
        "pricing": f"${product.price}",
        "small_description": list(product.features),
        "full_description": product.description,
        "customization_options": {
            name.title(): [{"value": value, "image": None} for value in values]
            for name, values in product.options.items()
        },
    } | changed


def publish(
    folder: Path,
    items: list[dict[str, Any]],
    descriptions: dict[str, Any],
    *,
    human: dict[str, Any] | None = None,
    size: str = "_1000",
) -> Path:
    """Write the publisher's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"items_shuffle{size}.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / f"items_ins_v2{size}.json").write_text(json.dumps(descriptions), encoding="utf-8")
    if human is not None:
        (folder / "items_human_ins.json").write_text(json.dumps(human), encoding="utf-8")
    return folder


def describe_item(product: Product) -> dict[str, Any]:
    """A product as items_ins_v2.json has it, with an instruction."""
    asked = list(product.attributes[:2])
    return {
        "attributes": list(product.attributes),
        "instruction": f"Find me {', '.join(asked)} {product.query}",
        "instruction_attributes": asked,
    }
