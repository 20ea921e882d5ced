"""What an evaluation says: success with a 95 % interval, by seed, family and task, and pass@k. It needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core.errors import TrainingError
from groupwise.core.journal.evaluations import EvaluatedAttempt
from groupwise.core.records import Trajectory
from groupwise.evaluation.intervals import mean_over_clusters, mean_pass_at


@dataclass(frozen=True, kw_only=True)
class TasksSummary:
    """Success over some tasks of a panel: all of them, a family, or one."""

    name: str
    """Whose success it is."""
    tasks: int
    """Tasks that were played."""
    attempts: int
    """Attempts that ended by themselves or at a limit."""
    success: float
    """Share of them that succeeded; every task counts the same."""
    interval: tuple[float, float]
    """95 % interval of that share for tasks of this kind (`evaluation.intervals.mean_over_clusters`)."""
    steps: float
    """Mean steps of an attempt."""


@dataclass(frozen=True, kw_only=True)
class PassAt:
    """Share of tasks that at least one of k attempts solves."""

    k: int
    """Attempts that a task is given."""
    tasks: int
    """Tasks with at least k attempts that count; the others say nothing of it."""
    success: float
    """The share, estimated without bias (`evaluation.intervals.pass_at`)."""
    interval: tuple[float, float]
    """95 % interval of that share for tasks of this kind."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How a policy did on a panel.

    Worked example: three tasks, two seeds. The first is solved with both seeds, the second with one, the third with
    neither: success 0.5, by seed 2/3 and 1/3, over an effective number of 4.5 tries.

    Attempts that a fault of the environment ended are counted, and leave the shares: they say nothing of the policy.
    """

    number: int
    """After which update; 0 = before the first."""
    split: str
    """The panel's name."""
    panel: str
    """Digest of the panel's tasks: evaluations of equal digests can be compared."""
    tasks: int
    """Tasks that were played."""
    attempts: int
    """Attempts that count."""
    faults: int
    """Attempts that a fault ended."""
    success: float
    """Share of the attempts that succeeded, mean over seeds; every task counts the same."""
    interval: tuple[float, float]
    """95 % interval of that share for tasks of this kind."""
    outcome: float
    """Mean outcome of an attempt."""
    steps: float
    """Mean steps of an attempt."""
    tokens: float | None
    """Mean sampled tokens of an attempt; None where they were not counted."""
    by_seed: Mapping[int, float]
    """Success with each seed."""
    rows: Sequence[EvaluatedAttempt]
    """The attempts, as the journal keeps them."""
    trajectories: Sequence[Trajectory] = field(default=(), repr=False)
    """What was played, where it was played just now."""

    @classmethod
    def from_rows(cls, rows: Sequence[EvaluatedAttempt], trajectories: Sequence[Trajectory] = ()) -> Evaluation:
        """Sum up the attempts of one evaluation, which are of one update and one panel, with any number of seeds."""
        kinds = {(row.number, row.split, row.panel) for row in rows}
        assert len(kinds) == 1, "an evaluation is of one update and one panel"
        counted = [row for row in rows if row.success is not None]
        if not counted:
            raise TrainingError(
                f"split {rows[0].split!r}: none of {len(rows)} attempts says whether it succeeded (stop: "
                f"{', '.join(sorted({row.stop for row in rows}))}); `groupwise check env` shows what the environment "
                "does wrong"
            )
        whole = _summarise("all", counted)
        (number, split, panel), *_ = kinds
        return cls(
            number=number,
            split=split,
            panel=panel,
            tasks=whole.tasks,
            attempts=whole.attempts,
            faults=len(rows) - len(counted),
            success=whole.success,
            interval=whole.interval,
            outcome=math.fsum(row.outcome for row in counted) / len(counted),
            steps=whole.steps,
            tokens=_mean_tokens(counted),
            by_seed={
                seed: _summarise(str(seed), rows).success for seed, rows in group_rows(counted, lambda row: [row.seed])
            },
            rows=tuple(rows),
            trajectories=trajectories,
        )

    def by_tag(self) -> list[TasksSummary]:
        """Success of each family, in the order of their names; a task with two tags is in two families."""
        by_tag = group_rows(self._counted_rows, tags_of)
        return [_summarise(tag, rows) for tag, rows in by_tag]

    def by_task(self) -> list[TasksSummary]:
        """Success at each task, in the order of their ids."""
        return [_summarise(task, rows) for task, rows in group_rows(self._counted_rows, lambda row: [row.task])]

    @property
    def attempts_per_task(self) -> int:
        """The n of mean@n, which is `success`: the most attempts that count at a task, over all seeds."""
        return max(tries for _, tries in self._count_wins())

    def pass_at(self) -> list[PassAt]:
        """pass@k for k = 1, 2, 4, ... and the number of attempts at a task; those of all seeds count alike."""
        largest_k = self.attempts_per_task
        shares = []
        for k in sorted({2**power for power in range(largest_k.bit_length())} | {largest_k}):
            counts = [(wins, tries) for wins, tries in self._count_wins() if tries >= k]
            success, interval = mean_pass_at(k, counts)
            shares.append(PassAt(k=k, tasks=len(counts), success=success, interval=interval))
        return shares

    def _count_wins(self) -> list[tuple[int, int]]:
        """Of each task: attempts that solved it, and attempts that count."""
        by_task = group_rows(self._counted_rows, lambda row: [row.task])
        return [(sum(row.success == 1.0 for row in rows), len(rows)) for _, rows in by_task]

    @property
    def _counted_rows(self) -> list[EvaluatedAttempt]:
        """The attempts that count: no fault of the environment ended them."""
        return [row for row in self.rows if row.success is not None]


def group_rows(
    rows: Iterable[EvaluatedAttempt], keys_of: Callable[[EvaluatedAttempt], Iterable[Any]]
) -> list[tuple[Any, list[EvaluatedAttempt]]]:
    """Rows by key, keys in order; a row may have several."""
    by_key: dict[Any, list[EvaluatedAttempt]] = {}
    for row in rows:
        for key in keys_of(row):
            by_key.setdefault(key, []).append(row)
    return sorted(by_key.items())


def tags_of(row: EvaluatedAttempt) -> list[str]:
    """The families that a row's task is in."""
    return [tag for tag in row.tags.split(",") if tag]


def scores_by_task(
    rows: Iterable[EvaluatedAttempt], score_of: Callable[[EvaluatedAttempt], float]
) -> list[list[float]]:
    """The scores of the attempts at each task, tasks in the order of their ids: the clusters of an interval."""
    return [[score_of(row) for row in of_task] for _, of_task in group_rows(rows, lambda row: [row.task])]


def _success_of(row: EvaluatedAttempt) -> float:
    assert row.success is not None, "only attempts that say how they ended are counted"
    return row.success


def _mean_tokens(rows: Sequence[EvaluatedAttempt]) -> float | None:
    counted = [row.tokens for row in rows if row.tokens is not None]
    return sum(counted) / len(counted) if counted else None


def _summarise(name: str, rows: Sequence[EvaluatedAttempt]) -> TasksSummary:
    scores = scores_by_task(rows, _success_of)
    success, interval = mean_over_clusters(scores)
    return TasksSummary(
        name=name,
        tasks=len(scores),
        attempts=len(rows),
        success=success,
        interval=interval,
        steps=sum(row.steps for row in rows) / len(rows),
    )
