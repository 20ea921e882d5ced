"""A record of another program. Its fields are read one by one; an error names the line and the field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.store.rollout_lines import JsonLines, Progress
from groupwise.store.rollout_rows import quote_json
from groupwise.system.errors import FileError
from groupwise.system.json_text import LARGEST_FLOAT, to_canonical_json


def read_records(lines: JsonLines, progress: Progress | None) -> Iterator[Record]:
    """Every line of another program's file, which must be an object."""
    for line, value in lines.values(progress):
        if not isinstance(value, dict):
            raise FileError(
                f"{lines.path}, line {line}: found {quote_json(value)} instead of an object; check the format", row=line
            )
        yield Record(lines.path, line, value)


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of another program's file, with its place.

    Programs that use `json.dumps(..., default=str)` write numpy numbers and booleans as text ("1.0", "True"). Such text
    is read as the number or boolean.
    """

    path: Path
    line: int
    fields: dict[str, Any]
    inside: str = ""
    """Path of the object in the line, such as "traces[0].nodes[3]"; empty for the line itself."""
    unit: str = "line"
    """What `line` counts: lines, or rows of a Parquet file."""

    def error(self, name: str, fault: str, advice: str) -> FileError:
        where = f"{self.path}, {self.unit} {self.line}: field {self._path_of(name)!r}"
        return FileError(f"{where} {fault}; {advice}", row=self.line)

    def _path_of(self, name: str) -> str:
        return f"{self.inside}.{name}" if self.inside else name

    def first(self, names: Iterable[str]) -> str | None:
        return next((name for name in names if name in self.fields), None)

    def id(self, name: str) -> str | int:
        value = self._require(name)
        if type(value) is str or type(value) is int:
            return value
        raise self.error(name, f"is {quote_json(value)}", "an id is text or an integer")

    def number(self, name: str) -> float:
        """A number, also one written as text."""
        value = self._require(name)
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                pass
        elif type(value) is float or (type(value) is int and -LARGEST_FLOAT <= value <= LARGEST_FLOAT):
            return value
        raise self.error(name, f"is {quote_json(value)}", "it takes a number")

    def integer(self, name: str) -> int:
        value = self.number(name)
        if value != value // 1:
            raise self.error(name, f"is {quote_json(value)}", "it takes a whole number")
        return int(value)

    def truth(self, name: str) -> bool:
        """A boolean, also one written as text or as 0 or 1."""
        value = self._require(name)
        for meaning, spellings in ((True, (1, "True", "true")), (False, (0, "False", "false"))):
            if value in spellings:
                return meaning
        raise self.error(name, f"is {quote_json(value)}", "it takes true or false")

    def flag(self, name: str, *, default: bool = False) -> bool:
        return default if self.fields.get(name) is None else self.truth(name)

    def integers(self, name: str) -> list[int]:
        """A list of whole numbers; absent = empty."""
        return self._read_list(name, {int}, "a list of integers")

    def numbers(self, name: str) -> list[float]:
        """A list of numbers in the range of a float; absent = empty."""
        values = self._read_list(name, {int, float}, "a list of numbers")
        if any(type(value) is int and not -LARGEST_FLOAT <= value <= LARGEST_FLOAT for value in values):
            raise self.error(name, f"is {quote_json(values)}", "it takes a list of numbers")
        return values

    def truths(self, name: str) -> list[bool]:
        """A list of booleans, also as 0 and 1; absent = empty."""
        values = self._read_list(name, {int, bool}, "a list of true and false")
        if not {0, 1}.issuperset(values):
            raise self.error(name, f"is {quote_json(values)}", "it takes a list of true and false")
        return values

    def text(self, name: str | None) -> str | None:
        """A text; None if the field is absent or holds another type."""
        value = self.fields.get(name) if name is not None else None
        return value if isinstance(value, str) else None

    def record(self, name: str) -> Record | None:
        """An object inside this one; absent = None."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, f"is {quote_json(value)}", "it takes an object")
        return Record(self.path, self.line, value, self._path_of(name))

    def records(self, name: str) -> list[Record]:
        """A list of objects inside this one; absent = empty."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(inner, dict) for inner in value):
            raise self.error(name, f"is {quote_json(value)}", "it takes a list of objects")
        prefix = self._path_of(name)
        return [Record(self.path, self.line, inner, f"{prefix}[{i}]") for i, inner in enumerate(value)]

    def _read_list(self, name: str, kinds: set[type], takes: str) -> list[Any]:
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not kinds.issuperset(map(type, value)):
            raise self.error(name, f"is {quote_json(value)}", f"it takes {takes}")
        return value

    def _require(self, name: str) -> Any:
        if self.fields.get(name) is None:
            raise self.error(name, "is missing", "the format needs it")
        return self.fields[name]


def make_id(value: Any) -> str:
    """An id for a value without one: a digest of its content."""
    return hashlib.blake2b(to_canonical_json(value).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
