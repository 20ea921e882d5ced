"""The audit of a file. Each table is read once; each tally counts its part of the result."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from groupwise.credit import ByHistory, NoScale, Relative, ReturnToGo
from groupwise.data.credit import Comparison, Credit, find_own_rollout_only, find_unearned, spans_rollouts
from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.report.audit_tokens import TokenColumn, TokenMover, TokenTally
from groupwise.system.errors import ConfigError

NUM_MOVERS = 5


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of an audit."""

    census: Census
    levels: list[HistoryLevel]
    methods: list[MethodColumn]
    gains: list[Mover]
    """Steps whose advantage rises most from the first method to the last."""
    losses: list[Mover]
    """Steps whose advantage falls most."""
    findings: list[str]
    token_methods: list[TokenColumn] | None = None
    """Advantages of tokens under each method; None if no method gives tokens their own."""
    token_movers: list[TokenMover] | None = None
    """Tokens whose advantage changes most from the first method to the last, among those that both train; or None."""

    def as_json(self) -> dict[str, Any]:
        """The audit as plain data, without tokens if they were not compared."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def audit_tables(
    tables: Iterable[StepTable],
    algorithms: Mapping[str, Algorithm],
    *,
    depth: int = 4,
    gamma: float = 0.95,
    read_tokens: Callable[[StepTable], TokenTable] | None = None,
) -> Audit:
    """Audit tables that each hold whole tasks.

    Args:
        tables: the parts of the file; only one at a time is in memory.
        algorithms: the methods to compare, by name. The first and the last are compared step by step.
        depth: largest number of earlier states
        gamma: discount factor
        read_tokens: sampled tokens of the latest table; None = not compared
    """
    names = list(algorithms)
    if not names:
        raise ConfigError("an audit needs at least one method, such as hgpo")
    of = ReturnToGo(gamma=gamma)
    levels = [Relative(by=ByHistory(depth=k), of=of, scale=NoScale(), average="step") for k in range(depth + 1)]
    census, level_tally = CensusTally(), LevelTally(len(levels))
    method_tally, movers = MethodTally(names), MoverTally(NUM_MOVERS)
    tokens = TokenTally(algorithms, NUM_MOVERS) if read_tokens and gives_token_credit(algorithms) else None
    mixing = [name for name, algorithm in algorithms.items() if any(part.mixes_tasks for part in algorithm.parts())]
    for number, table in enumerate(tables):
        if number and mixing:
            raise ConfigError(
                f"method {mixing[0]!r} compares across tasks and needs the whole file in memory, which is too large "
                "for that; leave it out, or audit a smaller file"
            )
        credits = {name: algorithm.credit(table) for name, algorithm in algorithms.items()}
        census.add(table)
        level_tally.add(table, [cast(Comparison, level(table).trace) for level in levels])
        method_tally.add(table, credits)
        movers.add(table, credits[names[0]], credits[names[-1]])
        if tokens is not None and read_tokens is not None:
            tokens.add(table, credits, read_tokens(table))
    token_methods = None if tokens is None else tokens.result()
    counts, histories, methods = census.result(), level_tally.result(), method_tally.result()
    return Audit(
        census=counts,
        levels=histories,
        methods=methods,
        gains=movers.gains,
        losses=movers.losses,
        findings=[
            *_describe_groups(counts),
            *_describe_states(counts, histories),
            *_describe_histories(histories),
            *_describe_methods(counts, methods),
            *_describe_tokens(token_methods or ()),
        ],
        token_methods=token_methods,
        token_movers=None if tokens is None else tokens.movers,
    )


def gives_token_credit(algorithms: Mapping[str, Algorithm]) -> bool:
    return any(algorithm.token_credit is not None for algorithm in algorithms.values())


# Findings: sentences about the numbers, in the order of the pipeline.

MUCH_UNREWARDED = 0.05
"""A larger fraction of advantages without reward is reported."""
MUCH_OWN_ROLLOUT = 0.05
"""A larger fraction of compared steps without another rollout in their groups is reported."""
ENOUGH_STEPS = 30
"""A level with fewer compared steps is not described."""


def _describe_groups(census: Census) -> Iterator[str]:
    if census.lone_tasks:
        yield (
            f"{_share(census.lone_tasks, census.tasks)} of the tasks have a single rollout, so it cannot be compared. "
            "Sample at least two rollouts per task."
        )
    if census.equal_tasks:
        yield (
            f"{_share(census.equal_tasks, census.tasks)} of the tasks have zero-variance groups: their GRPO advantages "
            "are exactly 0. Step-level advantages may still differ; if not, filter or replay these tasks."
        )
    sizes = set(census.rollouts_per_task)
    if len(sizes) > 1:
        yield f"Group sizes differ: {min(sizes)} to {max(sizes)} rollouts."
    if census.malformed_steps:
        yield f"{_share(census.malformed_steps, census.steps)} of the responses were malformed."
    if census.refused_steps:
        yield f"{_share(census.refused_steps, census.steps)} of the actions were rejected by the environment."
    if census.invalid_steps and census.malformed_steps is None and census.refused_steps is None:
        yield (
            f"{_share(census.invalid_steps, census.steps)} of the steps were invalid (malformed or rejected by the "
            "environment)."
        )


def _describe_states(census: Census, levels: Sequence[HistoryLevel]) -> Iterator[str]:
    if census.steps_without_state:
        yield (
            f"{_share(census.steps_without_state, census.steps)} of the steps have no state: "
            "GiGPO and HGPO cannot compare them."
        )
    shallow = levels[0]
    with_state = shallow.compared_steps + shallow.alone_steps
    if with_state and shallow.compared_steps < 0.25 * with_state:
        yield (
            f"Only {_share(shallow.compared_steps, with_state)} of the steps share their state, so few steps get a "
            "step-level advantage. Look for counters, times or ids in the state keys (`groupwise check rollouts`)."
        )
    if shallow.compared_steps and shallow.equal_steps > 0.5 * shallow.compared_steps:
        yield (
            f"{_share(shallow.equal_steps, shallow.compared_steps)} of the steps that share a state also have equal "
            "returns: they have no learning signal."
        )


def _describe_histories(levels: Sequence[HistoryLevel]) -> Iterator[str]:
    shallow = levels[0]
    # The deepest level that still compares enough steps to speak about.
    deep = next((level for level in reversed(levels[1:]) if level.compared_at_both >= ENOUGH_STEPS), None)
    if deep is None:
        return
    plural = "s" if deep.depth > 1 else ""
    yield (
        f"{_share(deep.split_steps, shallow.compared_steps)} of the steps that share a state are in a state with "
        f"several histories (depth {deep.depth})."
    )
    yield (
        f"{deep.compared_steps} steps ({_share(deep.compared_steps, shallow.compared_steps)} of those) can also be "
        f"compared with {deep.depth} equal earlier state{plural}. For them the baseline moves by "
        f"{deep.baseline_shift:.3g} on average ({deep.relative_shift:.2f} standard deviations), and {deep.sign_flips} "
        "change sign."
    )


def _describe_methods(census: Census, methods: Sequence[MethodColumn]) -> Iterator[str]:
    for before, after in pairwise(methods):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            yield f"From {before.name} to {after.name}, {_share(flips, both)} of the nonzero advantages change sign."
    for method in methods:
        if method.unrewarded_share > MUCH_UNREWARDED:
            yield (
                f"{100 * method.unrewarded_share:.1f} % of the absolute advantages of {method.name} are in tasks "
                "without any reward. Most likely only a penalty on malformed or invalid actions differs there. "
                "Compare with `invalid_penalty=0` or `refused_penalty=0`."
            )
    for method in methods:
        own, compared = method.own_rollout_steps or 0, method.compared_steps
        if own > MUCH_OWN_ROLLOUT * compared:
            yield (
                f"{_share(own, compared)} of the steps that {method.name} compares have no other rollout in their "
                'groups: a rollout is compared with itself there. A grouper with `peers = "other_rollouts"` does not '
                "count them as compared."
            )
    last = methods[-1]
    if last.compared_steps < census.steps:
        missing = census.steps - last.compared_steps
        yield f"{last.name} cannot compare {_share(missing, census.steps)} of the steps; their advantage is 0."


def _describe_tokens(methods: Sequence[TokenColumn]) -> Iterator[str]:
    for method in methods:
        if method.has_own_credit:
            words = f"Under {method.name} {_share(method.trained_tokens, method.tokens)} of the tokens train"
            if method.inside_share is not None:
                words += f"; {100 * method.inside_share:.1f} % of the variance of their advantages is inside steps"
            yield f"{words}."
    for before, after in pairwise(methods):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            yield f"From {before.name} to {after.name}, {_share(flips, both)} of the nonzero tokens change sign."


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


# The census: counts of the file.


@dataclass(frozen=True, kw_only=True)
class Census:
    """Counts of the recorded rollouts."""

    tasks: int
    """Tasks (or groups, if the file names them)."""
    rollouts: int
    steps: int
    rollouts_per_task: dict[int, int]
    """Number of tasks by their number of rollouts."""
    mean_return: float
    lone_tasks: int
    equal_tasks: int
    """Tasks with several rollouts of equal return (zero-variance groups)."""
    steps_without_state: int
    malformed_steps: int | None
    """Steps whose response does not have the required format; None = not recorded."""
    refused_steps: int | None
    """Well-formed steps whose action the environment rejected; None = not recorded."""
    invalid_steps: int | None
    """Steps that were malformed or rejected; None = not recorded."""


class CensusTally:
    """Counts chunk by chunk."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._return_sum = 0.0

    def add(self, table: StepTable) -> None:
        first = table.rollouts.first
        rollouts_of_task = np.bincount(table.task[first], minlength=len(table.task_ids))
        equal = table.tasks.is_constant(table.episode_return) & (rollouts_of_task > 1)
        self._sizes.update(rollouts_of_task.tolist())
        self._return_sum += float(table.episode_return[first].sum())
        self._counts.update(
            tasks=len(table.task_ids),
            rollouts=len(first),
            steps=len(table),
            lone_tasks=int(np.sum(rollouts_of_task == 1)),
            equal_tasks=int(np.sum(equal)),
            steps_without_state=int(np.sum(table.state < 0)),
        )
        columns, flawed = table.extra, dict[str, BoolArray]()
        if "well_formed" in columns:
            flawed["malformed_steps"] = ~columns["well_formed"]
        if "accepted" in columns:
            flawed["refused_steps"] = ~columns["accepted"] & ~flawed.get("malformed_steps", np.False_)
        if "valid" in columns:
            flawed["invalid_steps"] = ~columns["valid"]
        self._counts.update({name: int(np.sum(steps)) for name, steps in flawed.items()})

    def result(self) -> Census:
        counts = self._counts
        names = ("tasks", "rollouts", "steps", "lone_tasks", "equal_tasks", "steps_without_state")
        return Census(
            rollouts_per_task=dict(sorted(self._sizes.items())),
            mean_return=self._return_sum / max(counts["rollouts"], 1),
            malformed_steps=counts.get("malformed_steps"),
            refused_steps=counts.get("refused_steps"),
            invalid_steps=counts.get("invalid_steps"),
            **{name: counts[name] for name in names},
        )


