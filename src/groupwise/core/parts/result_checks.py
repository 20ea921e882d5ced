"""What a result of a part must be: in words, as a check, and what is said of one that is something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from groupwise.core.text.value_words import describe_value

Arguments = tuple[Any, ...]
"""What a method was called with, by position."""
Check = Callable[[Any, Arguments], bool]
"""Whether a result is what is needed, given what the method was called with."""


class RequiredResult(NamedTuple):
    """What a method must return."""

    words: str
    """In words, after "but"."""
    fits: Check
    """Whether a result is that."""
    find_fault: Callable[[Any, Arguments], str] = lambda result, arguments: describe_value(result)
    """What came instead, in words."""


def is_array(result: Any, kinds: str, size: int) -> bool:
    """Whether a result is an array of one axis, of so many entries, of one of these kinds of dtype."""
    return isinstance(result, np.ndarray) and result.dtype.kind in kinds and result.shape == (size,)


def is_finite_array(result: Any, size: int) -> bool:
    """Whether a result is an array of so many finite floats."""
    return is_array(result, "f", size) and bool(np.isfinite(result).all())


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no boolean."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_nonnegative_integer(value: Any) -> bool:
    """Whether a value is a whole number from 0 upwards."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def is_list_of(result: Any, kind: type | str) -> bool:
    """Whether a result is a list or tuple of a record; by the name of its class, where core does not know it."""
    if not isinstance(result, list | tuple):
        return False
    return all(type(entry).__name__ == kind if isinstance(kind, str) else isinstance(entry, kind) for entry in result)


def has_members(*names: str) -> Check:
    """Make the check of whether a result has methods and attributes of these names."""
    return lambda result, arguments: all(hasattr(result, name) for name in names)


TEXT = RequiredResult("text", lambda result, arguments: isinstance(result, str))
WORDS = RequiredResult("a tuple of words", lambda result, arguments: is_list_of(result, str))
NAMES = RequiredResult("a frozenset of names", lambda result, arguments: isinstance(result, frozenset))
