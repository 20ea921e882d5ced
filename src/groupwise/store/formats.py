"""Opens recorded rollouts of any format that groupwise reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.data.past_rollouts import Remembered, number_at
from groupwise.store import RolloutsFile
from groupwise.store.journal import Journal
from groupwise.store.mapped_rows import EXAMPLE, ColumnMap, choose_columns, read_mapped_rows
from groupwise.store.parquet import ParquetFile
from groupwise.store.rollout_lines import FORMAT, PARQUET_MAGIC, JsonLines, Progress, is_header, read_first_bytes
from groupwise.store.rollout_rows import RolloutRow, quote_json
from groupwise.store.run_folder import JOURNAL
from groupwise.store.verifiers import read_verifiers_rows
from groupwise.store.verl import read_verl_agent_rows, read_verl_generations
from groupwise.system.errors import ConfigError, FileError, nearest

AUTO = "auto"
GROUPWISE = "groupwise"


def list_formats() -> tuple[str, ...]:
    return (AUTO, GROUPWISE, *FOREIGN)


def open_rollouts(path: str | Path, *, format: str = AUTO, columns: Mapping[str, str] | None = None) -> RolloutsFile:
    """Open recorded rollouts.

    Args:
        path: a JSON Lines file, plain or gzip, a groupwise Parquet file, or a run folder, whose journal is read.
        format: "groupwise", "verl_agent" (step dumps of verl-agent and its forks, and verl's own `{update}.jsonl`),
            "verifiers" (`traces.jsonl` of verifiers 0.4), or "auto" to recognise it by the first line.
        columns: for any other format, the file's column for each key of a row, such as
            `{"task": "prompt_id", "reward": "reward_model.score"}`; see `groupwise.store.mapped_rows`.
    """
    path = Path(path)
    if columns is not None:
        return _open_mapped(path, ColumnMap(columns), format)
    if format not in list_formats():
        raise ConfigError(f"unknown rollouts format {format!r}; {nearest(format, list_formats())}")
    if is_run(path):
        journal = path / JOURNAL
        return RolloutsFile(journal, {}, journal.stat().st_size, "step", True, partial(read_journal_rows, journal))
    if format == GROUPWISE or read_first_bytes(path) == PARQUET_MAGIC:
        return RolloutsFile.open(path)
    lines = JsonLines.open(path)
    first = lines.first()
    if first is None:
        return RolloutsFile.open(path)
    name = recognise_format(first) if format == AUTO else format
    if name is None:
        found = quote_json(first)
        if isinstance(first, dict):
            names = ", ".join(list(first)[:8])
            found = f"an object with {names}{', …' if len(first) > 8 else ''}" if first else "an empty object"
        raise FileError(
            f"{path}, line 1: found {found}, which is of no format that groupwise recognises; name the format "
            f"({', '.join(list_formats()[1:])}), map its columns (`--map {EXAMPLE}`), or write the file with "
            "groupwise.store.write_rollouts"
        )
    if name == GROUPWISE:
        return RolloutsFile.open(path)
    read_as, read_rows = FOREIGN[name]
    if _is_generation(first) and name == "verl_agent":
        read_as, read_rows = "verl generations", read_verl_generations
    return RolloutsFile.of(lines, partial(read_rows, lines), {"read_as": read_as})


def _open_mapped(path: Path, columns: ColumnMap, format: str) -> RolloutsFile:
    """Open a file with a column map; a run folder or a groupwise file needs none."""
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
    file = choose_columns(records, columns)
    meta = {"read_as": "mapped columns", "columns": dict(columns.columns)}
    return RolloutsFile.of(file, partial(read_mapped_rows, file, columns.columns), meta)


def is_run(path: Path) -> bool:
    """Whether a path is a run folder, whose journal is read."""
    try:
        return path.is_dir() and (path / JOURNAL).is_file()
    except OSError:  # for example a name that is too long: reading it reports the error
        return False


def recognise_format(first: Any) -> str | None:
    """The format of a file from the value of its first line, or None."""
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


FOREIGN = {"verl_agent": ("verl_agent", read_verl_agent_rows), "verifiers": ("verifiers", read_verifiers_rows)}
"""The format names of other programs, each with what errors and reports call it and its reader."""


def read_journal_rows(
    path: Path, progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every step of a run, numbered from 1. The rollouts of one task in one update are a group."""
    number, size = 0, path.stat().st_size
    with Journal(path, read_only=True) as journal:
        updates = journal.update_numbers()
        for done, update in enumerate(updates, start=1):
            remembered: dict[Any, dict[str, Remembered]] = {}  # by task, then by column
            for state in journal.states_before(update):
                for name, by_task in state.columns.items():
                    for task, value in by_task.items():
                        remembered.setdefault(task, {})[name] = value
            for trajectory in journal.trajectories(update):
                if not trajectory["steps"]:
                    left_out["rollouts without a step"] += 1
                rows: list[RolloutRow] = trajectory["steps"]
                if not isinstance(rows, list) or not all(
                    isinstance(row, dict) and "task" in row and type(row.get("step")) is int for row in rows
                ):
                    raise FileError(
                        f"{path}: the steps of a rollout in update {update} are {quote_json(rows)}; the "
                        "journal is damaged: use another copy of the run"
                    )
                for row in rows:
                    number += 1
                    if row["task"] in remembered:
                        known = remembered[row["task"]]
                        row["extra"] = {
                            **row.get("extra", {}),
                            **{name: number_at(value, row["step"]) for name, value in known.items()},
                        }
                    row["group"] = f"{row['task']}@{update}"
                    yield number, row
            if progress is not None:
                progress(size * done // len(updates))
