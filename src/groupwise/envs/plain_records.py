"""What environments hand over, made plain where it enters: every field of its exact type, or a fault that names it.

Whatever passes here can be shown to a model, compared, written to the journal and sent between processes. numpy's
scalars, and subclasses of text and numbers, become Python's own; what no record could hold is an `EnvironmentFault`
that says which field it is, what came and what is needed.

Choices: a reward may be a truth value, as many environments pay `float(solved)` by leaving out the `float`. Flags are
True or False and nothing else: a text "False" is true, and 0.5 is no verdict. Text with half of a character is refused
and not repaired: the environment would not know the repaired action again.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Mapping
from operator import countOf
from typing import Any, NoReturn

import numpy as np

from groupwise.core.column_checks import LARGEST_REWARD
from groupwise.core.errors import EnvironmentFault
from groupwise.core.step_fields.table import RESERVED_NAMES
from groupwise.core.text.safe_text import quote_line
from groupwise.envs.environment import NO_FACTS, NO_NOTE, Observation, Outcome

MAX_CHARACTERS = 2**18
"""Of what an environment shows, text and listed actions together, of a state key, and of a step's facts. More is a
fault: it would fill any model's context, and the memory of the whole run before that."""
MAX_INTEGER = 10**300
"""Integers in keys from here on are refused: JSON readers give up on numbers of a few thousand digits."""
MAX_DEPTH = 32
"""How deep tuples in keys may lie within one another."""
MAX_SHOWN = 80
"""Characters of a wrong value that its fault shows."""

MAX_FACTS = 100
"""Facts of one step; each is a column, which costs an entry on every step of an update."""

_FACT = "text, a finite number, True, False, None, or a list or dict of these"
_KEY = "text, a finite number, True, False, None, or a tuple of these"
_FLAG = "True or False"
_SHOWN = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, np.generic, type(None))


def plain_observation(seen: object) -> Observation:
    """An observation of plain values; the same one where it was."""
    if type(seen) is Observation:
        text, key, admissible, goal = seen.text, seen.state_key, seen.admissible, seen.goal
        if (
            type(text) is type(goal) is str
            and (type(key) is str or key is None)
            and (
                admissible is None
                or (
                    type(admissible) is tuple
                    and countOf(map(type, admissible), str) == len(admissible) <= MAX_CHARACTERS
                )
            )
        ):
            # Every word of every step passes here: one look at all of it together costs the least.
            whole = f"{text}{goal}{key or ''}{''.join(admissible or ())}"
            if len(whole) <= MAX_CHARACTERS and (whole.isascii() or is_whole(whole)):
                return seen
    return _make_plain_observation(seen)


def plain_outcome(outcome: object) -> Outcome:
    """An outcome of plain values; the same one where it was."""
    if type(outcome) is Outcome:
        reward, note, terminated, truncated = outcome.reward, outcome.note, outcome.terminated, outcome.truncated
        accepted, success, facts, seen = outcome.accepted, outcome.success, outcome.facts, outcome.observation
        if (
            type(reward) is float
            and -LARGEST_REWARD <= reward <= LARGEST_REWARD
            # Compared by identity, which costs a third of asking for the type.
            and (terminated is False or terminated is True)
            and (truncated is False or truncated is True)
            and (accepted is True or accepted is False)
            and (success is None or success is True or success is False)
            and (note is NO_NOTE or (type(note) is str and not note))
            and (facts is NO_FACTS or (type(facts) is dict and not facts))
            and type(seen) is Observation
            and plain_observation(seen) is seen
        ):
            return outcome
    return _make_plain_outcome(outcome)


def _make_plain_observation(seen: object) -> Observation:
    if not isinstance(seen, Observation):
        raise EnvironmentFault(f"observe gave {type(seen).__name__}; return an Observation")
    found = Observation(
        text=_plain_text("Observation.text", seen.text),
        state_key=plain_key(seen.state_key),
        admissible=_plain_actions(seen.admissible),
        goal=_plain_text("Observation.goal", seen.goal),
    )
    _check_length(found)
    return found


def _make_plain_outcome(outcome: object) -> Outcome:
    if not isinstance(outcome, Outcome):
        raise EnvironmentFault(f"act gave {type(outcome).__name__}; return an Outcome")
    seen: object = outcome.observation
    if not isinstance(seen, Observation):
        _refuse("Outcome.observation", seen, "an Observation")
    success = outcome.success
    return Outcome(
        observation=plain_observation(seen),
        reward=plain_reward(outcome.reward),
        terminated=_plain_flag("Outcome.terminated", outcome.terminated),
        truncated=_plain_flag("Outcome.truncated", outcome.truncated),
        accepted=_plain_flag("Outcome.accepted", outcome.accepted),
        success=None if success is None else _plain_flag("Outcome.success", success, needed="True, False or None"),
        note=quote_line(_plain_text("Outcome.note", outcome.note)),
        facts=plain_facts(outcome.facts),
    )


def plain_key(key: object) -> Hashable:
    """A state key of plain values, equal to the key itself.

    >>> plain_key(("room", (np.int64(2), True)))
    ('room', (2, True))
    """
    found = _plain_entry(key, 0)
    # Text is counted, and so is every entry: a tuple of a million numbers is as long as a book.
    if _size(found) > MAX_CHARACTERS:
        raise EnvironmentFault(f"Observation.state_key has more than {MAX_CHARACTERS:,} characters; shorten it")
    return found


