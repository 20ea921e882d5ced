"""Columns that lie in one another: `reward_model.score` is the field `score` of the object in `reward_model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.core.errors import nearest
from groupwise.recordings.row import quote_json, quote_key

_MISSING = object()


def find_value(fields: Mapping[str, Any], path: str) -> Any:
    """What stands at a path, and None where something on the way is null; see `is_missing` for a path that ends.

    A column whose own name has dots in it comes first.

    >>> find_value({"a": {"b": [1, 2]}, "c.d": 3}, "a.b.-1"), find_value({"c.d": 3}, "c.d")
    (2, 3)
    """
    if path in fields:
        return fields[path]
    value: Any = fields
    for word in path.split("."):
        value = _enter(value, word)
        if value is None or value is _MISSING:
            return value
    return value


def is_missing(value: Any) -> bool:
    """Whether `find_value` found nothing, not even null."""
    return value is _MISSING


def point_to_nearest(fields: Mapping[str, Any], path: str) -> str:
    """Where a path that leads nowhere ends, and what there is instead."""
    value: Any = fields
    for count, word in enumerate(words := path.split(".")):
        inner = _enter(value, word)
        if inner is not _MISSING:
            value = inner
            continue
        within = f"{quote_key('.'.join(words[:count]))} " if count else ""
        if isinstance(value, Mapping):
            return f"{within and f'within {within}'}{nearest(word, map(str, value))}"
        if isinstance(value, list | tuple):
            return f"{within}holds a list of {len(value)}: go on with a position, from 0, or -1 for the last"
        return f"{within}holds {quote_json(value)}, and nothing within"
    raise AssertionError("the path leads somewhere")


def _enter(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(word, _MISSING)
    if isinstance(value, list | tuple) and word.removeprefix("-").isdecimal():
        position = int(word)
        return value[position] if -len(value) <= position < len(value) else _MISSING
    return _MISSING
