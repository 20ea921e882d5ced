"""What the rows of one file must agree on."""

from __future__ import annotations

from groupwise.core.step_fields.code import compile_function
from groupwise.core.step_fields.table import STEP_FIELDS
from groupwise.recordings.row import Row, quote_json

_EITHER = ("tokens", "response_ids")
"""Two ways to say one thing."""
_TOKENS = " or ".join(f"{name!r} in row" for name in _EITHER)
_BY_ITSELF = tuple(field.name for field in STEP_FIELDS if field.uniform and field.name not in _EITHER)
UNIFORM = (*_BY_ITSELF, "tokens")
"""Keys that every row of a file has, or none: a default for the others would be an invented number."""

_presence = compile_function("row", f"return {', '.join(f'{name!r} in row' for name in _BY_ITSELF)}, {_TOKENS}")
"""Which of these a row has."""

_IDS = ("task", "group", "attempt")


class Uniformity:
    """What the rows of one file must agree on: which columns there are, and whether ids are text or integers.

    The chunks of a large file are read apart, so what would be one mixed column must be caught while streaming.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._first: int | None = None
        self._has: tuple[bool, ...] = ()
        self._kinds: tuple[type, ...] = ()

    def find_fault(self, number: int, row: Row) -> str | None:
        """What sets this row apart from the first one, or None; `number` is its line or row."""
        has = _presence(row)
        kinds = (type(row["task"]), type(row.get("group")), type(row["attempt"]))
        if self._first is None:
            self._first, self._has, self._kinds = number, has, kinds
        if has != self._has:
            return self._describe_presence_fault(has)
        if kinds != self._kinds:
            return self._describe_kind_fault(row, kinds)
        return None

    def _describe_presence_fault(self, has: tuple[bool, ...]) -> str:
        position = next(i for i, present in enumerate(has) if present != self._has[i])
        name = "'tokens' or 'response_ids'" if UNIFORM[position] in _EITHER else repr(UNIFORM[position])
        here, there = ("has", "has none") if has[position] else ("no", "has one")
        return f"{here} {name}, but {self._unit} {self._first} {there}; give it to every row or to none"

    def _describe_kind_fault(self, row: Row, kinds: tuple[type, ...]) -> str:
        position = next(i for i, kind in enumerate(kinds) if kind is not self._kinds[i])
        name = _IDS[position]
        there = "text" if self._kinds[position] is str else "an integer"
        return (
            f"key {name!r} is {quote_json(row.get(name))}, but {self._unit} {self._first} has {there}; "
            "use text or integers throughout (1 and '1' would be two ids)"
        )
