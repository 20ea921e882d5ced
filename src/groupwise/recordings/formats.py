"""Opening recorded rollouts of any format that groupwise reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.core.errors import ConfigError, FileError, nearest
from groupwise.core.run_paths import JOURNAL
from groupwise.recordings import RolloutsFile, Source
from groupwise.recordings.foreign.verifiers_traces import VerifiersSource
from groupwise.recordings.foreign.verl_agent import VerlAgentSource
from groupwise.recordings.foreign.verl_generations import VerlGenerationsSource
from groupwise.recordings.header import is_header
from groupwise.recordings.journal_source import JournalSource
from groupwise.recordings.lines import PARQUET_MAGIC, JsonLines, read_first_bytes
from groupwise.recordings.row import quote_json

AUTO = "auto"
GROUPWISE = "groupwise"


def list_formats() -> tuple[str, ...]:
    """Names that `open_rollouts` takes."""
    return (AUTO, GROUPWISE, *FOREIGN)


def open_rollouts(path: str | Path, *, format: str = AUTO) -> RolloutsFile:
    """Open recorded rollouts.

    Args:
        path: the file, plain or gzip, or a groupwise Parquet file; or the folder of a run, whose journal is read.
        format: "groupwise", "verl_agent" (step dumps of verl-agent and its forks, and verl's own `{update}.jsonl`),
            "verifiers" (`traces.jsonl` of verifiers 0.4), or "auto" to go by the first line.
    """
    path = Path(path)
    if format not in list_formats():
        raise ConfigError(f"unknown rollouts format {format!r}; {nearest(format, list_formats())}")
    if is_run(path):
        return RolloutsFile.of(path / JOURNAL, JournalSource(path / JOURNAL))
    if format == GROUPWISE or read_first_bytes(path) == PARQUET_MAGIC:
        return RolloutsFile.open(path)
    lines = JsonLines.open(path)
    first = lines.first()
    if first is None:
        return RolloutsFile.open(path)
    name = recognise_format(first) if format == AUTO else format
    if name is None:
        raise FileError(
            f"{path}, line 1: found {_describe_value(first)}, which is of no format that groupwise reads by itself; "
            f"name the format ({', '.join(list_formats()[1:])}), or write the file with "
            "groupwise.recordings.write_rollouts"
        )
    if name == GROUPWISE:
        return RolloutsFile.open(path)
    return RolloutsFile.of(path, FOREIGN[name](lines, first))


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run, whose journal is read."""
    try:
        return path.is_dir() and (path / JOURNAL).is_file()
    except OSError:  # a name that is too long, a folder that may not be entered: reading it tells
        return False


def recognise_format(first: Any) -> str | None:
    """The format of a file by the value on its first line, or None."""
    if is_header(first):
        return GROUPWISE
    if not isinstance(first, dict):
        return None
    if isinstance(first.get("traces"), list) or isinstance(first.get("nodes"), list):
        return "verifiers"
    if "traj_uid" in first or _is_generation(first):
        return "verl_agent"
    return None


def _is_generation(first: Any) -> bool:
    return isinstance(first, dict) and "traj_uid" not in first and {"input", "output", "score"} <= first.keys()


def _verl_agent(lines: JsonLines, first: Any) -> Source:
    return VerlGenerationsSource(lines) if _is_generation(first) else VerlAgentSource(lines)


def _verifiers(lines: JsonLines, first: Any) -> Source:
    return VerifiersSource(lines)


def _describe_value(first: Any) -> str:
    if not isinstance(first, dict):
        return quote_json(first)
    names = ", ".join(list(first)[:8])
    return f"an object with {names}{', …' if len(first) > 8 else ''}" if first else "an empty object"


FOREIGN: dict[str, Callable[[JsonLines, Any], Source]] = {"verl_agent": _verl_agent, "verifiers": _verifiers}
"""Reader of each foreign format, made for a file and the value on its first line."""
