"""Checks and converts the records of environments: every field gets its exact type, or an error names the field.

Checked records can be shown to a model, compared, stored in the journal and sent between processes. numpy scalars, and
subclasses of text and numbers, become Python's own types. For any other value, `EnvironmentFault` says which field it
is, the value and what is needed.

Choices: a reward may be True or False, because many environments return `solved` for `float(solved)`. Flags must be
True or False: the text "False" is true, and 0.5 is no flag. Text with a lone surrogate is rejected and not repaired,
because the environment would not recognise the repaired action.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Mapping
from operator import countOf
from typing import Any, NoReturn, cast

import numpy as np

from groupwise.data.column_checks import LARGEST_REWARD
from groupwise.data.step_fields import RESERVED_NAMES
from groupwise.envs.environment import NO_INFO, NO_NOTE, Observation, Outcome
from groupwise.system.errors import EnvironmentFault
from groupwise.system.text import quote_line

MAX_RECORD_CHARACTERS = 2**18
"""Limit of an observation (text and listed actions together), of a state key, and of the info of a step. More is an
error: it would fill any model's context, and the memory of the run."""
MAX_INTEGER = 10**300
"""Integers in keys from here on are rejected: JSON readers give up on numbers of a few thousand digits."""
MAX_DEPTH = 32
"""Levels of nested tuples in keys."""
MAX_VALUE_CHARACTERS = 80
"""Characters of a wrong value in an error."""

MAX_INFO = 100
"""Info entries of one step; each is a column with a value for every step of an update."""

_INFO_KEY = "text, a finite number, True, False, None, or a list or dict of these"
_KEY = "text, a finite number, True, False, None, or a tuple of these"
_FLAG = "True or False"
_SHOWN = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, np.generic, type(None))


def to_plain_observation(seen: object) -> Observation:
    """An observation of plain values; the same object if it is plain already."""
    return _rebuild_observation(seen) if list_unplain_observations({0: seen}) else cast(Observation, seen)


def to_plain_outcome(outcome: object) -> Outcome:
    """An outcome of plain values; the same object if it is plain already."""
    return _rebuild_outcome(outcome) if list_unplain_outcomes({0: outcome}) else cast(Outcome, outcome)


def list_unplain_observations(observations: Mapping[int, object]) -> list[int]:
    """The numbers of the observations that are not of plain values yet.

    Every observation of a run passes this loop: nearly all are plain, and their check calls no function of ours.
    """
    unplain = []
    for number, seen in observations.items():
        if type(seen) is Observation:
            text, key, admissible, goal = seen.text, seen.state_key, seen.admissible, seen.goal
            if (
                type(text) is type(goal) is str
                and (type(key) is str or key is None)
                and (
                    admissible is None
                    or (
                        type(admissible) is tuple
                        and countOf(map(type, admissible), str) == len(admissible) <= MAX_RECORD_CHARACTERS
                    )
                )
            ):
                # One check of all texts together is the fastest.
                whole = f"{text}{goal}{key or ''}{''.join(admissible or ())}"
                if len(whole) <= MAX_RECORD_CHARACTERS and (whole.isascii() or is_whole(whole)):
                    continue
        unplain.append(number)
    return unplain


def list_unplain_outcomes(outcomes: Mapping[int, object]) -> list[int]:
    """The numbers of the outcomes that are not of plain values yet."""
    unplain, observations = list[int](), dict[int, object]()
    for number, outcome in outcomes.items():
        if type(outcome) is Outcome:
            reward, note, terminated, truncated = outcome.reward, outcome.note, outcome.terminated, outcome.truncated
            accepted, success, info, seen = outcome.accepted, outcome.success, outcome.info, outcome.observation
            if (
                type(reward) is float
                and -LARGEST_REWARD <= reward <= LARGEST_REWARD
                # Compared by identity, which costs a third of asking for the type.
                and (terminated is False or terminated is True)
                and (truncated is False or truncated is True)
                and (accepted is True or accepted is False)
                and (success is None or success is True or success is False)
                and (note is NO_NOTE or (type(note) is str and not note))
                and (info is NO_INFO or (type(info) is dict and not info))
            ):
                observations[number] = seen
                continue
        unplain.append(number)
    return [*unplain, *list_unplain_observations(observations)]


