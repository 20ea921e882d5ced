"""Every error a user can meet, as one tree.

    GroupwiseError
    ├── ConfigError        a part, a recipe or a run file says something that cannot be meant
    ├── RecordError        recorded data breaks a promise: a missing column, a NaN, two rows with one identity
    │   └── FileError      a rollouts file cannot be read: truncated, corrupt, of another format or version
    ├── EnvironmentFault   an environment raised, hung or died
    ├── EngineFault        an engine was asked for what it cannot do, or failed
    └── TrainingError      a run cannot go on: a NaN, weights that did not arrive, too few survivors

A message says *where* (path, row or key), *what was found*, and *what to do next*.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_NAMES = 32
"""How many valid names an error message lists."""


class GroupwiseError(ValueError):
    """Root of the tree; the command line prints it as one line and exits with status 2."""


class ConfigError(GroupwiseError):
    """A part, a recipe or a run file says something that cannot be meant."""


class RecordError(GroupwiseError):
    """Recorded data breaks a promise of its record."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        """The offending row, where there is one, so that a reader can name the line of the file."""


class FileError(RecordError):
    """A rollouts file cannot be read."""


class EnvironmentFault(GroupwiseError):
    """An environment raised, hung or died; stored on its trajectory."""


class EngineFault(GroupwiseError):
    """An engine was asked for what it cannot do, or failed."""


class TrainingError(GroupwiseError):
    """A run cannot go on."""


def nearest(name: str, valid: Iterable[str], *, limit: int = MAX_NAMES) -> str:
    """Finish an error message about an unknown name: the nearest valid one, then all of them, up to the limit.

    >>> nearest("dpth", ["depth", "alpha"])
    "did you mean 'depth'? Valid: alpha, depth"
    """
    names = sorted(valid)
    close = find_nearest(name, names)
    hint = f"did you mean {close!r}? " if close else ""
    return f"{hint}Valid: {list_names(names, limit=limit)}"


def find_nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that an unknown one was probably meant to be; None where there is none like it."""
    return next(iter(get_close_matches(name, sorted(valid), n=1, cutoff=0.5)), None)


def list_names(names: Iterable[str], *, limit: int = MAX_NAMES) -> str:
    """Names in order, for an error message; if there are more than the limit, the first of them and how many."""
    ordered = sorted(names)
    rest = f", ... ({len(ordered)} in all)" if len(ordered) > limit else ""
    return f"{', '.join(ordered[:limit]) or '(none)'}{rest}"
