"""How a test says which page states the relation that it tests, and how that is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

METHODS = Path(__file__).parents[2] / "docs" / "methods"
Law = TypeVar("Law", bound=Callable[..., None])
Statements = list[tuple[str, str]]
"""Methods, and words of the relations that their pages state."""


def make_states(stated: Statements) -> Callable[[str, str], Callable[[Law], Law]]:
    """A decorator that writes down: the page of this method states the relation that is tested, in these words."""

    def states(method: str, words: str) -> Callable[[Law], Law]:
        stated.append((method, words))
        return lambda law: law

    return states


def name_statements(stated: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each, with its number."""
    return [f"{method} {number}" for number, (method, _) in enumerate(stated)]


def check_page(method: str, words: str) -> None:
    """The words stand among the relations of the method's page."""
    _, heading, relations = (METHODS / f"{method}.md").read_text(encoding="utf-8").partition("## Relations")
    assert heading, "docs/build_methods.py writes what stands in its RELATIONS"
    assert words in relations.partition("\n## ")[0]