def _rebuild_observation(seen: object) -> Observation:
    if not isinstance(seen, Observation):
        raise EnvironmentFault(f"observe gave {type(seen).__name__}; return an Observation")
    text, key = _to_plain_text("Observation.text", seen.text), to_plain_key(seen.state_key)
    listed: object = seen.admissible
    if not (listed is None or isinstance(listed, list | tuple)):
        _refuse("Observation.admissible", listed, "a tuple of texts or None")
    actions = tuple(
        _to_plain_text("Observation.admissible", action, needed="a tuple of texts") for action in listed or ()
    )
    goal = _to_plain_text("Observation.goal", seen.goal)
    if len(actions) > MAX_RECORD_CHARACTERS:
        raise EnvironmentFault(f"an observation lists {len(actions):,} actions; list fewer")
    num_characters = len(text) + len(goal) + sum(map(len, actions))
    if num_characters > MAX_RECORD_CHARACTERS:
        raise EnvironmentFault(
            f"an observation has {num_characters:,} characters, {MAX_RECORD_CHARACTERS:,} at most; shorten it"
        )
    return Observation(text=text, state_key=key, admissible=None if listed is None else actions, goal=goal)


def _rebuild_outcome(outcome: object) -> Outcome:
    if not isinstance(outcome, Outcome):
        raise EnvironmentFault(f"act gave {type(outcome).__name__}; return an Outcome")
    seen: object = outcome.observation
    if not isinstance(seen, Observation):
        _refuse("Outcome.observation", seen, "an Observation")
    success = outcome.success
    return Outcome(
        observation=to_plain_observation(seen),
        reward=to_plain_reward(outcome.reward),
        terminated=_to_plain_flag("Outcome.terminated", outcome.terminated),
        truncated=_to_plain_flag("Outcome.truncated", outcome.truncated),
        accepted=_to_plain_flag("Outcome.accepted", outcome.accepted),
        success=None if success is None else _to_plain_flag("Outcome.success", success, needed="True, False or None"),
        note=quote_line(_to_plain_text("Outcome.note", outcome.note)),
        info=to_plain_info(outcome.info),
    )


def to_plain_key(key: object) -> Hashable:
    """A state key of plain values, equal to the key itself.

    >>> to_plain_key(("room", (np.int64(2), True)))
    ('room', (2, True))
    """
    plain = _to_plain_entry(key, 0)
    # Entries count too: a tuple of a million numbers is as long as a book.
    if _count_characters(plain) > MAX_RECORD_CHARACTERS:
        raise EnvironmentFault(f"Observation.state_key has more than {MAX_RECORD_CHARACTERS:,} characters; shorten it")
    return plain


def to_plain_info(info: object) -> dict[str, Any]:
    """Step info as JSON values under names that are not reserved.

    >>> to_plain_info({"distance": np.float32(0.5), "seen": ("mug", 2)})
    {'distance': 0.5, 'seen': ['mug', 2]}
    """
    if not isinstance(info, Mapping):
        _refuse("Outcome.info", info, "a dict of JSON values by their names")
    plain: dict[str, Any] = {}
    for name, value in info.items():
        if not isinstance(name, str) or not name:
            _refuse("a name in Outcome.info", name, "text that is not empty")
        plain_name = _to_plain_text("a name in Outcome.info", name)
        where = f"Outcome.info[{quote_line(repr(plain_name), limit=MAX_VALUE_CHARACTERS)}]"
        if plain_name in RESERVED_NAMES:
            raise EnvironmentFault(f"{where} has a reserved name; choose another name")
        plain[plain_name] = _to_plain_json(where, value, 0)
    if len(plain) > MAX_INFO or _count_characters(plain) > MAX_RECORD_CHARACTERS:
        raise EnvironmentFault(
            f"Outcome.info has {len(plain):,} names, and {_count_characters(plain):,} characters and entries; "
            f"give {MAX_INFO} and {MAX_RECORD_CHARACTERS:,} at most"
        )
    return plain


