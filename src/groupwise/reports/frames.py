"""Rows as a table of the library that somebody works with: pandas or polars, whichever is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from groupwise.core.errors import ConfigError

FrameLibrary = Literal["pandas", "polars"]
LIBRARIES: tuple[FrameLibrary, ...] = ("pandas", "polars")
"""In the order in which they are looked for where nobody says which."""


def make_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], library: FrameLibrary | None = None) -> Any:
    """A data frame of rows: a column for each name, None where a row lacks it; `library` None = what is installed."""
    chosen = import_module(library or find_library())
    cells = list(rows)
    return chosen.DataFrame({name: [row.get(name) for row in cells] for name in columns})


def find_library() -> FrameLibrary:
    """The first library that is installed; where none is, how to get one."""
    for name in LIBRARIES:
        if find_spec(name) is not None:
            return name
    raise ConfigError("a data frame needs pandas or polars: pip install 'groupwise[pandas]' or 'groupwise[polars]'")


def check_library(library: FrameLibrary | None) -> FrameLibrary:
    """The library that is asked for, or else found; an error where it is not installed or not known."""
    if library is None:
        return find_library()
    if library not in LIBRARIES:
        raise ConfigError(f"frames={library!r} is no library of data frames that is known; give 'pandas' or 'polars'")
    if find_spec(library) is None:
        raise ConfigError(f"{library} is not installed: pip install 'groupwise[{library}]'")
    return library