def plain_facts(facts: object) -> dict[str, Any]:
    """What an environment says of a step, as JSON values under names that are free.

    >>> plain_facts({"distance": np.float32(0.5), "seen": ("mug", 2)})
    {'distance': 0.5, 'seen': ['mug', 2]}
    """
    if not isinstance(facts, Mapping):
        _refuse("Outcome.facts", facts, "a dict of JSON values by their names")
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if not isinstance(name, str) or not name:
            _refuse("a name in Outcome.facts", name, "text that is not empty")
        plain_name = _plain_text("a name in Outcome.facts", name)
        where = f"Outcome.facts[{quote_line(repr(plain_name), limit=MAX_SHOWN)}]"
        if plain_name in RESERVED_NAMES:
            raise EnvironmentFault(f"{where} has a name that is taken; call it something else")
        found[plain_name] = _plain_json(where, value, 0)
    if len(found) > MAX_FACTS or _size(found) > MAX_CHARACTERS:
        raise EnvironmentFault(
            f"Outcome.facts has {len(found):,} names, and {_size(found):,} characters and entries; give {MAX_FACTS} "
            f"and {MAX_CHARACTERS:,} at most"
        )
    return found


def plain_reward(reward: object) -> float:
    """A reward as a float.

    >>> plain_reward(np.float32(0.5)), plain_reward(True)
    (0.5, 1.0)
    """
    found = _plain_leaf(reward)
    if isinstance(found, bool | int | float) and -LARGEST_REWARD <= found <= LARGEST_REWARD:
        return float(found)
    _refuse("Outcome.reward", reward, f"a finite number of at most {LARGEST_REWARD:g}")


def plain_advice(advice: object) -> str | None:
    """What an expert advises: text, or None."""
    if advice is None:
        return None
    found = _plain_text("expert()", advice, needed="text or None")
    if len(found) > MAX_CHARACTERS:
        raise EnvironmentFault(f"expert() gave {len(found):,} characters, {MAX_CHARACTERS:,} at most; shorten it")
    return found


def _plain_text(field: str, value: object, *, needed: str = "text") -> str:
    found = _plain_leaf(value)
    if not isinstance(found, str):
        _refuse(field, value, needed)
    if not is_whole(found):
        _refuse(field, value, "text without halves of characters (lone surrogates)")
    return found


def _plain_actions(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        _refuse("Observation.admissible", value, "a tuple of texts or None")
    return tuple(_plain_text("Observation.admissible", action, needed="a tuple of texts") for action in value)


def _plain_flag(field: str, value: object, *, needed: str = _FLAG) -> bool:
    found = _plain_leaf(value)
    if not isinstance(found, bool):
        _refuse(field, value, needed)
    return found


def _plain_entry(value: object, depth: int) -> Hashable:
    """A key, or an entry of one."""
    found = _plain_leaf(value)
    if isinstance(found, str):
        return _plain_text("Observation.state_key", found)
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, tuple) and depth < MAX_DEPTH:
        return tuple(_plain_entry(entry, depth + 1) for entry in found)
    if isinstance(found, int) and -MAX_INTEGER < found < MAX_INTEGER:
        return found
    if isinstance(found, float) and math.isfinite(found):
        return found
    _refuse("Observation.state_key", value, _KEY)


def _plain_json(where: str, value: object, depth: int) -> Any:
    """A fact, or an entry of one; a tuple becomes a list, as in every record of it."""
    found = _plain_leaf(value)
    if isinstance(found, str):
        return _plain_text(where, found)
    if isinstance(found, list | tuple) and depth < MAX_DEPTH:
        return [_plain_json(where, entry, depth + 1) for entry in found]
    if isinstance(found, Mapping) and depth < MAX_DEPTH and all(isinstance(name, str) for name in found):
        return {_plain_text(where, name): _plain_json(where, entry, depth + 1) for name, entry in found.items()}
    if found is None or isinstance(found, bool):
        return found
    if (isinstance(found, int) and -MAX_INTEGER < found < MAX_INTEGER) or (
        isinstance(found, float) and math.isfinite(found)
    ):
        return found
    _refuse(where, value, _FACT)


def _plain_leaf(value: object) -> object:
    """Text, a number or a truth value as Python's own type; what is neither comes back as it is."""
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


def _size(value: object) -> int:
    if isinstance(value, tuple | list):
        return sum(1 + _size(entry) for entry in value)
    if isinstance(value, dict):
        return sum(1 + len(name) + _size(entry) for name, entry in value.items())
    return len(value) if isinstance(value, str) else 0


def is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8, which half of a character cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_length(seen: Observation) -> None:
    """Refuse an observation that no prompt can hold."""
    found = len(seen.text) + len(seen.goal) + sum(map(len, seen.admissible or ()))
    if len(seen.admissible or ()) > MAX_CHARACTERS:
        raise EnvironmentFault(f"an observation lists {len(seen.admissible or ()):,} actions; list fewer")
    if found > MAX_CHARACTERS:
        raise EnvironmentFault(f"an observation has {found:,} characters, {MAX_CHARACTERS:,} at most; shorten it")


def _refuse(field: str, value: object, needed: str) -> NoReturn:
    raise EnvironmentFault(f"{field} is {show_value(value)}; give {needed}")


def show_value(value: object) -> str:
    """A value of somebody else's in a few words: what it looks like, where that says anything, and its type.

    >>> show_value(b"up"), show_value(10**5000), show_value(object())
    ("b'up' (bytes)", 'a int', 'a object')
    """
    name = quote_line(type(value).__name__, limit=MAX_SHOWN)
    try:
        # Of other objects the looks are their address in memory, which differs each time.
        looks = quote_line(reprlib.repr(value), limit=MAX_SHOWN) if isinstance(value, _SHOWN) else ""
    except Exception:  # a repr of somebody else's may raise anything, and a number may be too long to write
        looks = ""
    return f"{looks} ({name})" if looks else f"a {name}"