def to_plain_reward(reward: object) -> float:
    """A reward as a float.

    >>> to_plain_reward(np.float32(0.5)), to_plain_reward(True)
    (0.5, 1.0)
    """
    plain = _to_plain_leaf(reward)
    if isinstance(plain, bool | int | float) and -LARGEST_REWARD <= plain <= LARGEST_REWARD:
        return float(plain)
    _refuse("Outcome.reward", reward, f"a finite number of at most {LARGEST_REWARD:g}")


def to_plain_advice(advice: object) -> str | None:
    if advice is None:
        return None
    text = _to_plain_text("expert()", advice, needed="text or None")
    if len(text) > MAX_RECORD_CHARACTERS:
        raise EnvironmentFault(f"expert() gave {len(text):,} characters, {MAX_RECORD_CHARACTERS:,} at most; shorten it")
    return text


def _to_plain_text(field: str, value: object, *, needed: str = "text") -> str:
    plain = value if type(value) is str else _to_plain_leaf(value)
    if not isinstance(plain, str):
        _refuse(field, value, needed)
    if not is_whole(plain):
        _refuse(field, value, "text without halves of characters (lone surrogates)")
    return plain


def _to_plain_flag(field: str, value: object, *, needed: str = _FLAG) -> bool:
    plain = _to_plain_leaf(value)
    if not isinstance(plain, bool):
        _refuse(field, value, needed)
    return plain


def _to_plain_entry(value: object, depth: int) -> Hashable:
    plain = _to_plain_leaf(value)
    if isinstance(plain, str):
        return _to_plain_text("Observation.state_key", plain)
    if isinstance(plain, tuple) and depth < MAX_DEPTH:
        return tuple(_to_plain_entry(entry, depth + 1) for entry in plain)
    if _is_small_leaf(plain):
        return plain
    _refuse("Observation.state_key", value, _KEY)


def _to_plain_json(where: str, value: object, depth: int) -> Any:
    """A value of step info, or an entry of one; a tuple becomes a list."""
    kind = type(value)
    if (kind is str and value.isascii()) or kind is bool:  # type: ignore[attr-defined] # most are: return early
        return value
    plain = value if kind is list or kind is dict else _to_plain_leaf(value)
    if isinstance(plain, str):
        return _to_plain_text(where, plain)
    if isinstance(plain, list | tuple) and depth < MAX_DEPTH:
        return [_to_plain_json(where, entry, depth + 1) for entry in plain]
    if isinstance(plain, Mapping) and depth < MAX_DEPTH and all(isinstance(name, str) for name in plain):
        return {_to_plain_text(where, name): _to_plain_json(where, entry, depth + 1) for name, entry in plain.items()}
    if _is_small_leaf(plain):
        return plain
    _refuse(where, value, _INFO_KEY)


def _is_small_leaf(plain: object) -> bool:
    """Whether a value is None, True, False, or a number that JSON readers accept."""
    if isinstance(plain, int):
        return -MAX_INTEGER < plain < MAX_INTEGER
    return plain is None or (isinstance(plain, float) and math.isfinite(plain))


def _to_plain_leaf(value: object) -> object:
    """Text, a number, True or False as Python's own type; any other value unchanged."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def _count_characters(value: object) -> int:
    if isinstance(value, tuple | list):
        return sum(1 + _count_characters(entry) for entry in value)
    if isinstance(value, dict):
        return sum(1 + len(name) + _count_characters(entry) for name, entry in value.items())
    return len(value) if isinstance(value, str) else 0


def is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8; a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(field: str, value: object, needed: str) -> NoReturn:
    raise EnvironmentFault(f"{field} is {show_value(value)}; give {needed}")


def show_value(value: object) -> str:
    """A foreign value in a few words: its repr, if that is useful, and its type.

    >>> show_value(b"up"), show_value(10**5000), show_value(object())
    ("b'up' (bytes)", 'a int', 'a object')
    """
    name = quote_line(type(value).__name__, limit=MAX_VALUE_CHARACTERS)
    try:
        # The repr of other objects is their address in memory, which differs each time.
        looks = quote_line(reprlib.repr(value), limit=MAX_VALUE_CHARACTERS) if isinstance(value, _SHOWN) else ""
    except Exception:  # a foreign repr may raise anything, and a number may be too long to write
        looks = ""
    return f"{looks} ({name})" if looks else f"a {name}"
