"""One row of a rollouts file: its keys, what each takes, and what is wrong with a row that breaks the rules."""

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
"""Ids of tasks, groups and attempts: all text or all integers within a file."""


RolloutRow = dict[str, Any]
"""One recorded step, by the keys of `STEP_FIELDS`.

Worked example: `{"task": "t1", "attempt": 0, "index": 0, "state": "kitchen", "action": "open door", "reward": 0.0}` is
the first step of attempt 0 at task t1, taken in the state "kitchen".
"""


_JSON = "text, finite numbers, true, false, null, and lists and objects of these"

_FIELDS = tuple(field for field in STEP_FIELDS if field.in_rows)

KEYS: Mapping[str, Kind] = {field.name: field.kind for field in _FIELDS}
"""Every key of a row and what it takes, in the order in which they are written."""

REQUIRED = tuple(field.name for field in _FIELDS if field.required)
ONE_PER_TOKEN = tuple(field.name for field in _FIELDS if field.one_per_token)
_REQUIRED = frozenset(REQUIRED)
_NEED_RESPONSE = (*ONE_PER_TOKEN, "forced")


def _is_extra(value: Any) -> bool:
    return type(value) is dict and RESERVED_NAMES.isdisjoint(value) and is_plain(value)


_ACCEPTS = {name: kind.accepts for name, kind in KEYS.items()} | {"extra": _is_extra}
_ACCEPTS_OUTSIDE = _ACCEPTS | {name: may_be_state for name, kind in KEYS.items() if kind is STATE}


def find_row_fault(row: Any, *, looks_inside: bool = True) -> str | None:
    """What is wrong with one row and what to do about it, or None; what states hold only where `looks_inside`."""
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
    if "response_ids" in row:
        return _find_token_fault(row)
    if any(map(row.__contains__, _NEED_RESPONSE)):
        name = next(name for name in _NEED_RESPONSE if name in row)
        return f"{name!r} without 'response_ids'; store the ids of the sampled tokens too, or leave it out"
    return None


def describe_value_fault(name: str, value: Any) -> str:
    """What is wrong with a value that its key does not take."""
    if name not in KEYS:
        return f"unknown key {quote_key(name)}; {nearest(str(name), KEYS)} (further columns go into 'extra')"
    if name == "extra" and type(value) is dict and not RESERVED_NAMES.isdisjoint(value):
        taken = next(inner for inner in value if inner in RESERVED_NAMES)
        return f"'extra' holds {taken!r}, a name that is taken; move it out of 'extra', or rename it"
    inside = describe_strangeness(value) if type(value) is list or type(value) is dict else None
    if inside is not None and KEYS[name].holds_json:
        return f"key {name!r} {inside}; it takes {_JSON}"
    hint = (
        " (a missing score is not a zero: score the attempt or leave it out)" if name in ("reward", "outcome") else ""
    )
    return f"key {name!r} is {quote_json(value)}; it takes {KEYS[name].takes}{hint}"


def _find_token_fault(row: dict[str, Any]) -> str | None:
    sampled = len(row["response_ids"])
    for name in ONE_PER_TOKEN:
        if name in row and len(row[name]) != sampled:
            return f"{name!r} has {len(row[name])} entries for {sampled} response_ids; store one per token, or none"
    if row.get("forced", 0) > sampled:
        return f"'forced' is {row['forced']}, but there are {sampled} response_ids; count those they begin with"
    if "tokens" in row and row["tokens"] != sampled:
        return f"'tokens' is {row['tokens']}, but there are {sampled} response_ids; leave 'tokens' out"
    return None


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


def quote_json(value: object, *, width: int = 60) -> str:
    """A value as JSON for a message, cut where it is long.

    >>> quote_json(float("nan")), quote_json(None), quote_json("up")
    ('NaN', 'null', '"up"')
    """
    text = ""
    try:
        # Piece by piece: of a value of a hundred megabytes nobody sees more than the beginning.
        for piece in _ENCODER.iterencode(value):
            text += piece[: width + 1]
            if len(text) > width:
                break
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    text = escape_controls(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def quote_key(name: object, *, width: int = 60) -> str:
    """The name of a key for a message, in quotation marks, cut where it is long."""
    text = escape_controls(repr(name))
    return text if len(text) <= width else text[: width - 1] + "…"


_ENCODER = json.JSONEncoder(ensure_ascii=False)


# JSON values of what Python and numpy programs hold: enums, tuples, numpy numbers and arrays.

_JSON_TYPES = frozenset({str, int, float, bool, type(None)})


def to_json_value(value: Any) -> Any:
    """The JSON value that a value stands for; what stands for none comes back as it is.

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
"""Two ways to say one thing."""
UNIFORM = (*(field.name for field in STEP_FIELDS if field.uniform and field.name not in _EITHER), "tokens")
"""Keys that every row of a file has, or none: a default for the others would be an invented number."""
_UNIFORM = frozenset(UNIFORM)

_IDS = ("task", "group", "attempt")


class Uniformity:
    """What the rows of one file must agree on: which columns there are, and whether ids are text or integers.

    The chunks of a large file are read apart, so what would be one mixed column must be caught while streaming.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._first: int | None = None
        self._has: frozenset[str] = frozenset()
        self._kinds: tuple[type, ...] = ()

    def find_fault(self, number: int, row: RolloutRow) -> str | None:
        """What sets this row apart from the first one, or None; `number` is its line or row."""
        has = _UNIFORM.intersection(row)
        if "response_ids" in row:
            has |= {"tokens"}
        kinds = (type(row["task"]), type(row.get("group")), type(row["attempt"]))
        if self._first is None:
            self._first, self._has, self._kinds = number, has, kinds
        if has != self._has:
            odd = next(name for name in UNIFORM if name in has ^ self._has)
            name = "'tokens' or 'response_ids'" if odd in _EITHER else repr(odd)
            here, there = ("has", "has none") if odd in has else ("no", "has one")
            return f"{here} {name}, but {self._unit} {self._first} {there}; give it to every row or to none"
        return None if kinds == self._kinds else self._describe_kind_fault(row, kinds)

    def _describe_kind_fault(self, row: RolloutRow, kinds: tuple[type, ...]) -> str:
        position = next(i for i, kind in enumerate(kinds) if kind is not self._kinds[i])
        name = _IDS[position]
        there = "text" if self._kinds[position] is str else "an integer"
        return (
            f"key {name!r} is {quote_json(row.get(name))}, but {self._unit} {self._first} has {there}; "
            "use text or integers throughout (1 and '1' would be two ids)"
        )
