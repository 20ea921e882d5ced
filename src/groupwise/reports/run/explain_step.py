"""Why a step of a run has its credit: the groups it stood in, derived again from the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import RecordError
from groupwise.core.journal.states import StateBefore
from groupwise.core.parts.stateful import check_journaled
from groupwise.core.remembered import number_at
from groupwise.reports.explain.pairs import ExplainedPair, choose_pairs
from groupwise.reports.explain.step import Explanation, explain_channels, explain_step, find_step
from groupwise.reports.explain.token import TokenExplanation, find_largest_gap
from groupwise.reports.run.attempt_origins import read_recalled_attempts
from groupwise.reports.run.derived_credit import AGREEMENT, DerivedCredit, choose_compared
from groupwise.reports.run.response_text import TokenTexts
from groupwise.reports.run.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class RememberedNumber:
    """A number that a stateful part knew of a task, or of a step at it, when an update began."""

    path: str
    """Where the part stands in the run's settings."""
    column: str
    """What the step table calls it."""
    value: float
    """The number."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunStepExplanation:
    """A step's credit, explained."""

    explanation: Explanation
    """How the number comes about."""
    recorded: float
    """The number that the journal holds."""
    derived: DerivedCredit
    """The update's credit, computed again."""
    position: int
    """The step's position in the table."""
    remembered: tuple[RememberedNumber, ...] = ()
    """What stateful parts knew of the step's task when the update began."""
    channels: Mapping[str, Explanation] = field(default_factory=dict)
    """How its credit in each further channel comes about; the journal holds none of these, they derive again."""
    token: TokenExplanation | None = None
    """How one of its tokens comes by its credit, where that was asked."""
    pairs: tuple[ExplainedPair, ...] = ()
    """The pairs that it is in, where the loss reads pairs."""
    is_what_trained: bool = True
    """Whether it is explained under the run's own algorithm; under another, the journal's number is another one."""

    @property
    def gap(self) -> float | None:
        """Largest relative distance between the journal's number, the computed one and those derived by hand.

        None = there is nothing that the computed number can be compared with.
        """
        by_hand = find_largest_gap(self.explanation, self.channels, self.token)
        if not self.is_what_trained:
            return by_hand
        value = self.explanation.value
        return max(abs(value - self.recorded) / max(1.0, abs(value)), by_hand or 0.0)

    @property
    def agrees(self) -> bool:
        """Whether all of them are one number."""
        return (self.gap or 0.0) <= AGREEMENT


def explain_run_step(
    folder: RunFolder,
    *,
    number: int,
    task: str,
    attempt: int,
    step: int,
    token: int | None = None,
    other: Algorithm | None = None,
) -> RunStepExplanation:
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
    trajectories, recalled = list(folder.journal.trajectories(number)), read_recalled_attempts(folder.journal, number)
    everybody, algorithm = [*trajectories, *recalled], other or folder.read_algorithm()
    states = folder.journal.states_before(number)
    check_journaled(algorithm, states, where=f"{folder.path}: update {number}", path="algorithm")
    # Where it is another number than the journal's, the explanation says both and how far they are apart.
    derived = DerivedCredit.compute([*trajectories, *choose_compared(recalled)], algorithm, states)
    _check_compared(derived, everybody, task, attempt, number)
    position = find_step(derived.table, task=task, attempt=attempt, index=step)
    recorded = [
        credit
        for record in everybody
        if (record["task"], record["attempt"]) == (task, attempt)
        for row, credit in zip(record["steps"], record["credit"], strict=True)
        if row["index"] == step
    ]
    if len(recorded) != 1:
        raise RecordError(f"{folder.path}: update {number} holds {len(recorded)} rows of that step; there must be one")
    return RunStepExplanation(
        explanation=explain_step(derived.table, derived.credit, task=task, attempt=attempt, index=step),
        recorded=recorded[0],
        derived=derived,
        position=position,
        remembered=_find_remembered(task, step, states),
        token=None if token is None else derived.explain_token(position, token, TokenTexts(folder.path)),
        pairs=tuple(choose_pairs(derived.explain_pairs(), task=task, attempt=attempt, step=step)),
        channels=explain_channels(derived.table, algorithm, task=task, attempt=attempt, index=step),
        is_what_trained=other is None,
    )


def _find_remembered(task: str, step: int, states: Sequence[StateBefore]) -> tuple[RememberedNumber, ...]:
    return tuple(
        RememberedNumber(path=state.path, column=name, value=number_at(by_task[task], step))
        for state in states
        for name, by_task in state.columns.items()
        if task in by_task
    )


def _check_compared(
    derived: DerivedCredit, everybody: Sequence[Mapping[str, Any]], task: str, attempt: int, number: int
) -> None:
    """An attempt that kept the credit it had was compared with nobody here."""
    for record in everybody:
        is_asked_for = (record["task"], record["attempt"]) == (task, attempt)
        if is_asked_for and not any((row["task"], row["attempt"]) == (task, attempt) for row in derived.rows):
            source = record["source"]
            raise RecordError(
                f"task {task!r}, attempt {attempt} kept the credit that it had in update {source.number}, and was "
                f"compared with nobody in update {number}; ask there: --update {source.number} --task {source.task} "
                f"--attempt {source.attempt}"
            )
