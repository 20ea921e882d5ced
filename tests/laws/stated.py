"""How a test says which page states the relation that it tests, and how that is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

METHODS = Path(__file__).parents[2] / "docs" / "methods"
Law = TypeVar("Law", bound=Callable[..., None])
Statements = list[tuple[str, str]]
"""Recipes, and words of the relations that their pages state."""


def make_states(stated: Statements) -> Callable[[str, str], Callable[[Law], Law]]:
    """A decorator that writes down: the page of this recipe states the relation that is tested, in these words."""

    def states(recipe: str, words: str) -> Callable[[Law], Law]:
        stated.append((recipe, words))
        return lambda law: law

    return states


def name_statements(stated: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each, with its number."""
    return [f"{recipe} {number}" for number, (recipe, _) in enumerate(stated)]


def check_page(recipe: str, words: str) -> None:
    """The words stand among the relations of the recipe's page."""
    _, heading, relations = (METHODS / f"{recipe}.md").read_text(encoding="utf-8").partition("## Relations")
    assert heading, "docs/build_methods.py writes what stands in its RELATIONS"
    assert words in relations.partition("\n## ")[0]
