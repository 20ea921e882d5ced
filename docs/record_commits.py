"""Which commits records of measurements name, for the scripts that write pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from table_text import RESULTS, result

WITHOUT_DEVICE = ("alfworld_imitation",)
"""Records of a GPU that do not name it."""
NOT_IN_HISTORY = ("14184c2418d9dafacebeeca68940440ea5908e72",)
"""Commits that records name and that this repository does not have."""


def list_gpu_records() -> list[str]:
    """The records of a GPU, by their names below `benchmarks/results`."""
    stems = [path.relative_to(RESULTS).with_suffix("").as_posix() for path in sorted(RESULTS.rglob("*.json"))]
    return [
        stem
        for stem in stems
        if stem in WITHOUT_DEVICE or "H200" in (RESULTS / f"{stem}.json").read_text(encoding="utf-8")
    ]


def find_commits(record: Any) -> list[str]:
    """The commits that were measured, as the record and the runs in it name them; each once, in their order."""
    return list(dict.fromkeys(_find_commits(record)))


def _find_commits(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for name, value in content.items():
            if name == "commit" and value:
                yield value
            else:
                yield from _find_commits(value)
    elif isinstance(content, list):
        for entry in content:
            yield from _find_commits(entry)


def shorten_commit(commit: str) -> str:
    """A commit as pages show it: its first eight characters, and whether the code was changed.

    >>> shorten_commit("0123456789abcdef-changed")
    '01234567-changed'
    """
    commit, has_changed, _ = commit.partition("-changed")
    return commit[:8] + has_changed


def shorten_commits(record: dict[str, Any]) -> list[str]:
    """What pages name of a record: the commits that were measured, or else those that brought its numbers."""
    return [shorten_commit(commit) for commit in find_commits(record) or record["came_with_commits"]]


def commit_cell(record: dict[str, Any]) -> str:
    """The commits as a cell of a table; in brackets if they are not those that were measured."""
    cell = ", ".join(f"`{commit}`" for commit in shorten_commits(record))
    return cell if find_commits(record) else f"({cell})"


def commit_sentence(name: str) -> str:
    """The commits of a record in words, on a line."""
    record = result(name)
    measured = find_commits(record)
    shown = [
        f"`{shorten_commit(commit)}`" + (" (not in the history of this repository)" if commit in NOT_IN_HISTORY else "")
        for commit in measured or record["came_with_commits"]
    ]
    if measured:
        return f"Commit{'s' * (len(shown) > 1)} of `{name}.json`: {', '.join(shown)}.\n"
    return f"Commit of `{name}.json`: not recorded; its numbers came into the repository with {' and '.join(shown)}.\n"
