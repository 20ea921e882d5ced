"""What a run achieved: how it did on a fixed panel at each evaluation, with intervals, and by family of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.core.journal.evaluations import EvaluatedAttempt
from groupwise.evaluation.intervals import Z_95, mean_over_clusters
from groupwise.evaluation.summary import group_rows, scores_by_task, tags_of

ScoreKind = Literal["success", "outcome"]


@dataclass(frozen=True, kw_only=True)
class PanelScore:
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
class FamilyScores:
    """A family of tasks, before and after."""

    name: str
    """The tasks' tag."""
    before: PanelScore | None
    """At the first evaluation; None where the family was not in it."""
    after: PanelScore
    """At the last."""


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """The evaluations of one split, in the order of updates."""

    split: str
    """The panel's name."""
    measure: ScoreKind
    """What is reported: success, or the mean outcome where the environment does not say what success is."""
    scores: tuple[PanelScore, ...]
    """Every evaluation; at least one."""
    families: tuple[FamilyScores, ...]
    """The same by family, where tasks have tags."""
    is_one_panel: bool
    """Whether the first and the last evaluation played the same tasks."""

    @property
    def before(self) -> PanelScore | None:
        """The first evaluation, where there are two."""
        return self.scores[0] if len(self.scores) > 1 else None

    @property
    def after(self) -> PanelScore:
        """The last evaluation."""
        return self.scores[-1]

    @property
    def is_clear(self) -> bool:
        """Whether the two intervals lie apart."""
        if self.before is None:
            return False
        low, high = sorted((self.before, self.after), key=lambda score: score.value)
        return low.interval[1] < high.interval[0]


def make_verdict(rows: Iterable[EvaluatedAttempt], split: str) -> RunVerdict:
    """How a run did on one panel, from the rows of its evaluations."""
    played = [row for row in rows if row.split == split]
    measure: ScoreKind = "success" if any(row.success is not None for row in played) else "outcome"
    counted = [row for row in played if measure == "outcome" or row.success is not None]
    evaluations = [rows for _, rows in group_rows(counted, lambda row: [row.number])]
    first, last = evaluations[0], evaluations[-1]
    first_by_tag = dict(group_rows(first, tags_of)) if len(evaluations) > 1 else {}
    families = [
        FamilyScores(
            name=tag,
            before=_score(tag, first_by_tag[tag], measure) if tag in first_by_tag else None,
            after=_score(tag, tagged, measure),
        )
        for tag, tagged in group_rows(last, tags_of)
    ]
    return RunVerdict(
        split=split,
        measure=measure,
        scores=tuple(_score(split, evaluation, measure) for evaluation in evaluations),
        families=tuple(families),
        is_one_panel={row.panel for row in first} == {row.panel for row in last},
    )


def describe_when(score: PanelScore) -> str:
    """After which update a score was taken, in words."""
    return f"after update {score.number}" if score.number else "before training"


def _score(name: str, rows: Sequence[EvaluatedAttempt], measure: ScoreKind) -> PanelScore:
    scores = scores_by_task(rows, lambda row: row.outcome if measure == "outcome" else row.success or 0.0)
    value, interval = mean_over_clusters(scores) if measure == "success" else _mean_outcome(scores)
    return PanelScore(
        name=name,
        number=rows[0].number,
        tasks=len(scores),
        attempts=len(rows),
        value=value,
        interval=interval,
        panel=rows[0].panel,
    )


def _mean_outcome(outcomes: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """Mean over tasks, and 1.96 standard errors either side; for one task the interval is the mean itself."""
    means = [math.fsum(of_task) / len(of_task) for of_task in outcomes]
    mean = math.fsum(means) / len(means)
    variance = math.fsum((value - mean) ** 2 for value in means) / max(len(means) - 1, 1)
    half = Z_95 * math.sqrt(variance / len(means))
    return mean, (mean - half, mean + half)
