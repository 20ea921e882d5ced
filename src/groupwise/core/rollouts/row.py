"""One row of a rollouts file: its keys, what each takes, and what is wrong with a row that breaks the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Required, TypedDict

from groupwise.core.errors import nearest
from groupwise.core.json_text import LARGEST_FLOAT, is_plain, strangeness
from groupwise.core.records import Origin, StopReason
from groupwise.core.safe_text import escape_controls

Id = str | int
"""Ids of tasks, groups and attempts: all text or all integers within a file."""

LARGEST_COUNT = 2**53
"""Integers up to here survive every JSON reader, also those that read numbers as doubles."""


class Row(TypedDict, total=False):
    """One recorded step.

    Worked example: `{"task": "t1", "attempt": 0, "index": 0, "state": "kitchen", "action": "open door", "reward": 0.0}`
    is the first step of attempt 0 at task t1, taken in the state "kitchen".
    """

    task: Required[Id]
    """The task that was attempted."""
    group: Id
    """Which attempts were compared together, where that is not all attempts at the task; takes the task's place."""
    attempt: Required[Id]
    """The attempt, within its task or group."""
    index: Required[int]
    """Position of the step in its attempt, from 0."""
    segment: int
    """Part of a step that was cut into several training sequences; absent = 0."""
    state: Any
    """What makes two steps comparable; a list or object counts as its canonical JSON text; null = not comparable."""
    observation: str
    """What the environment showed before the agent acted."""
    action: str | None
    """The parsed action."""
    reward: Required[float]
    """Reward of this step alone."""
    reward_alone: float
    """The reward before comparing the attempts of its group added to it, where that differs."""
    well_formed: bool
    """Whether the response had the form that was asked for."""
    accepted: bool
    """Whether the environment accepted the action."""
    valid: bool
    """Whether the response was well formed and its action accepted, in recordings that do not tell the two apart."""
    cut: bool
    """Whether the response was cut off at its most tokens."""
    outcome: float
    """Score of the attempt, the same on all its rows."""
    stop: str
    """Why the attempt ended, on its last row."""
    role: Id | None
    """Which player acted."""
    branch: Id | None
    """The branch point that the step was sampled from."""
    next_state: Any
    """The state that the step led to, where it is not the next row's."""
    accuracy: float
    """Share of correct answers, where it is not the outcome."""
    tokens: int
    """Number of sampled tokens, where the ids are not stored."""
    prompt_ids: list[int]
    """Token ids that the engine was given."""
    response_ids: list[int]
    """Token ids that the engine sampled."""
    logp_behaviour: list[float]
    """Log-probability of each sampled token when it was sampled."""
    entropy: list[float]
    """Entropy of the sampling distribution at each sampled token."""
    forced: int
    """How many of the first response ids were given instead of sampled; they do not train. Absent = none."""
    version: int
    """Policy version that sampled the step."""
    versions: list[int]
    """Policy version that sampled each token, where several sampled the step."""
    origin: str
    """Where the attempt came from; absent = fresh."""
    extra: dict[str, Any]
    """Further columns by name."""


@dataclass(frozen=True, slots=True)
class Key:
    """What one key of a row takes: as a test, and in words for messages."""

    accepts: Callable[[Any], bool]
    takes: str
    takes_null: bool = False


def _is_id(value: object) -> bool:
    return type(value) is str or type(value) is int


def _is_id_or_null(value: object) -> bool:
    return value is None or type(value) is str or type(value) is int


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_text_or_null(value: object) -> bool:
    return type(value) is str or value is None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_integer(value: Any) -> bool:
    return type(value) is int and -LARGEST_COUNT <= value <= LARGEST_COUNT


def _is_finite(value: Any) -> bool:
    return (type(value) is float or type(value) is int) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT


def _is_bool(value: object) -> bool:
    return value is True or value is False


def _may_be_state(value: Any) -> bool:
    return type(value) in _STATES and (type(value) is not float or -LARGEST_FLOAT <= value <= LARGEST_FLOAT)


def _is_state(value: Any) -> bool:
    return _may_be_state(value) and (type(value) not in (list, dict) or is_plain(value))


def _is_ids(value: Any) -> bool:
    return type(value) is list and _INTEGERS.issuperset(map(type, value))


def _is_floats(value: Any) -> bool:
    if type(value) is not list or not _NUMBERS.issuperset(map(type, value)):
        return False
    # One NaN or infinity makes the sum one, at a fraction of the price of looking at each entry.
    try:
        total = sum(value)
    except OverflowError:  # an integer that has no float
        return False
    return (type(total) is float and _is_finite(total)) or all(map(_is_finite, value))


def _is_stop(value: Any) -> bool:
    return type(value) is str and value in _STOPS


def _is_origin(value: Any) -> bool:
    return type(value) is str and value in _ORIGINS


def _is_extra(value: Any) -> bool:
    return type(value) is dict and TAKEN.isdisjoint(value) and is_plain(value)


_INTEGERS = frozenset({int})
_NUMBERS = frozenset({int, float})
_STATES = frozenset({str, int, float, bool, list, dict, type(None)})
_STOPS = frozenset(StopReason)
_ORIGINS = frozenset(Origin)
_ID = "text or an integer"
_COUNT = "an integer from 0 upwards"
_NUMBER = "a finite number"
_JSON = "text, finite numbers, true, false, null, and lists and objects of these"
_STATE = "text, a finite number, true or false, a list, an object, or null for 'not comparable'"

