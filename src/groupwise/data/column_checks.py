"""Check one column of a user at a time and turn it into an array, or raise an error that names the row.

Axis: N rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from groupwise.data.segments import NOT_COMPARABLE, BoolArray, FloatArray, IntArray, Segments
from groupwise.system.errors import RecordError
from groupwise.system.text import quote_line

Column = Sequence[Any] | npt.NDArray[Any]

LARGEST_REWARD = 1e100
"""The square of a larger reward may not fit into float64. Only sentinels such as -1e300 are larger."""
_MAX_SHOWN = 120
LARGEST_INTEGER = 2**40
"""A larger index, segment or token count is a mistake, and products of codes would overflow."""


def to_column(name: str, column: Any) -> Column:
    """A column that can be read by position: an array or a list; anything else (a pandas Series) becomes a list."""
    if isinstance(column, np.ndarray | list):
        return column
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__"):
        raise RecordError(f"column {name!r} is {quote_value(column)}; give a list or an array with one entry per row")
    return list(column)


def check_lengths(columns: Mapping[str, Column]) -> int:
    """Return the common length of all columns, or say which one differs from the first."""
    expected_name, first_column = next(iter(columns.items()))
    expected = len(first_column)
    for name, column in columns.items():
        if len(column) != expected:
            raise RecordError(
                f"column {name!r} has {len(column)} rows, but column {expected_name!r} has {expected}; "
                "every column needs one entry per row"
            )
    return expected


def to_numbers(name: str, column: Column, *, largest: float = np.inf) -> FloatArray:
    """A column of finite numbers as float64."""
    array = _flat(name, column)
    if array.dtype.kind not in "fiub":
        row = next((i for i, value in enumerate(column) if not _is_number(value)), None)
        if row is not None:
            raise RecordError(
                f"column {name!r}, row {row}: {quote_value(column[row])} is not a number; give every row a number",
                row=row,
            )
    values = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise RecordError(
            f"column {name!r}, row {bad[0]}: found {values[bad[0]]}; drop the rollout or score it before you compute "
            "advantages (a missing score is not 0)",
            row=int(bad[0]),
        )
    bad = np.flatnonzero(np.abs(values) > largest)
    if len(bad):
        raise RecordError(
            f"column {name!r}, row {bad[0]}: found {values[bad[0]]:g}, beyond {largest:g}; this looks like a "
            "placeholder, not a reward: replace or rescale it",
            row=int(bad[0]),
        )
    return values


def to_integers(name: str, column: Column) -> IntArray:
    """A column of integers >= 0."""
    values = _flat(name, column)
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    if values.dtype.kind not in "iu":
        row = next((i for i, value in enumerate(column) if not _is_integer(value)), 0)
        raise RecordError(
            f"column {name!r}, row {row}: {quote_value(column[row])} is not an integer; count from 0", row=row
        )
    bad = np.flatnonzero((values < 0) | (values > LARGEST_INTEGER))
    if len(bad):
        raise RecordError(
            f"column {name!r}, row {bad[0]}: found {values[bad[0]]}; count from 0 upwards", row=int(bad[0])
        )
    return values.astype(np.int64)


def to_flags(name: str, column: Column) -> BoolArray:
    """A column of truth values; 0 and 1 are accepted too."""
    values = _flat(name, column)
    if values.dtype.kind != "b":
        takes = (bool, int, float, np.generic)
        wrong = (i for i, value in enumerate(column) if not (isinstance(value, takes) and value in (0, 1)))
        row = next(wrong, None)
        if row is not None:
            raise RecordError(
                f"column {name!r}, row {row}: {quote_value(column[row])} is neither true nor false", row=row
            )
    return values.astype(np.bool_)


def code_ids(name: str, column: Column) -> tuple[IntArray, list[str] | list[int]]:
    """Code a column of ids (all text or all integers) by their sorted order; return the codes and the sorted ids."""
    if isinstance(column, np.ndarray) or (len(column) and isinstance(column[0], int | np.integer)):
        values = np.asarray(column)
        if values.dtype.kind in "iu":
            return code_integers(values)
    listed = column.tolist() if isinstance(column, np.ndarray) else column
    if not {str}.issuperset(map(type, listed)) and not {int}.issuperset(map(type, listed)):
        listed = [value.item() if isinstance(value, np.generic) else value for value in listed]
        row = next((i for i, value in enumerate(listed) if type(value) not in (str, int)), None)
        if row is not None:
            raise RecordError(
                f"column {name!r}, row {row}: {quote_value(listed[row])} is not an id; use text or integers", row=row
            )
        if len(set(map(type, listed))) > 1:
            raise RecordError(
                f"column {name!r} mixes text and integer ids; use one of the two (1 and '1' would be two ids)"
            )
    ordered = sorted(set(listed))
    return number_values(listed, ordered), ordered


def code_integers(values: npt.NDArray[Any]) -> tuple[IntArray, list[int]]:
    """Code integers by their sorted order; return the codes and the sorted integers."""
    if len(values) and values.min() >= 0 and values.max() <= LARGEST_INTEGER:
        groups = Segments.of(values.astype(np.int64))  # sorts only if the integers are much larger than their number
        return groups.label, values[groups.first].tolist()
    keys, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), keys.tolist()


def code_keys(name: str, column: Column) -> tuple[IntArray, list[Hashable]]:
    """Code a column of hashable keys: equal keys get equal codes. None and NaN become -1 (not comparable)."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu" and column.ndim == 1:
        codes, integers = code_integers(column)
        return codes, list(integers)
    listed = column.tolist() if isinstance(column, np.ndarray) else column
    try:
        codes, keys = code_by_first_seen(listed)
        # Tables of other libraries write None as NaN, which differs from itself.
        known = [key is not None and bool(key == key) for key in keys]
    except TypeError:
        row = next((i for i, value in enumerate(listed) if not _is_hashable(value)), 0)
        raise RecordError(
            f"column {name!r}, row {row}: a {type(listed[row]).__name__} cannot be compared by equality; "
            "use text, a number, a tuple of these, or None for 'not comparable'",
            row=row,
        ) from None
    except Exception as error:  # raised by the `__eq__` or `__hash__` of a user's class
        raise RecordError(
            f"column {name!r} holds keys that cannot be compared ({quote_line(f'{type(error).__name__}: {error}')}); "
            "use text, a number, a tuple of these, or None for 'not comparable'"
        ) from error
    if all(known):
        return codes, keys
    new_code = np.where(known, np.cumsum(known) - 1, NOT_COMPARABLE)
    return new_code[codes], [key for key, keep in zip(keys, known, strict=True) if keep]


def code_by_first_seen(values: Sequence[Any]) -> tuple[IntArray, list[Any]]:
    """Number values by first appearance; return the numbers and the distinct values."""
    distinct = list(dict.fromkeys(values))
    return number_values(values, distinct), distinct


def number_values(values: Sequence[Any], distinct: Sequence[Any]) -> IntArray:
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    return np.fromiter(map(number.__getitem__, values), dtype=np.int64, count=len(values))


def _flat(name: str, column: Column) -> npt.NDArray[Any]:
    try:
        values = np.asarray(column)
    except ValueError:
        values = np.zeros((0, 0))  # rows of different lengths
    if values.ndim != 1:
        raise RecordError(f"column {name!r} holds rows of several entries; give one entry per row")
    return values


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**1000  # a larger one has no float
    return isinstance(value, float | np.integer | np.floating | np.bool_)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) <= LARGEST_INTEGER


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def quote_value(value: object) -> str:
    """A value as messages print it; a long one is cut."""
    try:
        return quote_line(repr(value.item() if isinstance(value, np.generic) else value), limit=_MAX_SHOWN)
    except Exception:  # an integer of thousands of digits, or the `__repr__` of a user's class
        return f"a {type(value).__name__}"
