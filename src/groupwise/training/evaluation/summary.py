"""The result of an evaluation: success with a 95 % interval, score, tokens and pass@k, by seed, category and task. It
needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from groupwise.data.records import Trajectory
from groupwise.store.journal import EvaluatedRollout
from groupwise.system.errors import TrainingError


@dataclass(frozen=True, kw_only=True)
class PassAt:
    """Fraction of tasks that at least one of k rollouts solves."""

    k: int
    """Rollouts per task."""
    tasks: int
    """Tasks with at least k rollouts that count."""
    success: float
    """The fraction, estimated without bias (`pass_at`)."""
    interval: tuple[float, float]
    """95 % interval for tasks of this kind."""


@dataclass(frozen=True, kw_only=True)
class TasksSummary:
    """The result on some tasks: all of a task set, a category, or one task."""

    name: str
    """Name of the task set or category, or id of the task."""
    tasks: int
    """Number of tasks."""
    rollouts: int
    """Rollouts that ended without an error."""
    success: float
    """Fraction of them that succeeded; all tasks have equal weight."""
    interval: tuple[float, float]
    """95 % interval of the success for tasks of this kind (`mean_over_clusters`)."""
    steps: float
    """Mean steps per rollout."""
    tokens: float | None
    """Mean sampled tokens per rollout; None if they were not counted."""
    score: float | None
    """Mean of the step info `evaluation.score`; all tasks have equal weight. None without that setting."""
    score_interval: tuple[float, float] | None
    """Its 95 % interval for tasks of this kind: 1.96 standard errors on either side."""
    pass_at: tuple[PassAt, ...]
    """pass@k for k = 1, 2, 4, ... and the number of rollouts per task, of a seed and of all; over all seeds."""
    shown_k: int
    """The k of pass@k in tables: the rollouts per task of a seed; if it has only one, those of all seeds."""

    @property
    def shown_pass(self) -> PassAt | None:
        """pass@k in tables; None with one rollout per task."""
        return next((line for line in self.pass_at if line.k == self.shown_k > 1), None)

    def metrics(self) -> dict[str, float]:
        """The numbers that trackers get, by name."""
        low, high = self.interval
        numbers = {"success": self.success, "success_low": low, "success_high": high, "steps": self.steps}
        numbers |= {f"pass_at_{line.k}": line.success for line in self.pass_at if line.k > 1}
        optional = {"score": self.score, "tokens": self.tokens}
        return numbers | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Evaluation(TasksSummary):
    """The result of a policy on a task set.

    Worked example: three tasks, two seeds. The first is solved with both seeds, the second with one, the third with
    neither: success 0.5, by seed 2/3 and 1/3, over an effective number of 4.5 tries.

    Rollouts that an environment error ended are counted in `faults` only.
    """

    number: int
    """The update; 0 = before the first."""
    split: str
    """The split that its tasks are of."""
    task_set: str
    """Hash of the tasks: only evaluations of equal hashes can be compared."""
    faults: int
    """Rollouts that an error ended."""
    outcome: float
    """Mean final score."""
    by_seed: Mapping[int, float]
    """Success per seed."""
    rows: Sequence[EvaluatedRollout]
    """The rollouts, as the journal keeps them."""
    trajectories: Sequence[Trajectory] = field(default=(), repr=False)
    """The trajectories, if they were sampled just now."""

    @classmethod
    def from_rows(cls, rows: Sequence[EvaluatedRollout], trajectories: Sequence[Trajectory] = ()) -> Evaluation:
        """Sum up the rollouts of one evaluation: one update, one task set, any number of seeds."""
        kinds = {(row.number, row.name, row.split, row.task_set) for row in rows}
        assert len(kinds) == 1, "an evaluation is of one update and one task set"
        counted = [row for row in rows if row.success is not None]
        if not counted:
            where, stops = describe_task_set(rows[0].name, rows[0].split), ", ".join(sorted({row.stop for row in rows}))
            raise TrainingError(
                f"{where}: none of {len(rows)} rollouts says whether it succeeded (stop: {stops}); test the "
                "environment with `groupwise check env`"
            )
        (number, name, split, task_set), *_ = kinds
        return cls(
            **vars(_summarise(name, counted)),
            number=number,
            split=split,
            task_set=task_set,
            faults=len(rows) - len(counted),
            outcome=math.fsum(row.outcome for row in counted) / len(counted),
            by_seed={
                seed: _summarise(str(seed), rows).success for seed, rows in group_rows(counted, lambda row: [row.seed])
            },
            rows=tuple(rows),
            trajectories=trajectories,
        )

    def by_tag(self) -> list[TasksSummary]:
        """Success per category, by name; a task with two tags is in two categories."""
        return [_summarise(tag, rows) for tag, rows in group_rows(self._counted_rows, tags_of)]

    def by_task(self) -> list[TasksSummary]:
        return [_summarise(task, rows) for task, rows in group_rows(self._counted_rows, lambda row: [row.task])]

    @property
    def rollouts_per_task(self) -> int:
        """The n of mean@n (`success`): the largest number of rollouts per task that count, over all seeds."""
        return self.pass_at[-1].k

    @property
    def _counted_rows(self) -> list[EvaluatedRollout]:
        """The rollouts that no environment error ended."""
        return [row for row in self.rows if row.success is not None]


def group_rows(
    rows: Iterable[EvaluatedRollout], keys_of: Callable[[EvaluatedRollout], Iterable[Any]]
) -> list[tuple[Any, list[EvaluatedRollout]]]:
    """Rows by key, keys in order; a row may have several."""
    by_key: dict[Any, list[EvaluatedRollout]] = {}
    for row in rows:
        for key in keys_of(row):
            by_key.setdefault(key, []).append(row)
    return sorted(by_key.items())


def tags_of(row: EvaluatedRollout) -> list[str]:
    return [tag for tag in row.tags.split(",") if tag]


def scores_by_task(
    rows: Iterable[EvaluatedRollout], score_of: Callable[[EvaluatedRollout], float]
) -> list[list[float]]:
    """The scores per task, tasks in the order of their ids: the clusters of an interval."""
    return [[score_of(row) for row in of_task] for _, of_task in group_rows(rows, lambda row: [row.task])]


def _summarise(name: str, rows: Sequence[EvaluatedRollout]) -> TasksSummary:
    scores = scores_by_task(rows, lambda row: row.success or 0.0)  # no row with None is counted
    success, interval = mean_over_clusters(scores)
    tokens = [row.tokens for row in rows if row.tokens is not None]
    scored = [row for row in rows if row.score is not None]
    of_a_seed = max(row.rollout for row in rows) + 1
    wins = [(sum(value == 1.0 for value in of_task), len(of_task)) for of_task in scores]
    score, bounds = _mean_outcome(scores_by_task(scored, lambda row: row.score or 0.0)) if scored else (None, None)
    return TasksSummary(
        name=name,
        tasks=len(scores),
        rollouts=len(rows),
        success=success,
        interval=interval,
        steps=sum(row.steps for row in rows) / len(rows),
        tokens=sum(tokens) / len(tokens) if tokens else None,
        score=score,
        score_interval=bounds,
        pass_at=tuple(_list_pass_at(wins, of_a_seed)),
        shown_k=of_a_seed if of_a_seed > 1 else max(map(len, scores)),
    )


def _list_pass_at(wins: Sequence[tuple[int, int]], of_a_seed: int) -> Iterator[PassAt]:
    """pass@k of tasks, each given as (wins, tries)."""
    largest_k = max(tries for _, tries in wins)
    for k in sorted({2**power for power in range(largest_k.bit_length())} | {min(of_a_seed, largest_k), largest_k}):
        counts = [(won, tries) for won, tries in wins if tries >= k]
        success, interval = mean_pass_at(k, counts)
        yield PassAt(k=k, tasks=len(counts), success=success, interval=interval)


ScoreKind = Literal["success", "outcome"]


@dataclass(frozen=True, kw_only=True)
class TaskSetScore:
    """Success, or the mean final score if success is not known, with its 95 % interval."""

    name: str
    """A task set, or a category of its tasks."""
    number: int
    """The update."""
    tasks: int
    """Number of tasks."""
    rollouts: int
    """Number of rollouts."""
    value: float
    """The mean over tasks."""
    interval: tuple[float, float]
    """Its 95 % interval: Wilson's, over the effective number of tries; for final scores, 1.96 standard errors."""
    task_set: str
    """Hash of the tasks of its evaluation."""
    score: float | None = None
    """Mean of the step info `evaluation.score`, if that is set."""
    tokens: float | None = None
    """Mean sampled tokens per rollout, if they were counted."""
    pass_at: PassAt | None = None
    """pass@k for the rollouts per task, if there are several."""