KEYS: Mapping[str, Key] = {
    "task": Key(_is_id, _ID),
    "group": Key(_is_id, _ID),
    "attempt": Key(_is_id, _ID),
    "index": Key(_is_count, _COUNT),
    "segment": Key(_is_count, _COUNT),
    "state": Key(_is_state, _STATE, takes_null=True),
    "observation": Key(_is_text, "text"),
    "action": Key(_is_text_or_null, "text or null", takes_null=True),
    "reward": Key(_is_finite, _NUMBER),
    "reward_alone": Key(_is_finite, _NUMBER),
    "well_formed": Key(_is_bool, "true or false"),
    "accepted": Key(_is_bool, "true or false"),
    "valid": Key(_is_bool, "true or false"),
    "cut": Key(_is_bool, "true or false"),
    "outcome": Key(_is_finite, _NUMBER),
    "stop": Key(_is_stop, "one of " + ", ".join(StopReason)),
    "role": Key(_is_id_or_null, _ID + " or null", takes_null=True),
    "branch": Key(_is_id_or_null, _ID + " or null", takes_null=True),
    "next_state": Key(_is_state, _STATE, takes_null=True),
    "accuracy": Key(_is_finite, _NUMBER),
    "tokens": Key(_is_count, _COUNT),
    "prompt_ids": Key(_is_ids, "a list of integers"),
    "response_ids": Key(_is_ids, "a list of integers"),
    "logp_behaviour": Key(_is_floats, "a list of finite numbers"),
    "entropy": Key(_is_floats, "a list of finite numbers"),
    "forced": Key(_is_count, _COUNT),
    "version": Key(_is_integer, "an integer"),
    "versions": Key(_is_ids, "a list of integers"),
    "origin": Key(_is_origin, "one of " + ", ".join(Origin)),
    "extra": Key(_is_extra, "an object of further columns"),
}
"""Every key of a row, in the order in which they are written."""

FIRST_OBSERVATION = "first_observation"
"""Column with a digest of the observation, on steps of index 0: attempts at one task begin alike."""

TAKEN = frozenset((*KEYS, FIRST_OBSERVATION, "cls"))
"""Names that no column in `extra` may have."""

REQUIRED = ("task", "attempt", "index", "reward")
ONE_PER_TOKEN = ("logp_behaviour", "entropy", "versions")

_ACCEPTS = {name: key.accepts for name, key in KEYS.items()}
_ACCEPTS_OUTSIDE = _ACCEPTS | {"state": _may_be_state, "next_state": _may_be_state}


def row_fault(row: Any, *, looks_inside: bool = True) -> str | None:
    """What is wrong with one row and what to do about it, or None where nothing is.

    Args:
        row: what was found.
        looks_inside: whether also at what states hold; whoever writes them as text next finds the same.
    """
    accepted = _ACCEPTS if looks_inside else _ACCEPTS_OUTSIDE
    if type(row) is not dict:
        return f"found {shown(row)}, but a row is a JSON object with {_listed(REQUIRED)}"
    for name, value in row.items():
        accepts = accepted.get(name)
        if accepts is None or not accepts(value):
            return value_fault(name, value)
    if "task" not in row or "attempt" not in row or "index" not in row or "reward" not in row:
        missing = next(name for name in REQUIRED if name not in row)
        return f"no key {missing!r}; every row needs {_listed(REQUIRED)}"
    if "response_ids" in row:
        return _token_fault(row)
    if "logp_behaviour" in row or "entropy" in row or "versions" in row or "forced" in row:
        name = next(name for name in (*ONE_PER_TOKEN, "forced") if name in row)
        return f"{name!r} without 'response_ids'; store the ids of the sampled tokens too, or leave it out"
    return None


def value_fault(name: str, value: Any) -> str:
    """What is wrong with a value that its key does not take."""
    if name not in KEYS:
        return f"unknown key {shown_name(name)}; {nearest(str(name), KEYS)} (further columns go into 'extra')"
    if name == "extra" and type(value) is dict and not TAKEN.isdisjoint(value):
        taken = next(inner for inner in value if inner in TAKEN)
        return f"'extra' holds {taken!r}, a name that is taken; move it out of 'extra', or rename it"
    inside = strangeness(value) if type(value) is list or type(value) is dict else None
    if inside is not None and name in ("state", "next_state", "extra"):
        return f"key {name!r} {inside}; it takes {_JSON}"
    hint = (
        " (a missing score is not a zero: score the attempt or leave it out)" if name in ("reward", "outcome") else ""
    )
    return f"key {name!r} is {shown(value)}; it takes {KEYS[name].takes}{hint}"


def _token_fault(row: dict[str, Any]) -> str | None:
    sampled = len(row["response_ids"])
    for name in ONE_PER_TOKEN:
        if name in row and len(row[name]) != sampled:
            return f"{name!r} has {len(row[name])} entries for {sampled} response_ids; store one per token, or none"
    if row.get("forced", 0) > sampled:
        return f"'forced' is {row['forced']}, but there are {sampled} response_ids; count those they begin with"
    if "tokens" in row and row["tokens"] != sampled:
        return f"'tokens' is {row['tokens']}, but there are {sampled} response_ids; leave 'tokens' out"
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


def shown(value: object, *, width: int = 60) -> str:
    """A value as JSON for a message, cut where it is long.

    >>> shown(float("nan")), shown(None), shown("up")
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


def shown_name(name: object, *, width: int = 60) -> str:
    """The name of a key for a message, in quotation marks, cut where it is long."""
    text = escape_controls(repr(name))
    return text if len(text) <= width else text[: width - 1] + "…"


_ENCODER = json.JSONEncoder(ensure_ascii=False)
