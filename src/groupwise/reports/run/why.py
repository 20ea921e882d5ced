"""Why a step of a run has its credit: the groups it stood in, derived again from the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import RecordError
from groupwise.reports.explain import Explanation, explain, find_step
from groupwise.reports.explain_token import TokenExplanation
from groupwise.reports.run.joined import recalled_attempts
from groupwise.reports.run.recredit import AGREEMENT, Recredit, recredit
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
    token: TokenExplanation | None = None
    """How one of its tokens comes by its credit, where that was asked."""

    @property
    def gap(self) -> float:
        """Largest relative distance between the journal's number, the computed one and those derived by hand."""
        value = self.explanation.value
        recorded = abs(value - self.recorded) / max(1.0, abs(value))
        return max(self.explanation.largest_gap(), recorded, self.token.gap if self.token else 0.0)

    @property
    def agrees(self) -> bool:
        """Whether all of them are one number."""
        return self.gap <= AGREEMENT


def why(folder: RunFolder, *, number: int, task: str, attempt: int, step: int, token: int | None = None) -> Why:
    """Explain one step's credit, and where asked that of one of its tokens, with the run's own algorithm."""
    trajectories, recalled = list(folder.journal.trajectories(number)), recalled_attempts(folder.journal, number)
    everybody, algorithm = [*trajectories, *recalled], folder.algorithm()
    again = recredit(trajectories, algorithm, recalled) or Recredit.of(everybody, algorithm)
    _check_compared(again, everybody, task, attempt, number)
    position = find_step(again.table, task=task, attempt=attempt, index=step)
    recorded = [
        credit
        for found in everybody
        if (found["task"], found["attempt"]) == (task, attempt)
        for row, credit in zip(found["steps"], found["credit"], strict=True)
        if row["index"] == step
    ]
    if len(recorded) != 1:
        raise RecordError(f"{folder.path}: update {number} holds {len(recorded)} rows of that step; there must be one")
    found = explain(again.table, again.credit, task=task, attempt=attempt, index=step)
    of_token = None if token is None else again.explain_token(position, token)
    return Why(explanation=found, recorded=recorded[0], again=again, position=position, token=of_token)


def _check_compared(
    again: Recredit, everybody: Sequence[Mapping[str, Any]], task: str, attempt: int, number: int
) -> None:
    """An attempt that kept the credit it had was compared with nobody here."""
    for found in everybody:
        is_asked_for = (found["task"], found["attempt"]) == (task, attempt)
        if is_asked_for and not any((row["task"], row["attempt"]) == (task, attempt) for row in again.rows):
            source = found["source"]
            raise RecordError(
                f"task {task!r}, attempt {attempt} kept the credit that it had in update {source.number}, and was "
                f"compared with nobody in update {number}; ask there: --update {source.number} --task {source.task} "
                f"--attempt {source.attempt}"
            )