@dataclass(frozen=True, kw_only=True)
class CategoryScores:
    """A category of tasks, before and after."""

    name: str
    """The tasks' tag."""
    before: TaskSetScore | None
    """At the first evaluation; None if it has no such tasks."""
    after: TaskSetScore
    """At the last."""


@dataclass(frozen=True, kw_only=True)
class RunVerdict:
    """The evaluations of one task set, in the order of updates."""

    name: str
    """The task set's name."""
    split: str
    """The split that its tasks are of."""
    measure: ScoreKind
    """What is reported: success, or the mean final score if success is not known."""
    scores: tuple[TaskSetScore, ...]
    """Every evaluation; at least one."""
    categories: tuple[CategoryScores, ...]
    """The same by category, if tasks have tags."""
    is_one_task_set: bool
    """Whether the first and the last evaluation have the same tasks."""

    @property
    def before(self) -> TaskSetScore | None:
        """The first evaluation, if there are two."""
        return self.scores[0] if len(self.scores) > 1 else None

    @property
    def after(self) -> TaskSetScore:
        return self.scores[-1]

    @property
    def is_clear(self) -> bool:
        if self.before is None:
            return False
        low, high = sorted((self.before, self.after), key=lambda score: score.value)
        return low.interval[1] < high.interval[0]


