"""Looking recipes up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupwise import recipes
from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError, nearest
from groupwise.recipes.recipe import RecipeSummary, summarise


def names() -> list[str]:
    """Names of all recipes, simplest first."""
    return list(recipes.RECIPES)


def build(name: str, /, **options: Any) -> Algorithm:
    """Make the algorithm that a recipe describes: `build("hgpo", depth=4)` is `hgpo(depth=4)`."""
    return _find(name)(**options)


def summary(name: str) -> RecipeSummary:
    """What a recipe is: its sentence, citation, options and docstring."""
    return summarise(name, _find(name))


def _find(name: str) -> Callable[..., Algorithm]:
    if name not in recipes.RECIPES:
        raise ConfigError(
            f"there is no recipe {name!r}; {nearest(name, recipes.RECIPES, listed_by='`groupwise recipes`')}"
        )
    return recipes.RECIPES[name]
