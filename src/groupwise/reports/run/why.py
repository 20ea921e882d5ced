"""Why a step of a run has its credit: the groups it stood in, derived again from the journal."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.core.errors import RecordError
from groupwise.reports.explain import Explanation, explain, find_step
from groupwise.reports.run.recredit import AGREEMENT, Recredit
from groupwise.reports.run.run_folder import RunFolder


@dataclass(frozen=True, eq=False, kw_only=True)
class Why:
    """A step's credit, explained."""

    explanation: Explanation
    """How the number comes about."""
    recorded: float
    """The number that the journal holds."""
    again: Recredit
    """The update's credit, computed again."""
    position: int
    """The step's position in the table."""

    @property
    def gap(self) -> float:
        """Largest relative distance between the journal's number, the computed one and those derived by hand."""
        value = self.explanation.value
        return max(self.explanation.largest_gap(), abs(value - self.recorded) / max(1.0, abs(value)))

    @property
    def agrees(self) -> bool:
        """Whether all of them are one number."""
        return self.gap <= AGREEMENT


def why(folder: RunFolder, *, number: int, task: str, attempt: int, step: int) -> Why:
    """Explain one step's credit with the run's own algorithm."""
    trajectories = list(folder.journal.trajectories(number))
    again = Recredit.of(trajectories, folder.algorithm())
    position = find_step(again.table, task=task, attempt=attempt, index=step)
    recorded = [
        credit
        for found in trajectories
        if (found["task"], found["attempt"]) == (task, attempt)
        for row, credit in zip(found["steps"], found["credit"], strict=True)
        if row["index"] == step
    ]
    if len(recorded) != 1:
        raise RecordError(f"{folder.path}: update {number} holds {len(recorded)} rows of that step; there must be one")
    found = explain(again.table, again.credit, task=task, attempt=attempt, index=step)
    return Why(explanation=found, recorded=recorded[0], again=again, position=position)
