"""What the fields of a step hold: a test, words for messages, a Parquet type, and the way back from JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from groupwise.core.records import Origin, StopReason
from groupwise.core.text.json_text import LARGEST_FLOAT, is_plain

LARGEST_COUNT = 2**53
"""Integers up to here survive every JSON reader, also those that read numbers as doubles."""


class Storage(Enum):
    """The type of a Parquet column."""

    TEXT = auto()
    """Text."""
    INTEGER = auto()
    """64-bit integers."""
    TEXT_OR_INTEGER = auto()
    """Text, or 64-bit integers where a file has those."""
    NUMBER = auto()
    """Doubles."""
    FLAG = auto()
    """Booleans."""
    INTEGERS = auto()
    """Lists of 64-bit integers."""
    NUMBERS = auto()
    """Lists of doubles."""
    FREE = auto()
    """Text where all values are, else JSON text."""
    FREE_OR_INTEGER = auto()
    """Text or 64-bit integers where all values are of one of these types, else JSON text."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field holds."""

    accepts: Callable[[Any], bool]
    """Whether a value of a row is of this kind."""
    takes: str
    """What it takes, in words."""
    storage: Storage
    """Its column in a Parquet file."""
    takes_null: bool = False
    """Whether null is one of its values; else null and absent are the same."""
    holds_json: bool = False
    """Whether it takes any JSON value, so that a wrong one may lie deep within."""
    read: Callable[[Any], Any] | None = None
    """What makes a row's value that of a `Step` again; None = it is the same."""


def is_id(value: object) -> bool:
    """Text or an integer."""
    return type(value) is str or type(value) is int


def is_id_or_null(value: object) -> bool:
    """Text, an integer or null."""
    return value is None or type(value) is str or type(value) is int


def is_text(value: object) -> bool:
    """Text."""
    return type(value) is str


def is_text_or_null(value: object) -> bool:
    """Text or null."""
    return type(value) is str or value is None


def is_count(value: Any) -> bool:
    """An integer from 0 upwards."""
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def is_integer(value: Any) -> bool:
    """An integer."""
    return type(value) is int and -LARGEST_COUNT <= value <= LARGEST_COUNT


def is_finite(value: Any) -> bool:
    """A finite number."""
    return (type(value) is float or type(value) is int) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT


def is_flag(value: object) -> bool:
    """True or false."""
    return value is True or value is False


def may_be_state(value: Any) -> bool:
    """A state, by its outside: what lists and objects hold is not looked at."""
    return type(value) in _STATES and (type(value) is not float or -LARGEST_FLOAT <= value <= LARGEST_FLOAT)


def is_state(value: Any) -> bool:
    """A state, looked through."""
    return may_be_state(value) and (type(value) not in (list, dict) or is_plain(value))


def is_integers(value: Any) -> bool:
    """A list of integers."""
    return type(value) is list and _INTEGERS.issuperset(map(type, value))


def is_numbers(value: Any) -> bool:
    """A list of finite numbers."""
    if type(value) is not list or not _NUMBERS.issuperset(map(type, value)):
        return False
    # One NaN or infinity makes the sum one, at a fraction of the price of looking at each entry.
    try:
        total = sum(value)
    except OverflowError:  # an integer that has no float
        return False
    return (type(total) is float and is_finite(total)) or all(map(is_finite, value))


def is_stop(value: Any) -> bool:
    """A reason to end."""
    return type(value) is str and value in _STOPS


def is_origin(value: Any) -> bool:
    """An origin."""
    return type(value) is str and value in _ORIGINS


def is_object(value: Any) -> bool:
    """An object of JSON values."""
    return type(value) is dict and is_plain(value)


def make_hashable(value: Any) -> Any:
    """A state as it was: what JSON writes as a list was a tuple."""
    return tuple(make_hashable(entry) for entry in value) if isinstance(value, list) else value


_INTEGERS = frozenset({int})
_NUMBERS = frozenset({int, float})
_STATES = frozenset({str, int, float, bool, list, dict, type(None)})
_STOPS = frozenset(StopReason)
_ORIGINS = frozenset(Origin)
_STATE = "text, a finite number, true or false, a list, an object, or null for 'not comparable'"

TEXT = Kind(is_text, "text", Storage.TEXT)
TEXT_OR_NULL = Kind(is_text_or_null, "text or null", Storage.TEXT, takes_null=True)
ID = Kind(is_id, "text or an integer", Storage.TEXT_OR_INTEGER)
ID_OR_NULL = Kind(is_id_or_null, "text or an integer or null", Storage.FREE_OR_INTEGER, takes_null=True)
COUNT = Kind(is_count, "an integer from 0 upwards", Storage.INTEGER, read=int)
INTEGER = Kind(is_integer, "an integer", Storage.INTEGER, read=int)
NUMBER = Kind(is_finite, "a finite number", Storage.NUMBER, read=float)
FLAG = Kind(is_flag, "true or false", Storage.FLAG, read=bool)
STATE = Kind(is_state, _STATE, Storage.FREE, takes_null=True, holds_json=True, read=make_hashable)
INTEGERS = Kind(is_integers, "a list of integers", Storage.INTEGERS, read=tuple)
NUMBERS = Kind(is_numbers, "a list of finite numbers", Storage.NUMBERS, read=tuple)
STOP = Kind(is_stop, "one of " + ", ".join(StopReason), Storage.TEXT)
ORIGIN = Kind(is_origin, "one of " + ", ".join(Origin), Storage.TEXT)
OBJECT = Kind(is_object, "an object of further columns", Storage.FREE, holds_json=True)