# Groups at each depth of history. Axis: S steps.


@dataclass(frozen=True, kw_only=True)
class HistoryLevel:
    """The groups at one depth of history."""

    depth: int
    """Number of earlier states that must be equal; 0 = the state alone."""
    groups: int
    """Groups with at least two steps."""
    compared_steps: int
    """Steps in such a group."""
    own_rollout_steps: int
    """Compared steps whose group has no other rollout."""
    alone_steps: int
    """Steps with this much history that are the only member of their group."""
    too_early_steps: int
    """Steps without this much history, or without a state."""
    equal_steps: int
    """Compared steps whose group has equal returns, so no learning signal."""
    mean_size: float
    split_steps: int
    """Steps compared at depth 0 whose state has several histories of this depth."""
    baseline_shift: float
    """Mean distance between the baseline at this depth and at depth 0, over steps compared at both."""
    relative_shift: float
    """The same, in standard deviations of the depth-0 group."""
    sign_flips: int
    """Steps compared at both whose distance from the baseline changes sign."""
    compared_at_both: int


class LevelTally:
    """Counts chunk by chunk. `add` gets one comparison per depth, in units of the return."""

    def __init__(self, depths: int) -> None:
        self._counts: list[Counter[str]] = [Counter() for _ in range(depths)]
        self._shift = np.zeros(depths)
        self._relative_shift = np.zeros(depths)
        self._scaled = np.zeros(depths)

    def add(self, table: StepTable, comparisons: Sequence[Comparison]) -> None:
        shallow = comparisons[0]
        groups = Segments.of(shallow.label)
        distance = np.where(shallow.compared, shallow.signal - shallow.baseline, 0.0)
        deviation = groups.spread(np.sqrt(groups.sum(distance**2) / groups.size), 0.0)  # population; 0 without a group
        for depth, level in enumerate(comparisons):
            groups = Segments.of(level.label)
            several = groups.size > 1
            equal = np.append(groups.is_constant(level.signal) & several, False)[groups.label]
            self._counts[depth].update(
                groups=int(several.sum()),
                compared_steps=int(level.compared.sum()),
                own_rollout_steps=int(np.sum(level.compared & ~spans_rollouts(table, level.label))),
                alone_steps=int(np.sum((level.label >= 0) & ~level.compared)),
                too_early_steps=int(np.sum(level.label < 0)),
                equal_steps=int(equal.sum()),
                split_steps=int(np.sum(_find_split(shallow.label, level.label) & shallow.compared)),
            )
            both = shallow.compared & level.compared
            shift = np.abs(level.baseline[both] - shallow.baseline[both])
            spread = deviation[both]
            flips = (shallow.signal - shallow.baseline)[both] * (level.signal - level.baseline)[both] < 0
            self._shift[depth] += float(shift.sum())
            self._relative_shift[depth] += float((shift[spread > 0] / spread[spread > 0]).sum())
            self._scaled[depth] += float(np.sum(spread > 0))
            self._counts[depth].update(sign_flips=int(flips.sum()), compared_at_both=int(both.sum()))

    def result(self) -> list[HistoryLevel]:
        return [
            HistoryLevel(
                depth=depth,
                mean_size=counts["compared_steps"] / max(counts["groups"], 1),
                baseline_shift=float(self._shift[depth]) / max(counts["compared_at_both"], 1),
                relative_shift=float(self._relative_shift[depth]) / max(float(self._scaled[depth]), 1.0),
                **counts,
            )
            for depth, counts in enumerate(self._counts)
        ]


