"""The steps that gain or lose most when one recipe takes another's place."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from groupwise.core.credit import Credit
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable


@dataclass(frozen=True, kw_only=True)
class Mover:
    """A step whose credit changes much."""

    task: str | int
    """Id of its task (or group)."""
    attempt: str | int
    """Id of its attempt."""
    index: int
    """Its index."""
    state: str
    """Its state, in words."""
    action: str
    """What was done there."""
    before: float
    """Credit under the first recipe."""
    after: float
    """Credit under the last recipe."""

    @property
    def change(self) -> float:
        """How much the step gains."""
        return self.after - self.before


class MoverTally:
    """Keeps the largest gains and losses chunk by chunk."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._gains: list[Mover] = []
        self._losses: list[Mover] = []

    def add(self, table: StepTable, before: Credit, after: Credit) -> None:
        """Look for movers in one chunk."""
        change = after.trace.values - before.trace.values
        self._losses = self._merge(self._losses, table, change, before, after)
        self._gains = self._merge(self._gains, table, -change, before, after)

    def _merge(
        self, known: list[Mover], table: StepTable, change: FloatArray, before: Credit, after: Credit
    ) -> list[Mover]:
        """The movers of lowest change, among those known and one chunk's steps; equals by name, however files split."""
        falling = np.flatnonzero(change < 0)
        if len(falling) > self._num:
            edge = np.partition(change[falling], self._num - 1)[self._num - 1]
            falling = falling[change[falling] <= edge]  # ties at the edge stay in
        chosen = heapq.nsmallest(self._num, falling.tolist(), key=lambda step: (change[step], _name_step(table, step)))
        movers = known + [_make_mover(table, step, before, after) for step in chosen]
        return heapq.nsmallest(self._num, movers, key=lambda mover: (-abs(mover.change), _name_mover(mover)))

    def result(self) -> tuple[list[Mover], list[Mover]]:
        """The largest gains and the largest losses, largest first."""
        return self._gains, self._losses


def _name_mover(mover: Mover) -> tuple[str, str, int]:
    return str(mover.task), str(mover.attempt), mover.index


def _name_step(table: StepTable, step: int) -> tuple[str, str, int]:
    task, attempt = table.task_ids[table.task[step]], table.attempt_ids[table.attempt[step]]
    return str(task), str(attempt), int(table.index[step])


def _make_mover(table: StepTable, step: int, before: Credit, after: Credit) -> Mover:
    state = table.state_keys[table.state[step]] if table.state[step] >= 0 else ""
    action = table.extra["action"][step] if "action" in table.extra else ""
    return Mover(
        task=table.task_ids[table.task[step]],
        attempt=table.attempt_ids[table.attempt[step]],
        index=int(table.index[step]),
        state=str(state),
        action=str(action or ""),
        before=float(before.trace.values[step]),
        after=float(after.trace.values[step]),
    )
