"""How a law says on which page the relation stands that it tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

METHODS = Path(__file__).parents[2] / "docs" / "methods"
Law = TypeVar("Law", bound=Callable[..., None])


class StatedRelations:
    """The relations that a file of laws tests: the recipe on whose page each stands, and words of it."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, str]] = []

    def states(self, recipe: str, words: str) -> Callable[[Law], Law]:
        """The page of this recipe states the relation that is tested, in these words."""
        self.pages.append((recipe, words))
        return lambda law: law

    def ids(self) -> list[str]:
        """A name for each, for pytest."""
        return [f"{recipe} {number}" for number, (recipe, _) in enumerate(self.pages)]


def check_page(recipe: str, words: str) -> None:
    """The relations of the recipe's page hold these words."""
    _, heading, relations = (METHODS / f"{recipe}.md").read_text(encoding="utf-8").partition("## Relations")
    assert heading, "docs/build_methods.py writes what stands in its RELATIONS"
    assert words in relations.partition("\n## ")[0]