def _find_split(shallow: IntArray, deep: IntArray) -> BoolArray:
    """Whether a step's shallow group contains several deep groups (S). Steps that are too early form one more group."""
    states = Segments.of(shallow)
    pairs = Segments.of(pair_labels(states.label, deep + 1))
    kinds = np.bincount(states.label[pairs.first], minlength=len(states))
    return np.append(kinds > 1, False)[states.label]


# The steps whose advantage changes most between two methods.


@dataclass(frozen=True, kw_only=True)
class Mover:
    """A step whose advantage changes much."""

    task: str | int
    rollout: str | int
    step: int
    state: str
    action: str
    before: float
    """Advantage under the first method."""
    after: float
    """Advantage under the last method."""

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def name(self) -> tuple[str, str, int]:
        """Orders movers with equal changes."""
        return str(self.task), str(self.rollout), self.step


class MoverTally:
    """Keeps the largest gains and losses chunk by chunk, the largest first."""

    def __init__(self, num: int) -> None:
        self._num = num
        self.gains: list[Mover] = []
        self.losses: list[Mover] = []

    def add(self, table: StepTable, before: Credit, after: Credit) -> None:
        change = after.trace.values - before.trace.values
        self.losses = self._merge(self.losses, table, change, before, after)
        self.gains = self._merge(self.gains, table, -change, before, after)

    def _merge(
        self, known: list[Mover], table: StepTable, change: FloatArray, before: Credit, after: Credit
    ) -> list[Mover]:
        """The movers of lowest change, among known ones and one chunk. Ties go by name, however the file is split."""
        falling = np.flatnonzero(change < 0)
        if len(falling) > self._num:
            edge = np.partition(change[falling], self._num - 1)[self._num - 1]
            falling = falling[change[falling] <= edge]  # ties at the edge stay in
        movers = known + [
            Mover(
                task=table.task_ids[table.task[step]],
                rollout=table.rollout_ids[table.rollout[step]],
                step=int(table.step[step]),
                state=str(table.state_keys[table.state[step]]) if table.state[step] >= 0 else "",
                action=str(table.extra["action"][step] or "") if "action" in table.extra else "",
                before=float(before.trace.values[step]),
                after=float(after.trace.values[step]),
            )
            for step in falling.tolist()
        ]
        return heapq.nsmallest(self._num, movers, key=lambda mover: (-abs(mover.change), *mover.name))


