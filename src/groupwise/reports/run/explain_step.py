"""Why a step of a run has its credit: the groups it stood in, derived again from the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import RecordError
from groupwise.core.journal.states import StateBefore
from groupwise.core.parts.stateful import check_journaled
from groupwise.reports.explain.step import Explanation, explain, explain_channels, find_step
from groupwise.reports.explain.token import TokenExplanation
from groupwise.reports.run.attempt_origins import recalled_attempts
from groupwise.reports.run.derived_credit import AGREEMENT, Recredit, those_compared
from groupwise.reports.run.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """A number that a stateful part knew of a task when an update began."""

    path: str
    """Where the part stands in the run's settings."""
    column: str
    """What the step table calls it."""
    value: float
    """The number."""


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
    remembered: tuple[Remembered, ...] = ()
    """What stateful parts knew of the step's task when the update began."""
    channels: Mapping[str, Explanation] = field(default_factory=dict)
    """How its credit in each further channel comes about; the journal holds none of these, they derive again."""
    token: TokenExplanation | None = None
    """How one of its tokens comes by its credit, where that was asked."""
    is_what_trained: bool = True
    """Whether it is explained under the run's own algorithm; under another, the journal's number is another one."""

    @property
    def gap(self) -> float:
        """Largest relative distance between the journal's number, the computed one and those derived by hand."""
        value = self.explanation.value
        recorded = abs(value - self.recorded) / max(1.0, abs(value)) if self.is_what_trained else 0.0
        by_hand = max(found.largest_gap() for found in (self.explanation, *self.channels.values()))
        return max(by_hand, recorded, self.token.gap if self.token else 0.0)

    @property
    def agrees(self) -> bool:
        """Whether all of them are one number."""
        return self.gap <= AGREEMENT


def why(
    folder: RunFolder,
    *,
    number: int,
    task: str,
    attempt: int,
    step: int,
    token: int | None = None,
    other: Algorithm | None = None,
) -> Why:
    """Explain one step's credit, and where asked that of one of its tokens.

    Args:
        folder: the run.
        number: the update.
        task: id of the step's task.
        attempt: number of the attempt at it.
        step: index of the step.
        token: position of a token in the response.
        other: explain what this algorithm would give the update; None = the run's own, which trained it.
    """
    trajectories, recalled = list(folder.journal.trajectories(number)), recalled_attempts(folder.journal, number)
    everybody, algorithm = [*trajectories, *recalled], other or folder.algorithm()
    states = folder.journal.states_before(number)
    check_journaled(algorithm, states, where=f"{folder.path}: update {number}", path="algorithm")
    # Where it is another number than the journal's, the explanation says both and how far they are apart.
    again = Recredit.of([*trajectories, *those_compared(recalled)], algorithm, states)
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
    return Why(
        explanation=found,
        recorded=recorded[0],
        again=again,
        position=position,
        remembered=_remembered_of(task, states),
        token=None if token is None else again.explain_token(position, token),
        channels=explain_channels(again.table, algorithm, task=task, attempt=attempt, index=step),
        is_what_trained=other is None,
    )


def _remembered_of(task: str, states: Sequence[StateBefore]) -> tuple[Remembered, ...]:
    return tuple(
        Remembered(path=state.path, column=name, value=by_task[task])
        for state in states
        for name, by_task in state.columns.items()
        if task in by_task
    )


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
