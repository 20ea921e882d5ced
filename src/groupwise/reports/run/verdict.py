"""What a run achieved: how it did on a fixed panel before training and after it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core.journal.journal import Evaluated
from groupwise.evaluation.intervals import Z_95, mean_over_clusters
from groupwise.reports.run.overview import update_lines
from groupwise.reports.run.run_folder import RunFolder

Measure = Literal["success", "outcome"]


@dataclass(frozen=True, kw_only=True)
class Score:
    """Success, or the mean outcome where the environment does not say what success is, with its 95 % interval."""

    name: str
    """Whose: a split, or a family of its tasks."""
    number: int
    """After which update."""
    tasks: int
    """Tasks that were played."""
    attempts: int
    """Attempts at them."""
    value: float
    """The mean over tasks."""
    interval: tuple[float, float]
    """Its 95 % interval: Wilson's, over the effective number of tries; for outcomes, 1.96 standard errors."""
    panel: str
    """Hash of the tasks of its evaluation."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of tasks, before and after."""

    name: str
    """The tasks' tag."""
    before: Score | None
    """At the first evaluation; None where the family was not in it."""
    after: Score
    """At the last."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The evaluations of one split, in the order of updates."""

    split: str
    """The panel's name."""
    measure: Measure
    """What is reported."""
    scores: tuple[Score, ...]
    """Every evaluation; at least one."""
    families: tuple[Family, ...]
    """The same by family, where tasks have tags."""
    is_one_panel: bool
    """Whether the first and the last evaluation played the same tasks."""

    @property
    def before(self) -> Score | None:
        """The first evaluation, where there are two."""
        return self.scores[0] if len(self.scores) > 1 else None

    @property
    def after(self) -> Score:
        """The last evaluation."""
        return self.scores[-1]

    @property
    def is_clear(self) -> bool:
        """Whether the two intervals lie apart."""
        if self.before is None:
            return False
        low, high = sorted((self.before, self.after), key=lambda score: score.value)
        return low.interval[1] < high.interval[0]


def verdict(folder: RunFolder) -> Verdict | None:
    """How the run did on the panel that its settings name, or on the one most often played; None = never evaluated."""
    rows = folder.journal.evaluations()
    splits = {row.split for row in rows}
    if not splits:
        return None
    named = folder.setting("evaluation.split")
    split = named if named in splits else max(sorted(splits), key=lambda name: len(_numbers(rows, name)))
    return verdict_on(rows, split)


def every_verdict(folder: RunFolder) -> list[Verdict]:
    """How the run did on every panel it was evaluated on."""
    rows = folder.journal.evaluations()
    return [verdict_on(rows, split) for split in sorted({row.split for row in rows})]


def verdict_on(rows: Iterable[Evaluated], split: str) -> Verdict:
    """How the run did on one panel."""
    found = [row for row in rows if row.split == split]
    measure: Measure = "success" if any(row.success is not None for row in found) else "outcome"
    counted = [row for row in found if measure == "outcome" or row.success is not None]
    numbers = _numbers(counted, split)
    first = [row for row in counted if row.number == numbers[0]]
    last = [row for row in counted if row.number == numbers[-1]]
    scores = [_score(split, [row for row in counted if row.number == number], measure) for number in numbers]
    families = [
        Family(
            name=tag,
            before=_score(tag, before, measure) if len(numbers) > 1 and (before := _tagged(first, tag)) else None,
            after=_score(tag, _tagged(last, tag), measure),
        )
        for tag in sorted({tag for row in last for tag in row.tags.split(",") if tag})
    ]
    return Verdict(
        split=split,
        measure=measure,
        scores=tuple(scores),
        families=tuple(families),
        is_one_panel={row.panel for row in first} == {row.panel for row in last},
    )


def rollout_success(folder: RunFolder) -> tuple[float, float] | None:
    """Success while sampling, at the first and the last update that has it; what there is without an evaluation."""
    found = [line.success for line in update_lines(folder) if line.success is not None]
    return (found[0], found[-1]) if found else None


def when(score: Score) -> str:
    """After which update a score was taken, in words."""
    return f"after update {score.number}" if score.number else "before training"


def _score(name: str, rows: Sequence[Evaluated], measure: Measure) -> Score:
    by_task: dict[str, list[float]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row.outcome if measure == "outcome" else row.success or 0.0)
    values = list(by_task.values())
    value, interval = mean_over_clusters(values) if measure == "success" else _mean(values)
    return Score(
        name=name,
        number=rows[0].number,
        tasks=len(values),
        attempts=len(rows),
        value=value,
        interval=interval,
        panel=rows[0].panel,
    )


def _mean(clusters: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """Mean over tasks, and 1.96 standard errors either side; for one task the interval is the mean itself."""
    means = [math.fsum(cluster) / len(cluster) for cluster in clusters]
    mean = math.fsum(means) / len(means)
    variance = math.fsum((value - mean) ** 2 for value in means) / max(len(means) - 1, 1)
    half = Z_95 * math.sqrt(variance / len(means))
    return mean, (mean - half, mean + half)


def _numbers(rows: Iterable[Evaluated], split: str) -> list[int]:
    return sorted({row.number for row in rows if row.split == split})


def _tagged(rows: Iterable[Evaluated], tag: str) -> list[Evaluated]:
    return [row for row in rows if tag in row.tags.split(",")]
