"""What a run's algorithm is called: the recipe that it is, or its own parts.

A recipe gives a run its name where the credit is put together as the recipe's is, part for part, and the loss is of the
same kind; settings that differ are then named. What is put together in another way is nobody's published method: it is
called by its own parts, and one from another package by its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, get_args, get_origin, get_type_hints

from groupwise import ConfigError, recipes
from groupwise.core.parts.setting_paths import flatten_settings
from groupwise.reports.run.differences import find_setting_differences
from groupwise.reports.run.run_folder import RunFolder

MAX_SETTINGS = 3
"""How many settings are named; more are counted."""
MAX_OPTION = 8
"""Whole numbers up to this are tried for a recipe's option."""
MAX_CHANGED = 2
"""How many options that change parts are tried together."""
PART_DISTANCE = 3
"""How many settings a part of another kind counts for."""
MAX_NAME = 80
"""Characters of a name that is made of parts."""
OWN = "a method of its own"


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A recipe with options, whose credit is made of the same parts as the run's."""

    recipe: str
    """Its name."""
    changes: tuple[str, ...]
    """What the run has otherwise than the recipe by default: options first, then settings, each named once."""
    distance: int
    """How far the run is from the recipe: a setting or an option counts 1, a part that was replaced more."""


def find_method_name(folder: RunFolder) -> tuple[str, str]:
    """What the run's algorithm is called, and what there is to add in a few words."""
    section = folder.settings.get("algorithm")
    if not isinstance(section, dict):
        return "a run", ""
    if "recipe" in section:
        changes = [f"{path} {value}" for path, value in flatten_settings(section).items() if path != "recipe"]
        return str(section["recipe"]), _shorten(changes)
    nearest = _find_nearest(section)
    if nearest is not None:
        return nearest.recipe, _shorten(nearest.changes)
    return _name_by_parts(section), OWN


def describe_method(folder: RunFolder) -> str:
    """What a run's algorithm is called, with what there is to add."""
    name, own = find_method_name(folder)
    return f"{name} ({own})" if own else name


def _name_by_parts(section: Mapping[str, Any]) -> str:
    """What is nobody's published method, by its parts; a loss is named where it comes from elsewhere."""
    loss = str(_find_loss_kind(section))
    name = describe_parts(section.get("advantage")) or "credit"
    name = f"{name} with {loss.rpartition(':')[2]}" if ":" in loss else name
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def describe_parts(part: object) -> str:
    """A part in words, with those that it compares by, is made of or adds up; without the module of one from elsewhere.

    >>> describe_parts({"kind": "relative", "by": {"kind": "by_task"}, "of": {"kind": "mine.signals:Surprise"}})
    'relative by_task of Surprise'
    """
    if not isinstance(part, Mapping):
        return ""
    terms = part.get("terms")
    added = [describe_parts(term.get("of")) for term in terms if isinstance(term, Mapping)] if terms else []
    of = " and ".join(added) or describe_parts(part.get("of"))
    kind = str(part.get("kind", "")).rpartition(":")[2]
    return " ".join(filter(None, [kind, describe_parts(part.get("by")), f"of {of}" if of else ""]))


def _find_nearest(section: Mapping[str, Any]) -> _Candidate | None:
    """The recipe that the run is, or comes nearest to; None where the credit of none has the parts of the run's."""
    nearest = None
    for candidate in _list_candidates(section):
        if nearest is None or candidate.distance < nearest.distance:
            nearest = candidate
        if not nearest.distance:
            break
    return nearest


def _list_candidates(section: Mapping[str, Any]) -> Iterator[_Candidate]:
    """The recipes, with options, whose credit has the parts of the run's."""
    shape = _list_kinds(section)
    for name in recipes.names():
        for options in _list_options(name):
            with suppress(ConfigError):  # an option that the recipe does not allow
                built = recipes.build(name, **options).config()
                if _list_kinds(built) == shape:
                    yield _make_candidate(name, options, built, section)


def _list_kinds(section: Mapping[str, Any]) -> dict[str, Any]:
    """Which parts the credit is put together from, where each stands, and what kind of loss it goes into."""
    settings = flatten_settings({"advantage": section.get("advantage")})
    return {path: kind for path, kind in settings.items() if path.endswith(".kind")} | {
        "loss": _find_loss_kind(section)
    }


def _find_loss_kind(section: Mapping[str, Any]) -> object:
    loss = section.get("loss")
    return loss.get("kind") if isinstance(loss, Mapping) else None


def _make_candidate(
    recipe: str, options: Mapping[str, Any], built: Mapping[str, Any], section: Mapping[str, Any]
) -> _Candidate:
    # One setting may stand in several parts, and is named once.
    settings = {f"{key} {value}": 1 for key, value in options.items()}
    own = flatten_settings(section)
    for difference in find_setting_differences(built, section):
        path, value = difference.path, difference.second
        # A list that became empty, or is so no more, is told once: by itself, or by what is in it.
        if value is None and (difference.first == [] or own.get(path.rpartition("[")[0]) == []):
            continue
        what = path.removesuffix(".kind").rpartition(".")[2]
        shown = "none" if value is None else str(value).rpartition(":")[2]
        settings[f"{what} {shown}"] = PART_DISTANCE if path.endswith(".kind") else 1
    return _Candidate(recipe=recipe, changes=tuple(settings), distance=sum(settings.values()))


def _shorten(changes: tuple[str, ...] | list[str]) -> str:
    return ", ".join(changes) if len(changes) <= MAX_SETTINGS else f"{len(changes)} settings of its own"


def _list_options(name: str) -> Iterator[dict[str, Any]]:
    """A recipe's defaults, then every change of one or two of the options that may add, drop or replace parts."""
    hints = get_type_hints(recipes.RECIPES[name])
    others = {
        key: values
        for key, default in recipes.summary(name).options.items()
        if (values := _list_alternatives(default, hints.get(key)))
    }
    yield {}
    for num in range(1, MAX_CHANGED + 1):
        for keys in combinations(others, num):
            for values in product(*(others[key] for key in keys)):
                yield dict(zip(keys, values, strict=True))


def _list_alternatives(default: object, hint: object) -> tuple[object, ...]:
    """What else an option may be, where that is a yes or no, one of several words, or a whole number."""
    if get_origin(hint) is Literal:
        return tuple(value for value in get_args(hint) if value != default)
    if isinstance(default, bool):
        return (not default,)
    return tuple(range(MAX_OPTION + 1)) if isinstance(default, int) else ()