def make_verdict(rows: Iterable[EvaluatedRollout], name: str) -> RunVerdict:
    """The result of a run on one task set, from the rows of its evaluations."""
    played = [row for row in rows if row.name == name]
    measure: ScoreKind = "success" if any(row.success is not None for row in played) else "outcome"
    counted = [row for row in played if measure == "outcome" or row.success is not None]
    evaluations = [rows for _, rows in group_rows(counted, lambda row: [row.number])]
    first, last = evaluations[0], evaluations[-1]
    first_by_tag = dict(group_rows(first, tags_of)) if len(evaluations) > 1 else {}
    categories = [
        CategoryScores(
            name=tag,
            before=_score(tag, first_by_tag[tag], measure) if tag in first_by_tag else None,
            after=_score(tag, tagged, measure),
        )
        for tag, tagged in group_rows(last, tags_of)
    ]
    return RunVerdict(
        name=name,
        split=last[0].split,
        measure=measure,
        scores=tuple(_score(name, evaluation, measure) for evaluation in evaluations),
        categories=tuple(categories),
        is_one_task_set={row.task_set for row in first} == {row.task_set for row in last},
    )


def describe_task_set(name: str, split: str) -> str:
    """A task set in words: by its split, unless it has a name of its own."""
    return f"split {split}" if name == split else f"task set {name}"


def describe_when(score: TaskSetScore) -> str:
    return f"after update {score.number}" if score.number else "before training"


def _score(name: str, rows: Sequence[EvaluatedRollout], measure: ScoreKind) -> TaskSetScore:
    summary, is_share = _summarise(name, rows), measure == "success"
    outcome, bounds = _mean_outcome(scores_by_task(rows, lambda row: row.outcome))
    return TaskSetScore(
        name=name,
        number=rows[0].number,
        tasks=summary.tasks,
        rollouts=summary.rollouts,
        value=summary.success if is_share else outcome,
        interval=summary.interval if is_share else bounds,
        task_set=rows[0].task_set,
        score=summary.score,
        tokens=summary.tokens,
        pass_at=summary.shown_pass if is_share else None,
    )


