"""The publisher's files of WebShop: products, attributes and goals, as princeton-nlp/WebShop hands them out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import product as combinations
from pathlib import Path
from random import Random
from typing import Any

from groupwise.core.errors import ConfigError, FileError
from groupwise.envs.kit.keyed_draws import Draws
from groupwise.envs.webshop.catalogue import Goal, Product

LIMITS = tuple(10.0 * step for step in range(1, 100))
"""The price limits that goals may have."""
NO_LIMIT = 1_000_000.0
LIMIT_TEXT = ", and price lower than "
PRICE_UNKNOWN = 100.0
SHUFFLE_SEED = 233
"""With which the published environment shuffles its goals; the split goes by the place in that order."""
FILES = {
    "1000": ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
    "all": ("items_shuffle.json", "items_ins_v2.json"),
}
"""Products, and their attributes with the goals made from them, by the size of the catalogue."""
HUMAN = "items_human_ins.json"
"""The goals that people wrote."""
REVIEWS = "reviews.json"


def read_products(folder: Path, size: str) -> list[Product]:
    """The products of a catalogue; reviews are read where they are there."""
    items, described = (_read_file(folder, name, kind) for name, kind in zip(FILES[size], (list, dict), strict=True))
    reviews = {}
    if (folder / REVIEWS).is_file():
        reviews = {review.get("asin"): review for review in _read_file(folder, REVIEWS, list)}
    products: dict[str, Product] = {}
    for number, item in enumerate(items):
        asin = str(_read_field(folder / FILES[size][0], number, item, "asin"))
        if asin == "nan" or len(asin) > 10 or asin in products:
            continue  # as the published loader does
        attributes = described.get(asin, {}).get("attributes") or ()
        try:
            products[asin] = _make_product(asin, item, tuple(attributes), reviews.get(asin, {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(
                f"{folder / FILES[size][0]}: product {number} ({asin}) is not as the publisher writes them "
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
            chosen = {_option_of(product, str(value), place): str(value).lower() for place, value in enumerate(values)}
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
    """The larger of two of the next four limits above a price, as published; none for what is too dear."""
    above = [limit for limit in LIMITS if limit > price][:4]
    return max(draws.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def append_price_limit(asked: str, limit: float) -> str:
    """An instruction with its price limit, as published."""
    return asked if limit == NO_LIMIT else f"{asked}{LIMIT_TEXT}{limit:.2f} dollars"


def _option_of(product: Product, value: str, place: int) -> str:
    """The option that has a value; people's goals list values alone."""
    return next((name for name, values in product.options.items() if value.lower() in values), f"option {place}")


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
    """What a product costs, and the tag that says it; of a range, one price that belongs to the product."""
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
            f"webshop: there is no folder {str(folder)!r}; give in `path` the folder of WebShop's data, which its "
            "setup.sh downloads"
        )
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"webshop: {str(folder)!r} has no {name}; download it with WebShop's setup.sh")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: this is not JSON ({error}); download the file again") from None
    if not isinstance(content, kind):
        wanted = "a list" if kind is list else "an object"
        raise FileError(f"{path}: found a {type(content).__name__}, not {wanted}; download the file again")
    return content


def _read_field(path: Path, number: int, item: Any, name: str) -> Any:
    if not isinstance(item, Mapping) or name not in item:
        raise FileError(f"{path}: product {number} has no {name!r}; download the file again")
    return item[name]
