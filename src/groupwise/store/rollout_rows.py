"""One row of a rollouts file: its keys, the kind of each value, and the errors of invalid rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from groupwise.data.field_kinds import STATE, Kind, may_be_state
from groupwise.data.step_fields import RESERVED_NAMES, STEP_FIELDS
from groupwise.system.errors import nearest
from groupwise.system.json_text import describe_strangeness, is_plain
from groupwise.system.text import escape_controls

Id = str | int
"""Ids of tasks, groups and rollouts: all text or all integers within a file."""


RolloutRow = dict[str, Any]
"""One recorded step, by the keys of `STEP_FIELDS`.

Worked example: `{"task": "t1", "rollout": 0, "step": 0, "state": "kitchen", "action": "open door", "reward": 0.0}` is
the first step of rollout 0 at task t1, taken in the state "kitchen".
"""


_JSON = "text, finite numbers, true, false, null, and lists and objects of these"

_FIELDS = tuple(field for field in STEP_FIELDS if field.in_rows)

KEYS: Mapping[str, Kind] = {field.name: field.kind for field in _FIELDS}
"""The keys of a row with their kinds, in the order in which they are written."""

OLD_KEYS = {"attempt": "rollout", "index": "step", "unguided_prompt_ids": "unhinted_prompt_ids"}
"""The key here, by its name in files of earlier versions."""

REQUIRED = tuple(field.name for field in _FIELDS if field.required)
ONE_PER_TOKEN = tuple(field.name for field in _FIELDS if field.one_per_token)
_REQUIRED = frozenset(REQUIRED)
_NEED_RESPONSE = (*ONE_PER_TOKEN, "forced")
_ACCEPTS = {name: kind.accepts for name, kind in KEYS.items()} | {
    "extra": lambda value: type(value) is dict and RESERVED_NAMES.isdisjoint(value) and is_plain(value)
}
_ACCEPTS_OUTSIDE = _ACCEPTS | {name: may_be_state for name, kind in KEYS.items() if kind is STATE}


def find_row_fault(row: Any, *, looks_inside: bool = True) -> str | None:
    """What is wrong with one row and how to fix it, or None; the content of states is checked if `looks_inside`."""
    accepted = _ACCEPTS if looks_inside else _ACCEPTS_OUTSIDE
    if type(row) is not dict:
        return f"found {quote_json(row)}, but a row is a JSON object with {_join_names(REQUIRED)}"
    for name, value in row.items():
        accepts = accepted.get(name)
        if accepts is None or not accepts(value):
            return describe_value_fault(name, value)
    if _REQUIRED.difference(row):
        missing = next(name for name in REQUIRED if name not in row)
        return f"no key {missing!r}; every row needs {_join_names(REQUIRED)}"
    if "response_ids" not in row:
        if any(map(row.__contains__, _NEED_RESPONSE)):
            name = next(name for name in _NEED_RESPONSE if name in row)
            return f"{name!r} without 'response_ids'; store the ids of the sampled tokens too, or leave it out"
        return None
    sampled = len(row["response_ids"])
    for name in ONE_PER_TOKEN:
        if name in row and len(row[name]) != sampled:
            return f"{name!r} has {len(row[name])} entries for {sampled} response_ids; store one per token, or none"
    if row.get("forced", 0) > sampled:
        return f"'forced' is {row['forced']}, but there are {sampled} response_ids; count those they begin with"
    if "tokens" in row and row["tokens"] != sampled:
        return f"'tokens' is {row['tokens']}, but there are {sampled} response_ids; leave 'tokens' out"
    return None


def describe_value_fault(name: str, value: Any) -> str:
    """What is wrong with a value, for an error message."""
    if name not in KEYS:
        if name in OLD_KEYS:
            return f"unknown key {quote_key(name)}; here: {OLD_KEYS[name]}"
        names = nearest(str(name), KEYS, listed_by="docs/reference/rollouts.md")
        return f"unknown key {quote_key(name)}; {names} (further columns go into 'extra')"
    if name == "extra" and type(value) is dict and not RESERVED_NAMES.isdisjoint(value):
        taken = next(inner for inner in value if inner in RESERVED_NAMES)
        return f"'extra' holds {taken!r}, a name that is taken; move it out of 'extra', or rename it"
    inside = describe_strangeness(value) if type(value) is list or type(value) is dict else None
    if inside is not None and KEYS[name].holds_json:
        return f"key {name!r} {inside}; it takes {_JSON}"
    hint = (
        " (a missing score is not a zero: score the rollout or leave it out)" if name in ("reward", "outcome") else ""
    )
    return f"key {name!r} is {quote_json(value)}; it takes {KEYS[name].takes}{hint}"


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


def quote_json(value: object, *, width: int = 60) -> str:
    """A value as JSON for a message, cut if it is long.

    >>> quote_json(float("nan")), quote_json(None), quote_json("up")
    ('NaN', 'null', '"up"')
    """
    text = ""
    try:
        # In pieces: the value may have a hundred megabytes, and only its beginning is shown.
        for piece in _ENCODER.iterencode(value):
            text += piece[: width + 1]
            if len(text) > width:
                break
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return _cut(escape_controls(text), width)


def quote_key(name: object, *, width: int = 60) -> str:
    """A key in quotation marks for a message, cut if it is long."""
    return _cut(escape_controls(repr(name)), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


_ENCODER = json.JSONEncoder(ensure_ascii=False)
_JSON_TYPES = frozenset({str, int, float, bool, type(None)})


def to_json_value(value: Any) -> Any:
    """The JSON value for an enum, a tuple, or a numpy number or array; any other value is returned as it is.

    >>> to_json_value((np.float32(0.5), np.int64(3), [True]))
    [0.5, 3, [True]]
    """
    kind = type(value)
    if kind in _JSON_TYPES:
        return value
    if kind is list or kind is tuple:
        return list(value) if _JSON_TYPES.issuperset(map(type, value)) else [to_json_value(inner) for inner in value]
    if isinstance(value, dict):
        return {str(name) if isinstance(name, Enum) else name: to_json_value(inner) for name, inner in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return to_json_value(value.tolist())
    if isinstance(value, Enum):
        return to_json_value(value.value)
    return value


_EITHER = ("tokens", "response_ids")
"""Two keys with the same meaning."""
UNIFORM = (*(field.name for field in STEP_FIELDS if field.uniform and field.name not in _EITHER), "tokens")
"""Keys that either all rows of a file have, or none: a default would be an invented number."""
_UNIFORM = frozenset(UNIFORM)

_IDS = ("task", "group", "rollout")


class Uniformity:
    """Checks that the rows of one file agree in their columns, and in whether ids are text or integers.

    A large file is read in chunks, so a mixed column must be found while streaming.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._first: int | None = None
        self._has: frozenset[str] = frozenset()
        self._kinds: tuple[type, ...] = ()

    def find_fault(self, number: int, row: RolloutRow) -> str | None:
        """What differs between this row and the first one, or None; `number` is its line or row."""
        has = _UNIFORM.intersection(row)
        if "response_ids" in row:
            has |= {"tokens"}
        kinds = (type(row["task"]), type(row.get("group")), type(row["rollout"]))
        if self._first is None:
            self._first, self._has, self._kinds = number, has, kinds
        if has != self._has:
            odd = next(name for name in UNIFORM if name in has ^ self._has)
            name = "'tokens' or 'response_ids'" if odd in _EITHER else repr(odd)
            here, there = ("has", "has none") if odd in has else ("no", "has one")
            return f"{here} {name}, but {self._unit} {self._first} {there}; give it to every row or to none"
        if kinds == self._kinds:
            return None
        position = next(i for i, kind in enumerate(kinds) if kind is not self._kinds[i])
        name = _IDS[position]
        there = "text" if self._kinds[position] is str else "an integer"
        return (
            f"key {name!r} is {quote_json(row.get(name))}, but {self._unit} {self._first} has {there}; "
            "use text or integers throughout (1 and '1' would be two ids)"
        )
