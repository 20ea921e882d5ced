"""What the fields of a step hold: a test, words for messages, a Parquet type, and how to read it from JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from groupwise.data.records import Origin, StopReason
from groupwise.system.json_text import LARGEST_FLOAT, is_plain

LARGEST_COUNT = 2**53
"""JSON readers that read numbers as doubles keep integers up to here exact."""


class Storage(Enum):
    """The type of a Parquet column."""

    TEXT = auto()
    """Text."""
    INTEGER = auto()
    """64-bit integers."""
    TEXT_OR_INTEGER = auto()
    """Text, or 64-bit integers if the file has these."""
    NUMBER = auto()
    """Doubles."""
    FLAG = auto()
    """Booleans."""
    INTEGERS = auto()
    """Lists of 64-bit integers."""
    NUMBERS = auto()
    """Lists of doubles."""
    FREE = auto()
    """Text if all values are text, else JSON text."""
    FREE_OR_INTEGER = auto()
    """Text or 64-bit integers if all values have that type, else JSON text."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field holds."""

    accepts: Callable[[Any], bool]
    """Whether a value of a row is of this kind."""
    takes: str
    """What it accepts, in words."""
    storage: Storage
    """The type of its column in a Parquet file."""
    takes_null: bool = False
    """Whether null is one of its values; else null means absent."""
    holds_json: bool = False
    """Whether it accepts any JSON value, so that a wrong value may be nested."""
    read: Callable[[Any], Any] | None = None
    """Converts the value of a row to that of a `Step`; None = no conversion."""


def is_text(value: object) -> bool:
    return type(value) is str


def is_count(value: Any) -> bool:
    """An integer from 0 upwards."""
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def is_integer(value: Any) -> bool:
    return type(value) is int and -LARGEST_COUNT <= value <= LARGEST_COUNT


def is_finite(value: Any) -> bool:
    return (type(value) is float or type(value) is int) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT


def is_flag(value: object) -> bool:
    return value is True or value is False


def may_be_state(value: Any) -> bool:
    """Whether it may be a state; the entries of lists and objects are not checked."""
    return type(value) in _STATES and (type(value) is not float or -LARGEST_FLOAT <= value <= LARGEST_FLOAT)


def is_integers(value: Any) -> bool:
    return type(value) is list and _INTEGERS.issuperset(map(type, value))


def is_numbers(value: Any) -> bool:
    if type(value) is not list or not _NUMBERS.issuperset(map(type, value)):
        return False
    # One NaN or infinity makes the sum NaN or infinite. This is much faster than a check of each entry.
    try:
        total = sum(value)
    except OverflowError:  # an integer that has no float
        return False
    return (type(total) is float and is_finite(total)) or all(map(is_finite, value))


def make_hashable(value: Any) -> Any:
    """A state with tuples again, which JSON wrote as lists."""
    return tuple(make_hashable(entry) for entry in value) if isinstance(value, list) else value


_INTEGERS = frozenset({int})
_NUMBERS = frozenset({int, float})
_STATES = frozenset({str, int, float, bool, list, dict, type(None)})
_STOPS = frozenset(StopReason)
_ORIGINS = frozenset(Origin)
_STATE = "text, a finite number, true or false, a list, an object, or null for 'not comparable'"

TEXT = Kind(is_text, "text", Storage.TEXT)
TEXT_OR_NULL = Kind(lambda value: type(value) is str or value is None, "text or null", Storage.TEXT, takes_null=True)
ID = Kind(lambda value: type(value) is str or type(value) is int, "text or an integer", Storage.TEXT_OR_INTEGER)
ID_OR_NULL = Kind(
    lambda value: value is None or type(value) is str or type(value) is int,
    "text or an integer or null",
    Storage.FREE_OR_INTEGER,
    takes_null=True,
)
COUNT = Kind(is_count, "an integer from 0 upwards", Storage.INTEGER, read=int)
INTEGER = Kind(is_integer, "an integer", Storage.INTEGER, read=int)
NUMBER = Kind(is_finite, "a finite number", Storage.NUMBER, read=float)
FLAG = Kind(is_flag, "true or false", Storage.FLAG, read=bool)
STATE = Kind(
    lambda value: may_be_state(value) and (type(value) not in (list, dict) or is_plain(value)),
    _STATE,
    Storage.FREE,
    takes_null=True,
    holds_json=True,
    read=make_hashable,
)
INTEGERS = Kind(is_integers, "a list of integers", Storage.INTEGERS, read=tuple)
NUMBERS = Kind(is_numbers, "a list of finite numbers", Storage.NUMBERS, read=tuple)
STOP = Kind(lambda value: type(value) is str and value in _STOPS, "one of " + ", ".join(StopReason), Storage.TEXT)
ORIGIN = Kind(lambda value: type(value) is str and value in _ORIGINS, "one of " + ", ".join(Origin), Storage.TEXT)
OBJECT = Kind(
    lambda value: type(value) is dict and is_plain(value), "an object of further columns", Storage.FREE, holds_json=True
)


