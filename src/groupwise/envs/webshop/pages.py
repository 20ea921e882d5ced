"""The pages of a shop: what each one shows, and where its buttons lead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from groupwise.envs.webshop.catalogue import Catalogue, Product

PAGE_SIZE = 10
"""Products on a page of results."""
SEPARATOR = " [SEP] "
"""What stands between the texts of a page, as in the published text mode."""
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
THANKS = "Thank you for shopping with us!"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Where a shopper is; frozen, so that a fork may share it."""

    query: str | None = None
    """What was searched for; None = the search page."""
    number: int = 1
    """Which page of the results, from 1."""
    asin: str = ""
    """The product that is looked at; empty = the results."""
    sub_page: str = ""
    """Which of the product's further pages; empty = its first."""
    chosen: tuple[tuple[str, str], ...] = ()
    """The options that were chosen, by name, in the order of their names."""
    is_bought: bool = False
    """Whether the product was bought."""

    def choose(self, name: str, value: str) -> Page:
        """The same page with an option chosen."""
        return replace(self, chosen=tuple(sorted({**dict(self.chosen), name: value}.items())))


def texts_of(page: Page, catalogue: Catalogue, *, show_chosen: bool) -> list[str]:
    """What a page shows, text by text."""
    if page.is_bought:
        return [THANKS]
    if page.query is None:
        return ["Search"]
    if not page.asin:
        return _describe_results(page, catalogue)
    product = catalogue.by_asin[page.asin]
    if page.sub_page:
        return [BACK, PREVIOUS, *_describe_sub_page(product, page.sub_page)]
    options = [text for name, values in product.options.items() for text in (name, *values)]
    about = (product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}")
    chosen = [f"Chosen: {', '.join(value for _, value in page.chosen)}"] if show_chosen and page.chosen else []
    return [BACK, PREVIOUS, *options, *about, *SUB_PAGES, BUY, *chosen]


def buttons_of(page: Page, catalogue: Catalogue) -> Mapping[str, Page]:
    """Where each button of a page leads, by its text in lower case.

    Where two options have a value in common, a click chooses the later one, as in the published environment.
    """
    if page.query is None or page.is_bought:
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
    """The situation as text: what is looked at and what was chosen, however the shopper came there."""
    chosen = "".join(f"; {name}: {value}" for name, value in page.chosen)
    if page.asin:
        where = "bought" if page.is_bought else page.sub_page.lower() or "item"
        return f"{where} {page.asin}{chosen}"
    if page.query is None:
        return "search"
    return " ".join(("results", str(page.number), *(product.asin for product in _list_products(page, catalogue))))


def _describe_results(page: Page, catalogue: Catalogue) -> list[str]:
    total = len(catalogue.search(page.query or ""))
    moves = [PREVIOUS] * (page.number > 1) + [NEXT] * (page.number * PAGE_SIZE < total)
    entries = [
        text for product in _list_products(page, catalogue) for text in (product.asin, product.title, product.price_tag)
    ]
    return [BACK, f"Page {page.number} (Total results: {total})", *moves, *entries]


def _list_products(page: Page, catalogue: Catalogue) -> tuple[Product, ...]:
    return catalogue.search(page.query or "")[(page.number - 1) * PAGE_SIZE : page.number * PAGE_SIZE]


def _describe_sub_page(product: Product, name: str) -> tuple[str, ...]:
    texts = {"Description": (product.description,), "Features": product.features, "Reviews": product.reviews}[name]
    return tuple(text for text in texts if text) or (f"No {name}",)
