"""Opening recorded rollouts of any format that groupwise reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.core.errors import ConfigError, FileError, nearest
from groupwise.core.run_paths import JOURNAL
from groupwise.recordings import RolloutsFile, Source
from groupwise.recordings.foreign.column_map import EXAMPLE, ColumnMap
from groupwise.recordings.foreign.mapped_rows import MappedSource
from groupwise.recordings.foreign.verifiers_traces import VerifiersSource
from groupwise.recordings.foreign.verl_agent import VerlAgentSource
from groupwise.recordings.foreign.verl_generations import VerlGenerationsSource
from groupwise.recordings.header import FORMAT, is_header
from groupwise.recordings.journal_source import JournalSource
from groupwise.recordings.lines import PARQUET_MAGIC, JsonLines, read_first_bytes
from groupwise.recordings.parquet_file import ParquetFile
from groupwise.recordings.row import quote_json

AUTO = "auto"
GROUPWISE = "groupwise"


def list_formats() -> tuple[str, ...]:
    """Names that `open_rollouts` takes."""
    return (AUTO, GROUPWISE, *FOREIGN)


def open_rollouts(path: str | Path, *, format: str = AUTO, columns: Mapping[str, str] | None = None) -> RolloutsFile:
    """Open recorded rollouts.

    Args:
        path: the file, plain or gzip, or a groupwise Parquet file; or the folder of a run, whose journal is read.
        format: "groupwise", "verl_agent" (step dumps of verl-agent and its forks, and verl's own `{update}.jsonl`),
            "verifiers" (`traces.jsonl` of verifiers 0.4), or "auto" to go by the first line.
        columns: of a file of no such format, which of its columns is which key of a row, such as
            `{"task": "prompt_id", "reward": "reward_model.score"}`; see `groupwise.recordings.foreign.mapped_rows`.
    """
    path = Path(path)
    if columns is not None:
        return _open_mapped(path, ColumnMap(columns), format)
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
            f"name the format ({', '.join(list_formats()[1:])}), say which columns are which "
            f"(`--map {EXAMPLE}`), or write the file with groupwise.recordings.write_rollouts"
        )
    if name == GROUPWISE:
        return RolloutsFile.open(path)
    return RolloutsFile.of(path, FOREIGN[name](lines, first))


def _open_mapped(path: Path, columns: ColumnMap, format: str) -> RolloutsFile:
    """Open anybody's file; one that says by itself what its columns are needs no map."""
    if format != AUTO:
        raise ConfigError(f"format {format!r} and a column map; a format knows its columns: leave one of the two out")
    if is_run(path):
        raise ConfigError(f"{path}: this is the folder of a run, which needs no column map; leave the map out")
    if read_first_bytes(path) == PARQUET_MAGIC:
        parquet = ParquetFile(path)
        with parquet.open() as file:
            is_ours = FORMAT.encode() in parquet.read_notes(file)
        records: JsonLines | ParquetFile = parquet
    else:
        records = JsonLines.open(path)
        is_ours = is_header(records.first())
    if is_ours:
        raise ConfigError(f"{path}: this is a groupwise rollouts file, which needs no column map; leave the map out")
    return RolloutsFile.of(path, MappedSource.of(records, columns))


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