# The description of a step field: what it holds, who sets it, where it is written, which column it is.


class Owner(StrEnum):
    """Who sets a field."""

    POLICY = "policy"
    """The model that samples."""
    ENVIRONMENT = "environment"
    """The environment."""
    ROLLOUT = "rollout"
    """The loop that ran the rollout."""
    SCORER = "scorer"
    """A scorer, before the advantages; an environment may set such fields too."""
    READER = "reader"
    """The code that makes a table, or a recording from elsewhere; rollouts of groupwise do not set it."""


class Presence(Enum):
    """When rollouts give the step table a column."""

    ALWAYS = auto()
    """Always; None for steps without a value."""
    WHERE_ANY = auto()
    """If any step has a value; None for the others."""
    WHERE_ALL = auto()
    """If every step has a value; there is no sensible default for the others."""
    BY_ITSELF = auto()
    """By a rule of its own in `data.step_columns`, or only if a user passes the column."""


class Check(Enum):
    """What the entries of a column are, for the step table."""

    ANYTHING = auto()
    """Anything, kept as it is."""
    NUMBER = auto()
    """Finite numbers of a reward's size."""
    FLAG = auto()
    """True or false."""
    COUNT = auto()
    """Integers from 0 upwards."""
    SUM = auto()
    """Counts, summed over the rows of a step that was cut into segments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """A field as a column of the step table, under its own name."""

    presence: Presence = Presence.WHERE_ANY
    """When rollouts give it."""
    check: Check = Check.ANYTHING
    """What its entries are."""
    of_whole_step: bool = False
    """Whether the segments of a step must agree on it."""
    made_by: str = ""
    """How it is made, for messages; empty = from the field of `Step`, or not made at all."""


KEPT: Any = object()
"""For `StepField.absent`: the field is always written."""
ON_STEP: Any = object()
"""For `StepField.unknown`: the default of `Step`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepField:
    """One field of a recorded step.

    Worked example: `entropy` is an entry of a row, a list of finite numbers, from `Step.entropy`. The policy sets it.
    An empty list is not written. It is no column of the step table.
    """

    name: str
    """Key of a row, and name of its column in the step table."""
    kind: Kind
    """What it holds."""
    owner: Owner
    """Who sets it."""
    meaning: str
    """What it means, for the page of the format."""
    step: str = ""
    """The field of `Step` that holds it; empty = none."""
    trajectory: str = ""
    """The field of `Trajectory` that holds it for all steps, dots allowed; empty = none."""
    made: str = ""
    """The value of a row as an expression of `step` and `trajectory`, if it is not simply a field of one of them."""
    absent: Any = None
    """The value that is not written, and that a row without the key has. None = no value; KEPT = always written."""
    unknown: Any = ON_STEP
    """The value of `Step` if the row has none; ON_STEP = the default of `Step`."""
    in_rows: bool = True
    """Whether it is a key of a row; else it is only a column."""
    required: bool = False
    """Whether every row has it."""
    uniform: bool = False
    """Whether either all rows of a file must have it, or none."""
    one_per_token: bool = False
    """Whether it is a list with one entry per response token."""
    bulk: bool = False
    """Whether it is dropped when a file is read to compute advantages: it is large and not needed for them."""
    follows: str = ""
    """The key before it in the rows of rollouts, if that is not the one before it in the table."""
    column: TableColumn | None = None
    """Its column in the step table; None = no column."""

    @property
    def is_recorded(self) -> bool:
        return bool(self.step or self.trajectory or self.made)

    @property
    def expression(self) -> str:
        """The value of a row, as an expression of `trajectory` and `step`."""
        return self.made or (f"step.{self.step}" if self.step else f"trajectory.{self.trajectory}")
