"""The things that lists are made of, and what they are like; a thing fits a wish as far as it has its properties."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = ("red", "green", "yellow", "white", "black")
SORTS = ("food", "animal", "thing")
SIZES = ("small", "large")
"""What a hand can hold is small."""
PROPERTIES = (COLOURS, SORTS, SIZES)
"""A wish names one of each."""

THINGS: dict[str, tuple[str, str, str]] = {
    "cherry": ("red", "food", "small"),
    "strawberry": ("red", "food", "small"),
    "tomato": ("red", "food", "small"),
    "ladybird": ("red", "animal", "small"),
    "ruby": ("red", "thing", "small"),
    "brick": ("red", "thing", "small"),
    "fire engine": ("red", "thing", "large"),
    "pea": ("green", "food", "small"),
    "lime": ("green", "food", "small"),
    "cabbage": ("green", "food", "large"),
    "watermelon": ("green", "food", "large"),
    "frog": ("green", "animal", "small"),
    "grasshopper": ("green", "animal", "small"),
    "crocodile": ("green", "animal", "large"),
    "emerald": ("green", "thing", "small"),
    "christmas tree": ("green", "thing", "large"),
    "lemon": ("yellow", "food", "small"),
    "banana": ("yellow", "food", "small"),
    "chick": ("yellow", "animal", "small"),
    "canary": ("yellow", "animal", "small"),
    "lion": ("yellow", "animal", "large"),
    "gold coin": ("yellow", "thing", "small"),
    "school bus": ("yellow", "thing", "large"),
    "egg": ("white", "food", "small"),
    "garlic": ("white", "food", "small"),
    "cauliflower": ("white", "food", "large"),
    "swan": ("white", "animal", "large"),
    "polar bear": ("white", "animal", "large"),
    "pearl": ("white", "thing", "small"),
    "snowman": ("white", "thing", "large"),
    "olive": ("black", "food", "small"),
    "ant": ("black", "animal", "small"),
    "panther": ("black", "animal", "large"),
    "coal": ("black", "thing", "small"),
    "piano": ("black", "thing", "large"),
}
"""Colour, sort and size of each thing, by its name in lower case."""


def judge_relevance(thing: str, wanted: Sequence[str]) -> int:
    """How many of the wanted properties a thing has: 0 to 3.

    >>> judge_relevance("frog", ("green", "food", "small"))
    2
    """
    return sum(has == wants for has, wants in zip(THINGS[thing], wanted, strict=True))