# The advantages of several methods. Axes: R methods, S steps.


@dataclass(frozen=True, kw_only=True)
class MethodColumn:
    """The advantages that one method gives the file's steps."""

    name: str
    compared_steps: int
    own_rollout_steps: int | None
    """Compared steps that have no other rollout in any of their groups; None = unknown."""
    silent_steps: int
    """Compared steps whose advantage is exactly 0."""
    mean_size: float
    """Mean absolute advantage over all steps."""
    largest: float
    unrewarded_share: float
    """Fraction of the absolute advantage in tasks without any reward, for example from penalties."""
    flips: dict[str, int]
    """By other method: steps with advantages of opposite signs."""
    both_signed: dict[str, int]
    """By other method: steps with two nonzero advantages."""
    correlation: dict[str, float | None]
    """By other method: correlation of the advantages over all steps; None if one is constant."""


class MethodTally:
    """Sums advantages chunk by chunk."""

    def __init__(self, names: Sequence[str]) -> None:
        num = len(names)
        self._names = list(names)
        self._steps = 0
        self._compared, self._silent = np.zeros(num, dtype=np.int64), np.zeros(num, dtype=np.int64)
        self._own_rollout: list[int | None] = [0] * num
        self._size, self._largest, self._unrewarded = np.zeros(num), np.zeros(num), np.zeros(num)
        self._flips, self._both = np.zeros((num, num), dtype=np.int64), np.zeros((num, num), dtype=np.int64)
        self._sum, self._product = np.zeros(num), np.zeros((num, num))

    def add(self, table: StepTable, credits: Mapping[str, Credit]) -> None:
        traces = [credits[name].trace for name in self._names]
        values_RS = np.stack([trace.values for trace in traces])
        compared_RS = np.stack([trace.compared for trace in traces])
        signs_RS = np.sign(values_RS)
        self._steps += values_RS.shape[1]
        self._compared += compared_RS.sum(axis=1)
        for place, trace in enumerate(traces):
            own, before = find_own_rollout_only(table, trace), self._own_rollout[place]
            self._own_rollout[place] = None if own is None or before is None else before + int(own.sum())
        self._silent += (compared_RS & (values_RS == 0)).sum(axis=1)
        self._size += np.abs(values_RS).sum(axis=1)
        self._unrewarded += np.abs(values_RS[:, find_unearned(table)]).sum(axis=1)
        self._largest = np.maximum(self._largest, np.abs(values_RS).max(axis=1, initial=0.0))
        agreement = signs_RS @ signs_RS.T
        both = np.abs(signs_RS) @ np.abs(signs_RS).T
        self._both += both.astype(np.int64)
        self._flips += ((both - agreement) / 2).astype(np.int64)
        self._sum += values_RS.sum(axis=1)
        self._product += values_RS @ values_RS.T

    def result(self) -> list[MethodColumn]:
        mean = self._sum / max(self._steps, 1)
        covariance = self._product / max(self._steps, 1) - np.outer(mean, mean)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        product = np.outer(deviation, deviation)
        correlation = np.where(product > 0, covariance / np.where(product > 0, product, 1.0), np.nan)
        return [
            MethodColumn(
                name=name,
                compared_steps=int(self._compared[i]),
                own_rollout_steps=self._own_rollout[i],
                silent_steps=int(self._silent[i]),
                mean_size=float(self._size[i] / max(self._steps, 1)),
                largest=float(self._largest[i]),
                unrewarded_share=float(self._unrewarded[i] / self._size[i]) if self._size[i] else 0.0,
                flips={other: int(self._flips[i, j]) for j, other in enumerate(self._names) if j != i},
                both_signed={other: int(self._both[i, j]) for j, other in enumerate(self._names) if j != i},
                correlation={
                    other: None if np.isnan(correlation[i, j]) else float(correlation[i, j])
                    for j, other in enumerate(self._names)
                    if j != i
                },
            )
            for i, name in enumerate(self._names)
        ]
