"""What the fields of a step hold: a test, words for messages, a Parquet type, and the way back from JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from groupwise.data.records import Origin, StopReason
from groupwise.system.json_text import LARGEST_FLOAT, is_plain

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


def is_text(value: object) -> bool:
    """Text."""
    return type(value) is str


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


# What the table of step fields says of each: what it holds, who says it, where it is written, which column it is.


class Owner(StrEnum):
    """Who says what a field holds."""

    POLICY = "policy"
    """The model that was sampled."""
    ENVIRONMENT = "environment"
    """The world that was acted in."""
    ROLLOUT = "rollout"
    """The loop that played the attempt."""
    MEASURE = "measure"
    """Who found something out afterwards, before credit; an environment may say such things at once."""
    READER = "reader"
    """Whoever lays steps out as a table, or recorded them elsewhere: our attempts do not say it of themselves."""


class Presence(Enum):
    """When attempts give the step table a column."""

    ALWAYS = auto()
    """Always; None where a step does not say."""
    WHERE_ANY = auto()
    """Where any step says something; None where another does not."""
    WHERE_ALL = auto()
    """Where every step says something: a default for the others would be invented."""
    BY_ITSELF = auto()
    """As `data.step_columns` has a rule for it alone, or only where somebody hands it in."""


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
    """When attempts give it."""
    check: Check = Check.ANYTHING
    """What its entries are."""
    of_whole_step: bool = False
    """Whether the segments of a step must agree on it."""
    made_by: str = ""
    """Where it comes from, for messages; empty = from the field of `Step` that holds it, or from nowhere by itself."""


KEPT: Any = object()
"""No value of a field: one that is absent at this value is always written."""
ON_STEP: Any = object()
"""What `Step` has where nobody says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepField:
    """One field of a recorded step.

    Worked example: `entropy` is the entry of a row by that name, a list of finite numbers, which `Step.entropy` holds;
    the policy says it; an empty one is not written; it is no column of the step table and is dropped on the way there.
    """

    name: str
    """Key of a row, and column of the step table where it is one."""
    kind: Kind
    """What it holds."""
    owner: Owner
    """Who says it."""
    meaning: str
    """What it means, for the page of the format."""
    step: str = ""
    """The field of `Step` that holds it; empty = none."""
    trajectory: str = ""
    """The field of `Trajectory` that holds it for all steps, dots allowed; empty = none."""
    made: str = ""
    """What a row says, where that is not what the step or the trajectory holds: an expression of these two."""
    absent: Any = None
    """The value that is not written, and that a row means which lacks it; None = it says nothing; KEPT = all are."""
    unknown: Any = ON_STEP
    """What a step read back has where its row says nothing; ON_STEP = the default of `Step`."""
    in_rows: bool = True
    """Whether it is a key of a row; else it is only a column."""
    required: bool = False
    """Whether every row has it."""
    uniform: bool = False
    """Whether every row of a file has it, or none: a default for the rest would be an invented number."""
    one_per_token: bool = False
    """Whether it is a list with an entry for each of `response_ids`."""
    bulk: bool = False
    """Whether a file read for credit lets go of it: it is large, and credit does not read it."""
    follows: str = ""
    """The key that it stands behind in the rows of attempts, where that is not the one before it in the table."""
    column: TableColumn | None = None
    """Its column in the step table; None = it is none."""

    @property
    def is_recorded(self) -> bool:
        """Whether attempts say it of their steps."""
        return bool(self.step or self.trajectory or self.made)

    @property
    def expression(self) -> str:
        """What a row says, as an expression of a trajectory and its step."""
        return self.made or (f"step.{self.step}" if self.step else f"trajectory.{self.trajectory}")
