"""A run update by update: its main numbers, and what its groups were like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.data.records import Origin
from groupwise.training.evaluation.summary import RunVerdict, make_verdict
from groupwise.training.run_reader import RunFolder

MAX_NUMBERS = 8
"""How many updates a sentence lists."""
PENALTIES_ALONE = "credit/penalties_alone"
STAGES = "seconds/"
"""What the names of the stages' times begin with."""


@dataclass(frozen=True, kw_only=True)
class UpdateLine:
    """The main numbers of an update; None where it has none."""

    number: int
    success: float | None
    """Share of its attempts that solved their task; None also where the environment does not say."""
    returned: float | None
    """Mean return of an attempt."""
    steps: float | None
    """Mean steps of an attempt."""
    compared: float | None
    """Share of steps that were compared with somebody."""
    rescued: float | None
    """Share of groups that teach only by what was done for them."""
    loss: float | None
    """What was minimised."""
    seconds: float | None
    """Time it took, all stages."""


@dataclass(frozen=True, kw_only=True)
class GroupCounts:
    """The groups of an update, counted."""

    number: int
    groups: int
    equal: int
    """Groups of several attempts whose outcomes are all equal."""
    attempts: int

    @property
    def equal_share(self) -> float:
        return self.equal / self.groups

    @property
    def mean_size(self) -> float:
        return self.attempts / self.groups


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
            compared=value("credit/compared", number),
            rescued=value("credit/groups_rescued", number),
            loss=value("loss/total", number),
            seconds=sum(curve[number] for curve in stages if number in curve) if stages else None,
        )
        for number in folder.updates
    ]


def rests_on_penalties(metrics: Mapping[str, float]) -> bool:
    """Whether the credit of an update, by its metrics, comes from penalties alone."""
    return metrics.get(PENALTIES_ALONE) == 1.0


def find_penalised_updates(folder: RunFolder) -> list[int]:
    """The updates whose credit comes from penalties alone; none in a run that was written before that was measured."""
    return [number for number, value in folder.metrics.get(PENALTIES_ALONE, {}).items() if value == 1.0]


def describe_penalties(numbers: Sequence[int], updates: int) -> str:
    """What is to be said of a run with so many updates, some of which rest on penalties alone; nothing where none do.

    >>> describe_penalties([3, 5], 40).partition(":")[0]
    'In 2 of 40 updates (3, 5) credit comes from penalties alone'
    """
    if not numbers:
        return ""
    listed = ", ".join(map(str, numbers[:MAX_NUMBERS])) + (", …" if len(numbers) > MAX_NUMBERS else "")
    where = "In every update" if len(numbers) == updates else f"In {len(numbers)} of {updates} updates ({listed})"
    return (
        f"{where} credit comes from penalties alone: nobody earned anything, and only what malformed or refused "
        "actions or lengths cost tells attempts apart. Take easier tasks, begin with a warm start, or set the "
        "penalties to 0."
    )


def describe_lag(folder: RunFolder) -> str:
    """What is to be said of a run that played while it learnt; nothing of one that did not."""
    lag = folder.setting("rollout.lag")
    if lag == 1:
        return "one update ahead: each but the first learns from what the version before the learner's sampled"
    if lag != "free":
        return ""
    return (
        f"free, at most {folder.setting('rollout.max_age')} versions behind: attempts went on while weights were "
        "handed over, so that neither a second run nor a resumed one comes to the same numbers"
    )


def has_success(folder: RunFolder) -> bool:
    return not folder.attempts or any(attempt["success"] is not None for attempt in folder.attempts)


def count_groups(folder: RunFolder) -> list[GroupCounts]:
    """What the groups of every update were like, without the attempts that had guidance."""
    outcomes: dict[int, dict[str, list[float]]] = {}
    for attempt in (attempt for attempt in folder.attempts if attempt["origin"] == Origin.FRESH):
        outcomes.setdefault(attempt["number"], {}).setdefault(attempt["task"], []).append(attempt["outcome"])
    return [
        GroupCounts(
            number=number,
            groups=len(groups),
            equal=sum(len(of_task) > 1 and len(set(of_task)) == 1 for of_task in groups.values()),
            attempts=sum(map(len, groups.values())),
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


# The verdicts on a run, from the evaluations in its journal; and success while sampling, where there are none.


def find_verdict(folder: RunFolder) -> RunVerdict | None:
    """How the run did on the panel that its settings name, or on the one most often played; None = never evaluated."""
    rows = folder.journal.evaluations()
    numbers: dict[str, set[int]] = {}
    for row in rows:
        numbers.setdefault(row.split, set()).add(row.number)
    if not numbers:
        return None
    named = folder.setting("evaluation.split")
    split = named if named in numbers else max(sorted(numbers), key=lambda name: len(numbers[name]))
    return make_verdict(rows, split)


def list_verdicts(folder: RunFolder) -> list[RunVerdict]:
    """How the run did on every panel it was evaluated on, by name."""
    rows = folder.journal.evaluations()
    return [make_verdict(rows, split) for split in sorted({row.split for row in rows})]


def find_sampling_success(folder: RunFolder) -> tuple[float, float] | None:
    """Success while sampling, at the first and the last update that has it; what there is without an evaluation."""
    shares = [line.success for line in read_update_lines(folder) if line.success is not None]
    return (shares[0], shares[-1]) if shares else None
