"""Values and fields of records as JSON that keeps types: tuples stay tuples, keys keep their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

from groupwise.system.errors import RecordError

_TUPLE, _MAP = "tuple", "map"
_LEAVES = frozenset({str, int, float, bool, type(None)})

Reader = Callable[[Any], Any]
"""Reads the value of one field."""


def write_fields(record: Any, *, skip: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a record by name; the error names a field that cannot be written."""
    content = {}
    for entry in fields(record):
        if entry.name not in skip:
            try:
                content[entry.name] = write_value(getattr(record, entry.name))
            except TypeError as error:
                raise RecordError(
                    f"{type(record).__name__}.{entry.name} holds {error}, which cannot be saved for the next update; "
                    "use text, numbers, booleans, None, and lists, tuples and mappings of these, or set rollout.lag = 0"
                ) from None
    return content


def read_fields(content: Mapping[str, Any], readers: Mapping[str, Reader] | None = None) -> dict[str, Any]:
    """Read the fields of a record; `readers` has those that `write_fields` skipped."""
    readers = readers or {}
    return {name: readers.get(name, read_value)(value) for name, value in content.items()}


def write_value(value: Any) -> Any:
    """A value as JSON; TypeError with the type's name if it has no JSON form."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, str | float):  # an enum member, a NumPy number
        return str(value) if isinstance(value, str) else float(value)
    if isinstance(value, list | tuple):
        # Fast path for long lists of numbers.
        entries = value if _LEAVES.issuperset(map(type, value)) else [write_value(entry) for entry in value]
        return {_TUPLE: entries} if isinstance(value, tuple) else entries
    if isinstance(value, Mapping):
        return {_MAP: [(write_value(key), write_value(entry)) for key, entry in value.items()]}
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__}")


def read_value(value: Any) -> Any:
    """Read a value; ValueError if it is not as `write_value` writes it."""
    if isinstance(value, list):
        return value if _LEAVES.issuperset(map(type, value)) else [read_value(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    ((kind, entries),) = value.items()
    if kind == _TUPLE:
        return tuple(read_value(entries))
    if kind != _MAP:
        raise ValueError(f"a value is neither a {_TUPLE} nor a {_MAP} but {kind!r}")
    return {read_value(key): read_value(entry) for key, entry in entries}