def _mean_outcome(outcomes: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """Mean over tasks, and 1.96 standard errors either side; for one task the interval is the mean itself."""
    means = [math.fsum(of_task) / len(of_task) for of_task in outcomes]
    mean = math.fsum(means) / len(means)
    variance = math.fsum((value - mean) ** 2 for value in means) / max(len(means) - 1, 1)
    half = Z_95 * math.sqrt(variance / len(means))
    return mean, (mean - half, mean + half)


# Intervals of success rates.

Z_95 = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % on either side."""


def wilson_interval(wins: float, tries: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson's interval of a fraction: it stays within [0, 1] and is right at the ends.

    >>> [round(bound, 3) for bound in wilson_interval(5, 10)]
    [0.237, 0.763]
    """
    share, spread = wins / tries, z * z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / tries + spread / (4 * tries)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def mean_over_clusters(scores: Sequence[Sequence[float]], z: float = Z_95) -> tuple[float, tuple[float, float]]:
    """Mean fraction over clusters, such as tasks, and its 95 % interval.

        p = mean_i p_i,   n = N p (1 - p) / mean_i (p_i - p)^2 * (z / t)^2,   Wilson's interval of p over n tries

    `scores` has a cluster's rollouts, each from 0 to 1; p_i is their mean, N the number of clusters, and t Student's
    quantile with N - 1 degrees of freedom, because the spread of few clusters is itself uncertain. Rollouts of one task
    are similar, so they count less than as many tasks: n, the effective number of tries, lies between the number of
    clusters and the number of rollouts. With one rollout per cluster this is Wilson's interval.

    Source: Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data", with Wilson's interval in place of the exact one.

    Choices: the interval is for further tasks of the same kind, so two tasks say little, however often they are tried.
    Clusters have equal weight. If all rollouts agree, their similarity is unknown, and n is the number of clusters.

    >>> share, (low, high) = mean_over_clusters([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    >>> share, round(low, 3), round(high, 3)
    (0.625, 0.219, 0.908)
    """
    means = [math.fsum(cluster) / len(cluster) for cluster in scores]
    return _over_clusters(means, sum(len(cluster) for cluster in scores), z)


def pass_at(k: int, *, wins: int, tries: int) -> float:
    """Probability that at least one of k rollouts succeeds, from `wins` successes in `tries` rollouts of a task.

        1 - C(tries - wins, k) / C(tries, k)

    It is the fraction of all choices of k rollouts that contain a success. It is unbiased; 1 - (1 - wins/tries)^k is
    not. Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    >>> pass_at(2, wins=1, tries=4)
    0.5
    """
    assert 1 <= k <= tries, "k rollouts are chosen among the tries"
    return 1 - math.comb(tries - wins, k) / math.comb(tries, k)


def mean_pass_at(k: int, counts: Sequence[tuple[int, int]], z: float = Z_95) -> tuple[float, tuple[float, float]]:
    """Mean of `pass_at` over tasks, each given as (wins, tries), and its 95 % interval.

    Choices: the interval is that of `mean_over_clusters` with a task's pass@k in place of its mean; at k = 1 the two
    are the same. The effective number of tries is at most the number of disjoint choices of k rollouts.

    >>> share, (low, high) = mean_pass_at(2, [(4, 4), (1, 4), (0, 4)])
    >>> share, round(low, 3), round(high, 3)
    (0.5, 0.125, 0.875)
    """
    estimates = [pass_at(k, wins=wins, tries=tries) for wins, tries in counts]
    return _over_clusters(estimates, sum(tries // k for _, tries in counts), z)


def _over_clusters(means: Sequence[float], max_tries: int, z: float) -> tuple[float, tuple[float, float]]:
    """Mean over clusters and its interval; they stand for at most `max_tries` independent tries."""
    share = math.fsum(means) / len(means)
    between = math.fsum((mean - share) ** 2 for mean in means) / len(means)
    tries = float(len(means))
    if 0 < share < 1 and max_tries > len(means) > 1:
        effective = min(tries * share * (1 - share) / between, max_tries) if between else max_tries
        tries = max(tries, effective * (z / student_quantile(z, len(means) - 1)) ** 2)
    return share, wilson_interval(share * tries, tries, z)


def student_quantile(z: float, freedom: int) -> float:
    """Student's quantile where the normal distribution has z, by its expansion in the degrees of freedom.

    Source: Abramowitz and Stegun 26.7.5. Right to 1 % from 4 degrees of freedom on, too small below.

    >>> round(student_quantile(Z_95, 10), 3), round(student_quantile(Z_95, 199), 3)
    (2.228, 1.972)
    """
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))
