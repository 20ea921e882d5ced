"""Whether an audit of a run gives its own recipe the credit that the run trained on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.step_table import StepTable
from groupwise.reports.run.derived_credit import AGREEMENT
from groupwise.reports.run.read_groups import find_underived
from groupwise.reports.run.run_folder import RunFolder

OWN = "this run's own"
READ_APART = (
    "an audit reads all updates as one file of recorded attempts, without those that were recalled; "
    "`groupwise explain` derives a step as it trained"
)

_Name = tuple[str, Hashable, int]
"""A step of a run: TASK@UPDATE, attempt, index."""


class JournalComparison:
    """Holds the credit of a run's own recipe, as an audit computes it, against the journal's."""

    def __init__(self, path: Path, algorithms: Mapping[str, Algorithm]) -> None:
        with RunFolder(path) as folder:
            own = folder.find_algorithm()
            is_compared = own is not None and any(other.config() == own.config() for other in algorithms.values())
            self._own = own if is_compared else None
            self._underived = find_underived(folder) if is_compared else {}
            self._recorded = _read_credit(folder) if is_compared else {}
        self._differing: set[int] = set(self._underived)

    def compare(self, tables: Iterable[StepTable]) -> Iterator[StepTable]:
        """Pass the tables on, and note the updates in which the credit is another than the journal's."""
        for table in tables:
            if self._own is not None:
                self._note_differing(table, self._own)
            yield table

    def describe(self) -> str:
        """In which updates the run's own recipe gives other credit than it trained on, and why; empty = in none."""
        if not self._differing:
            return ""
        first = min(self._differing)
        reason = self._underived[first].reason if first in self._underived else READ_APART
        num = len(self._differing)
        return (
            f"{OWN} recipe does not give the credit that the journal holds in {num} update{'s' if num > 1 else ''}, "
            f"the first of them {first} ({reason}): below stands what it would give the recorded attempts by themselves"
        )

    def _note_differing(self, table: StepTable, own: Algorithm) -> None:
        values = own.credit(table).trace.values
        recorded = np.array([self._recorded.get(_name_step(table, step), np.nan) for step in range(len(table))])
        for step in np.flatnonzero(~np.isclose(values, recorded, rtol=AGREEMENT, atol=AGREEMENT)).tolist():
            self._differing.add(int(_name_step(table, step)[0].rpartition("@")[2]))


def _read_credit(folder: RunFolder) -> dict[_Name, float]:
    return {
        (f"{record['task']}@{number}", record["attempt"], row["index"]): value
        for number in folder.updates
        for record in folder.journal.trajectories(number)
        for row, value in zip(record["steps"], record["credit"], strict=True)
    }


def _name_step(table: StepTable, step: int) -> _Name:
    task, attempt = table.task_ids[table.task[step]], table.attempt_ids[table.attempt[step]]
    return str(task), attempt, int(table.index[step])
