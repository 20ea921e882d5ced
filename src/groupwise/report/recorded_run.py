"""A run folder as data frames (pandas or polars): metrics, rollouts, advantages, evaluations, alarms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from groupwise.report.groups import read_groups
from groupwise.store.journal import EvaluatedRollout
from groupwise.system.errors import ConfigError
from groupwise.training.evaluation.summary import Evaluation, group_rows
from groupwise.training.run_reader import RunFolder

FrameLibrary = Literal["pandas", "polars"]
LIBRARIES: tuple[FrameLibrary, ...] = ("pandas", "polars")
"""In the order in which they are tried."""

ROLLOUT_COLUMNS = ("update", "task", "rollout", "stop", "outcome", "success", "origin", "error")
STEP_COLUMNS = ("observation", "action", "response", "flaw", "reward", "credit", "compared")
CREDIT_COLUMNS = ("update", "task", "rollout", "step", *STEP_COLUMNS)
EVALUATION_COLUMNS = (
    *("update", "name", "split", "success", "low", "high", "score", "tasks"),
    *("rollouts", "faults", "outcome", "steps", "tokens", "task_set"),
)
ALARM_COLUMNS = ("update", "name", "action", "sentence")
CHANGE_COLUMNS = ("update", "path", "before", "after")


class RecordedRun:
    """The data that a run has written so far. While the run continues, later frames have more rows.

    Each method returns a data frame, ordered by update. Neither the model nor torch nor the run's own code is loaded.
    """

    def __init__(self, folder: Path | str, *, frames: FrameLibrary | None = None) -> None:
        self._library = choose_library(frames)
        self._folder = RunFolder(Path(folder))

    def __enter__(self) -> RecordedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._folder.journal.close()

    @property
    def folder(self) -> Path:
        return self._folder.path

    @property
    def settings(self) -> dict[str, Any]:
        return self._folder.settings

    def metrics(self) -> Any:
        """One row per update, one column per metric (docs/reference/metrics.md)."""
        journal = self._folder.journal
        rows: dict[int, dict[str, Any]] = {number: {"update": number} for number in journal.update_numbers()}
        names = journal.metric_names()
        for name in names:
            for number, value in journal.curve(name):
                rows[number][name] = value
        return make_frame(rows.values(), ["update", *names], self._library)

    def rollouts(self) -> Any:
        """One row per rollout: `update`, `task`, `rollout`, `stop`, `outcome`, `success`, `origin`, `error`."""
        rows = ({"update": row["number"], **row} for row in self._folder.journal.rollouts())
        return make_frame(rows, ROLLOUT_COLUMNS, self._library)

    def credit(self, update: int | None = None) -> Any:
        """One row per step of one or all updates: `observation`, `action`, `reward`, `credit`, `compared` and more.

        `compared` is False if no other step was in the step's groups, and None if it cannot be derived again.
        """
        numbers = self._folder.journal.update_numbers() if update is None else [update]
        rows = (
            {"update": number, "task": rollout.task, "rollout": rollout.rollout, "step": step.step}
            | {name: getattr(step, name) for name in STEP_COLUMNS}
            for number in numbers
            for group in read_groups(self._folder, number)
            for rollout in group.rollouts
            for step in rollout.steps
        )
        return make_frame(rows, CREDIT_COLUMNS, self._library)

    def evaluations(self) -> Any:
        """One row per evaluation: `update`, `name`, `success` with its 95 % interval `low` to `high`, and more."""
        rows = []
        for _, rollouts in group_rows(self._folder.journal.evaluations(), lambda row: [(row.number, row.name)]):
            evaluation = Evaluation.from_rows(rollouts)
            low, high = evaluation.interval
            cells = {name: getattr(evaluation, name, None) for name in EVALUATION_COLUMNS}
            rows.append({**cells, "update": evaluation.number, "low": low, "high": high})
        return make_frame(rows, EVALUATION_COLUMNS, self._library)

    def evaluation_rollouts(self) -> Any:
        rows = [asdict(row) for row in self._folder.journal.evaluations()]
        names = ["update", *list(EvaluatedRollout.__dataclass_fields__)[1:]]
        return make_frame(({"update": row["number"], **row} for row in rows), names, self._library)

    def alarms(self) -> Any:
        """One row per alarm: the `update` before it, its `name`, `action` and `sentence`."""
        rows = ({"update": alarm.number, **asdict(alarm)} for alarm in self._folder.journal.alarms())
        return make_frame(rows, ALARM_COLUMNS, self._library)

    def changes(self) -> Any:
        """One row per setting that changed when the run was resumed: `update`, `path`, `before`, `after` (as JSON)."""
        rows = (
            {"update": change.number, "path": change.path}
            | {name: json.dumps(getattr(change, name)) for name in ("before", "after")}
            for change in self._folder.journal.changes()
        )
        return make_frame(rows, CHANGE_COLUMNS, self._library)


def read_run(folder: Path | str, *, frames: FrameLibrary | None = None) -> RecordedRun:
    """Open a run folder as data frames. `frames` is "pandas" or "polars"; None = the first that is installed."""
    return RecordedRun(folder, frames=frames)


def make_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], library: FrameLibrary | None = None) -> Any:
    """A data frame with the given columns; None if a row lacks one. `library` None = the first that is installed."""
    cells = list(rows)
    frames = import_module(choose_library(library))
    return frames.DataFrame({name: [row.get(name) for row in cells] for name in columns})


def choose_library(library: FrameLibrary | None) -> FrameLibrary:
    if library is not None and library not in LIBRARIES:
        raise ConfigError(f"frames: unknown library {library!r}; give 'pandas' or 'polars'")
    for name in LIBRARIES if library is None else (library,):
        if find_spec(name) is not None:
            return name
    if library is not None:
        raise ConfigError(f"{library} is not installed: pip install 'groupwise[{library}]'")
    raise ConfigError("a data frame needs pandas or polars: pip install 'groupwise[pandas]' or 'groupwise[polars]'")
