"""Which columns of anybody's file are which keys of a row: `task=prompt_id,reward=score`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.step_fields.table import RESERVED_NAMES
from groupwise.recordings.row import KEYS

EXTRA = "extra."
"""What the name of a further column begins with."""
REQUIRED = ("task", "reward")
"""Keys that no file can do without; attempts and steps are otherwise numbered in the order of the file."""
EXAMPLE = "task=prompt_id,reward=score"

_MAPPED_KEYS = tuple(name for name in KEYS if name != "extra")


@dataclass(frozen=True)
class ColumnMap:
    """The columns of a file by the keys of a row that they are, checked.

    Worked example: `ColumnMap.parse(["task=prompt_id,reward=reward_model.score"])` takes the task from the column
    `prompt_id`, and the reward from the field `score` of the objects in the column `reward_model`.
    """

    columns: Mapping[str, str]
    """Key of a row to a column of the file; dots lead into objects (`a.b`) and lists (`a.0`, `a.-1` for the last)."""

    def __post_init__(self) -> None:
        for key, column in self.columns.items():
            _check_key(key)
            if not column:
                raise ConfigError(f"column map: key {key!r} has no column; write {key}=COLUMN")
        for key in REQUIRED:
            if key not in self.columns:
                raise ConfigError(f"column map: no column for {key!r}; a map needs task and reward, such as {EXAMPLE}")
        if "index" in self.columns and "attempt" not in self.columns:
            raise ConfigError(
                "column map: 'index' without 'attempt'; the position of a step needs the attempt it is a step of: "
                "map the attempt's column too, or leave the index out"
            )

    @classmethod
    def parse(cls, entries: Iterable[str]) -> ColumnMap:
        """The map that texts such as `task=prompt_id,reward=score` write down."""
        columns: dict[str, str] = {}
        for entry in (part.strip() for text in entries for part in text.split(",")):
            key, equals, column = (word.strip() for word in entry.partition("="))
            if not equals or not key:
                raise ConfigError(f"column map: {entry!r} is no KEY=COLUMN; write it as in {EXAMPLE}")
            if key in columns:
                raise ConfigError(
                    f"column map: {key!r} stands twice, as {columns[key]!r} and {column!r}; leave one of the two out"
                )
            columns[key] = column
        return cls(columns)


def _check_key(key: str) -> None:
    if key.startswith(EXTRA):
        name = key.removeprefix(EXTRA)
        if not name or name in RESERVED_NAMES:
            fault = f"{name!r} is taken" if name else "it has no name"
            raise ConfigError(f"column map: a further column cannot be {key!r} ({fault}); write extra.NAME=COLUMN")
    elif key not in _MAPPED_KEYS:
        advice = f"{nearest(key, _MAPPED_KEYS)} (further columns are extra.NAME)"
        raise ConfigError(f"column map: unknown key {key!r}; {advice}")
