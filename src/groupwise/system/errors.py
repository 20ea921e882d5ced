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

from collections.abc import Iterable, Sequence

MAX_NAMES = 5
"""How many valid names an error message lists."""
MAX_NAME = 200
"""Characters of a name that others are compared with: the time grows with the square."""


class GroupwiseError(ValueError):
    """Root of the tree; the command line prints it as one line and exits with status 2."""


class ConfigError(GroupwiseError):
    """A part, a recipe or a run file says something that cannot be meant."""

    def __init__(self, message: str, *, key: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.key = tuple(key)
        """The path of the offending setting, where it is known, so that a reader can name the file that it is in."""


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


def nearest(name: str, valid: Iterable[str], *, listed_by: str = "") -> str:
    """Finish an error message about an unknown name: the nearest valid name, then at most five valid ones.

    `listed_by` is the command that lists all of them, if there is one.

    >>> nearest("dpth", ["depth", "alpha"])
    "did you mean 'depth'? Valid: alpha, depth"
    """
    names = sorted(valid)
    near = find_near(name, names)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = [*near, *(other for other in names if other not in near)] if len(names) > MAX_NAMES else names
    return f"{hint}Valid: {list_names(shown, listed_by=listed_by)}"


def find_near(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that an unknown one was probably meant to be, nearest first, at most five.

    A name is near if at most half of its characters have to change.

    >>> find_near("gpro", ["hgpo", "grpo", "dpo", "reinforce"])
    ['grpo', 'dpo', 'hgpo']
    """
    if len(name) > MAX_NAME:
        return []
    alike = [other for other in valid if 2 * abs(len(name) - len(other)) <= max(len(name), len(other))]
    distances = {other: count_edits(name, other) for other in alike}
    near = [other for other, edits in distances.items() if 2 * edits <= max(len(name), len(other))]
    return sorted(near, key=lambda other: (distances[other] / max(len(name), len(other), 1), other))[:MAX_NAMES]


def count_edits(first: str, second: str) -> int:
    """How many characters to insert, drop, replace or swap with the next make one text of another.

    Damerau and Levenshtein's distance, in which no part of a text is edited twice ("optimal string alignment").

    >>> count_edits("gpro", "grpo"), count_edits("gpro", "hgpo"), count_edits("", "ab")
    (1, 2, 2)
    """
    while first and second and first[0] == second[0]:  # what they begin with alike costs nothing
        first, second = first[1:], second[1:]
    before: list[int] = []
    above: list[int] = [*range(len(second) + 1)]
    for row, letter in enumerate(first, start=1):
        line: list[int] = [row]
        for column, other in enumerate(second, start=1):
            edits = min(above[column] + 1, line[-1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and first[row - 2 : row] == second[column - 2 : column][::-1]:
                edits = min(edits, before[column - 2] + 1)
            line.append(edits)
        before, above = above, line
    return above[-1]


def list_names(names: Iterable[str], *, listed_by: str = "") -> str:
    """Names for an error message; of many the first five, how many there are, and which command lists them all."""
    listed = list(names)
    command = f"; {listed_by} lists them" if listed_by else ""
    rest = f", ... ({len(listed)} in all{command})" if len(listed) > MAX_NAMES else ""
    return f"{', '.join(listed[:MAX_NAMES]) or '(none)'}{rest}"
