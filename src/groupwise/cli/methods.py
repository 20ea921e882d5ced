"""What a run's algorithm is called: the recipe that it is, or the one it comes nearest to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from groupwise import ConfigError, recipes
from groupwise.reports.run.differences import flat_settings
from groupwise.reports.run.run_folder import RunFolder

MOST_SETTINGS = 3
"""How many settings are named; more are counted."""
LARGEST_OPTION = 8
"""Whole numbers up to this are tried for a recipe's option."""


def method_name(folder: RunFolder) -> tuple[str, str]:
    """The recipe whose settings are the run's, or else the nearest; and what is different from it, in a few words."""
    section = folder.settings.get("algorithm")
    if not isinstance(section, dict):
        return "a run", ""
    if "recipe" in section:
        return str(section["recipe"]), ""
    own = flat_settings(section)
    gaps = {name: _differing(own, name, {}) for name in recipes.names()}
    nearest = min(gaps, key=lambda name: len(gaps[name]))
    # An option may add or drop whole parts, such as the levels of a hierarchy: name the option then, not the parts.
    tried = [(options, _differing(own, nearest, options)) for options in _options(nearest)]
    options, differing = min(tried, key=lambda each: len(each[1]))
    # One option may stand in several parts: name it once.
    named = {f"{key} {value}": None for key, value in options.items()}
    named |= {f"{path.rpartition('.')[2]} {own.get(path)}": None for path in differing}
    return nearest, ", ".join(named) if len(named) <= MOST_SETTINGS else f"{len(differing)} settings of its own"


def _options(name: str) -> Iterator[dict[str, Any]]:
    """A recipe's defaults, and every allowed change of one option that is a whole number or a yes or no."""
    yield {}
    for key, default in recipes.summary(name).options.items():
        numbers = range(LARGEST_OPTION + 1) if isinstance(default, int) else ()
        for value in (not default,) if isinstance(default, bool) else numbers:
            with suppress(ConfigError):
                recipes.build(name, **{key: value})
                yield {key: value}


def _differing(own: dict[str, Any], name: str, options: dict[str, Any]) -> list[str]:
    recipe = flat_settings(recipes.build(name, **options).config())
    return [path for path in {**own, **recipe} if own.get(path) != recipe.get(path)]
