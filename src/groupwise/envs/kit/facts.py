"""How environments write what they tell of a step beside its outcome.

An environment lists the facts that it may tell in a class variable `writes`, as measures do; one name is one thing in
all of them, as the table of `docs/build_facts.py` says. What an environment cannot know of a step is absent there: no
0, no False and no empty text stands for "not known".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from groupwise.data.field_kinds import is_finite, is_flag, is_integer
from groupwise.envs.kit.words import split_words
from groupwise.system.text import escape_surrogates

MAX_TEXT_CHARACTERS = 1000
"""Characters of what a policy said that a fact holds: an answer of any length must not be a fault."""
STAGES = ("read", "fits", "right")
"""The checks of a step in their order: a later one is made only where those before it passed."""


def write_text(text: str) -> str:
    """What a policy said as facts hold it: no half characters, and not longer than anything that is meant."""
    return escape_surrogates(text[:MAX_TEXT_CHARACTERS])


def write_value(value: Any) -> Any:
    """An argument of a call as a JSON value; what JSON has not becomes its text, so that no argument is a fault.

    >>> write_value((1, 2.5, {3: b"x"})), write_value(float("inf"))
    ([1, 2.5, {'3': "b'x'"}], 'inf')
    """
    if isinstance(value, str):
        return write_text(value)
    if value is None or is_flag(value) or is_integer(value) or (is_finite(value) and type(value) is float):
        return value
    if isinstance(value, list | tuple):
        return [write_value(entry) for entry in value]
    if isinstance(value, dict):
        return {write_text(str(name)): write_value(entry) for name, entry in value.items()}
    return write_text(repr(value))


def write_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call as facts hold it.

    >>> write_call("search", {"person": "anna"})
    {'name': 'search', 'arguments': {'person': 'anna'}}
    """
    return {"name": write_text(name), "arguments": write_value(dict(arguments))}


def write_checks(*, read: bool, fits: bool | None = None, right: bool | None = None) -> dict[str, bool]:
    """The checks that were made of a step, in their order; None = it did not come to that.

    >>> write_checks(read=True, fits=False)
    {'read': True, 'fits': False}
    """
    return {stage: passed for stage, passed in zip(STAGES, (read, fits, right), strict=True) if passed is not None}


def list_named(entities: Iterable[str], text: str) -> list[str]:
    """Those of some entities that a text names, word by word and in any case.

    >>> list_named(["Ben", "New Town", "Oslo"], "ben went to New Townley, then to Oslo.")
    ['Ben', 'Oslo']
    """
    words = f" {' '.join(split_words(text))} "
    return [entity for entity in entities if f" {' '.join(split_words(entity))} " in words]
