"""The main numbers of a run's updates and groups, and its evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.data.records import Origin
from groupwise.training.evaluation.summary import RunVerdict, make_verdict
from groupwise.training.run_reader import RunFolder

MAX_NUMBERS = 8
"""Updates that a sentence lists."""
PENALTIES_ALONE = "advantage/penalties_alone"
STAGES = "seconds/"
"""Prefix of the metrics with the stages' times."""


@dataclass(frozen=True, kw_only=True)
class UpdateLine:
    """The main numbers of an update: fractions, means per rollout, and the time of all stages; None = unknown."""

    number: int
    success: float | None
    returned: float | None
    steps: float | None
    compared: float | None
    rescued: float | None
    loss: float | None
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class GroupCounts:
    """Counts of an update's groups."""

    number: int
    groups: int
    equal: int
    """Zero-variance groups with several rollouts."""
    rollouts: int

    @property
    def equal_share(self) -> float:
        return self.equal / self.groups

    @property
    def mean_size(self) -> float:
        return self.rollouts / self.groups


def read_update_lines(folder: RunFolder) -> list[UpdateLine]:
    metrics = folder.metrics
    is_success_known = has_success(folder)
    stages = [curve for name, curve in metrics.items() if name.startswith(STAGES)]

    def value(name: str, number: int) -> float | None:
        return metrics.get(name, {}).get(number)

    return [
        UpdateLine(
            number=number,
            success=value("rollout/success", number) if is_success_known else None,
            returned=value("rollout/return", number),
            steps=value("rollout/steps", number),
            compared=value("advantage/compared", number),
            rescued=value("advantage/groups_rescued", number),
            loss=value("loss/total", number),
            seconds=sum(curve[number] for curve in stages if number in curve) if stages else None,
        )
        for number in folder.updates
    ]


def rests_on_penalties(metrics: Mapping[str, float]) -> bool:
    return metrics.get(PENALTIES_ALONE) == 1.0


def find_penalised_updates(folder: RunFolder) -> list[int]:
    return [number for number, value in folder.metrics.get(PENALTIES_ALONE, {}).items() if value == 1.0]


def describe_penalties(numbers: Sequence[int], updates: int) -> str:
    """A warning if some updates' advantages come from penalties alone.

    >>> describe_penalties([3, 5], 40).partition(":")[0]
    'In 2 of 40 updates (3, 5) the advantages come from penalties alone'
    """
    if not numbers:
        return ""
    listed = ", ".join(map(str, numbers[:MAX_NUMBERS])) + (", …" if len(numbers) > MAX_NUMBERS else "")
    where = "In every update" if len(numbers) == updates else f"In {len(numbers)} of {updates} updates ({listed})"
    return (
        f"{where} the advantages come from penalties alone: no rollout got a reward, and only penalties on invalid "
        "actions or lengths differ. Use easier tasks or a warm start, or set the penalties to 0."
    )


def describe_lag(folder: RunFolder) -> str:
    """How an asynchronous run sampled; empty for a synchronous one."""
    lag = folder.setting("rollout.lag")
    if lag == 1:
        return "one update ahead (one-step off-policy)"
    if lag != "free":
        return ""
    return (
        f"fully asynchronously, at most {folder.setting('rollout.max_staleness')} versions behind: rollouts continue "
        "during weight syncs, so a repeated or resumed run has other numbers"
    )


def has_success(folder: RunFolder) -> bool:
    return not folder.rollouts or any(rollout["success"] is not None for rollout in folder.rollouts)


def count_groups(folder: RunFolder) -> list[GroupCounts]:
    """Counts of every update's groups, without rollouts that had a hint."""
    outcomes: dict[int, dict[str, list[float]]] = {}
    for rollout in (rollout for rollout in folder.rollouts if rollout["origin"] == Origin.FRESH):
        outcomes.setdefault(rollout["number"], {}).setdefault(rollout["task"], []).append(rollout["outcome"])
    return [
        GroupCounts(
            number=number,
            groups=len(groups),
            equal=sum(len(of_task) > 1 and len(set(of_task)) == 1 for of_task in groups.values()),
            rollouts=sum(map(len, groups.values())),
        )
        for number, groups in outcomes.items()
    ]


def sum_stage_seconds(folder: RunFolder) -> dict[str, float]:
    """Seconds of each stage over all updates, longest first."""
    stages = {
        name.removeprefix(STAGES): sum(curve.values())
        for name, curve in folder.metrics.items()
        if name.startswith(STAGES)
    }
    return dict(sorted(stages.items(), key=lambda stage: -stage[1]))


# The results of a run's evaluations.


def find_verdict(folder: RunFolder) -> RunVerdict | None:
    """The result on the settings' first task set, else on the most evaluated one; None = never evaluated."""
    rows = folder.journal.evaluations()
    numbers: dict[str, set[int]] = {}
    for row in rows:
        numbers.setdefault(row.name, set()).add(row.number)
    if not numbers:
        return None
    main = next(iter(folder.task_set_names), None)
    return make_verdict(rows, main if main in numbers else max(sorted(numbers), key=lambda name: len(numbers[name])))


def list_verdicts(folder: RunFolder) -> list[RunVerdict]:
    rows = folder.journal.evaluations()
    return [make_verdict(rows, name) for name in sorted({row.name for row in rows})]


def find_sampling_success(folder: RunFolder) -> tuple[float, float] | None:
    """Success of the training rollouts at the first and the last update; for runs without an evaluation."""
    shares = [line.success for line in read_update_lines(folder) if line.success is not None]
    return (shares[0], shares[-1]) if shares else None
