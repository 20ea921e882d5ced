"""The published score of a purchase in WebShop (Yao et al. 2022, arXiv:2207.01206, section 3.1).

score = type * (attributes found + options found + price kept) / (attributes asked + options asked + 1)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from groupwise.envs.kit.words import split_words
from groupwise.envs.webshop.catalogue import Goal, Product
from groupwise.system.errors import ConfigError

ALIKE_RATIO = 85
"""Two phrases mean the same if their token set ratio is above this percentage."""
COLOURS = tuple(
    split_words(
        """
    alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
    caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
    dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
    ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
    mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
    sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
    wheat white wine yellow
    """
    )
)
"""The colours of the published score, in its order: the first one in an option represents it."""
LATIN_1 = dict.fromkeys(range(128, 256))
"""Letters that the published matcher drops."""
NOT_NOUNS = frozenset(
    split_words(
        """
    a an and are as at by for from in into is it its of on or per that the this to up with without your all best easy
    free good great high long low new non old small large big short super very men mens women womens kids
    """
    )
)
"""Words of a title that are not nouns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PurchaseScore:
    """A purchase, part by part."""

    type: float
    """Whether it is the wanted kind of product: 1, 0.5, 0.1 or 0."""
    attributes: int
    """Wanted attributes that it has."""
    options: int
    """Wanted options that were chosen."""
    price: bool
    asked: int
    """Number of wanted attributes and options, plus one for the price."""

    @property
    def total(self) -> float:
        return self.type * (self.attributes + self.options + self.price) / self.asked


def score_purchase(
    bought: Product, chosen: Mapping[str, str], goal: Goal, wanted: Product, *, reference: bool, tagger: str
) -> PurchaseScore:
    """The score of a purchase; `wanted` is the product that the goal was written for.

    `reference` compares options like the published code. `tagger` names the spaCy model that finds the nouns of titles;
    if it is empty, all words that are not in a short list are nouns.
    """
    # A wanted option counts if the same words, or the same colour, were chosen.
    options = sum(
        any(value == wanted_value or are_alike(colour_of(value), colour_of(wanted_value)) for value in chosen.values())
        for wanted_value in goal.options.values()
    )
    texts = [text.lower() for text in (bought.title, " ".join(bought.features), bought.description)]
    return PurchaseScore(
        type=score_type(bought, wanted, tagger=tagger),
        attributes=sum(
            any(are_alike(own, attribute) for own in bought.attributes) or any(attribute in text for text in texts)
            for attribute in goal.attributes
        ),
        options=_count_options_as_published(chosen, goal.options) if reference and goal.is_paired else options,
        price=bought.price <= goal.price_upper,
        asked=len(goal.attributes) + len(goal.options) + 1,
    )


def score_type(bought: Product, wanted: Product, *, tagger: str = "") -> float:
    """Whether two products are of a kind: by the nouns that their titles share, their query and their categories."""
    nouns, asked = _find_nouns(bought.title, tagger), _find_nouns(wanted.title, tagger)
    shared = len(set(nouns) & set(asked)) / len(asked) if asked else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    levels, levels_asked = (
        {level.strip() for level in product.product_category.split("\u203a")} for product in (bought, wanted)
    )
    return 1.0 if shared > 0.2 or bought.query == wanted.query or len(levels & levels_asked) >= 2 else 0.5


def are_alike(phrase: str, other: str) -> bool:
    """Whether two phrases mean the same: the words of one are (nearly) all in the other."""
    return round(_load_ratio()(phrase.translate(LATIN_1), other.translate(LATIN_1))) > ALIKE_RATIO


def colour_of(option: str) -> str:
    """The first colour word in an option, in the order of the list; the option itself if it has none.

    >>> colour_of("dark navy blue"), colour_of("titanium"), colour_of("8 ounce")
    ('blue', 'tan', '8 ounce')
    """
    return next((colour for colour in COLOURS if colour in option), option)


def _count_options_as_published(chosen: Mapping[str, str], asked: Mapping[str, str]) -> int:
    """As in the published code: a chosen option is reduced to its colour, a wanted one is not.

    So a word that contains a colour by chance does not match itself: "titanium" becomes "tan". A wanted option is a
    pair of name and value there, so its colour is found only if it is the whole value.
    """
    wanted = [value if value in COLOURS else f"{name} {value}" for name, value in asked.items()]
    return sum(any(are_alike(colour_of(value), option) for value in chosen.values()) for option in wanted)


@lru_cache(4096)
def _find_nouns(title: str, tagger: str) -> tuple[str, ...]:
    if tagger:
        return tuple(token.text.lower() for token in _load_spacy(tagger)(title) if token.pos_ in ("NOUN", "PROPN"))
    return tuple(word for word in re.findall(r"[a-z]{2,}", title.lower()) if word not in NOT_NOUNS)


@cache
def _load_ratio() -> Callable[[str, str], float]:
    try:
        from rapidfuzz import fuzz, utils
    except ImportError:
        raise ConfigError(
            "the score of a purchase needs a package that is not installed; pip install 'groupwise[webshop]'"
        ) from None
    return partial(fuzz.token_set_ratio, processor=utils.default_process)


@cache
def _load_spacy(model: str) -> Any:
    try:
        import spacy
    except ImportError:
        raise ConfigError(f"tagger {model!r} needs the package spacy; pip install spacy, or remove tagger") from None
    try:
        return spacy.load(model)
    except OSError:
        raise ConfigError(
            f"tagger {model!r}: this spaCy model is not installed; python -m spacy download {model}, or remove tagger"
        ) from None
