"""The whole audit: every table of the file passes once, and each tally counts its part of the result."""

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
    """What an audit found."""

    census: Census
    """What is in the file."""
    levels: list[HistoryLevel]
    """Groups at each depth of history."""
    recipes: list[RecipeColumn]
    """Credit under each recipe."""
    gains: list[Mover]
    """Steps that gain most from the first recipe to the last."""
    losses: list[Mover]
    """Steps that lose most."""
    findings: list[str]
    """What it means, in sentences."""
    token_recipes: list[TokenColumn] | None = None
    """Credit of tokens under each recipe; None where no recipe gives tokens credit of their own."""
    token_movers: list[TokenMover] | None = None
    """Tokens whose credit changes most from the first recipe to the last, among those that both train; or None."""

    def as_json(self) -> dict[str, Any]:
        """The audit as plain data; nothing of tokens where nothing was compared of them."""
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
        tables: the parts of the file; one at a time is held in memory.
        algorithms: the recipes to compare, by name, in order; the first and the last are compared step by step.
        depth: how many earlier states to look at.
        gamma: discount of the return that the depths are compared by.
        read_tokens: gives the sampled tokens of the last table, for recipes that credit them; None = not compared.
    """
    names = list(algorithms)
    if not names:
        raise ConfigError("an audit needs at least one recipe; name one, such as hgpo")
    of = ReturnToGo(gamma=gamma)
    levels = [Relative(by=ByHistory(depth=k), of=of, scale=NoScale(), average="step") for k in range(depth + 1)]
    census, level_tally = CensusTally(), LevelTally(len(levels))
    recipe_tally, movers = RecipeTally(names), MoverTally(NUM_MOVERS)
    tokens = TokenTally(algorithms, NUM_MOVERS) if read_tokens and gives_token_credit(algorithms) else None
    mixing = [name for name, algorithm in algorithms.items() if any(part.mixes_tasks for part in algorithm.parts())]
    for number, table in enumerate(tables):
        if number and mixing:
            raise ConfigError(
                f"recipe {mixing[0]!r} compares across tasks and needs the whole file in memory, which is too large "
                "for that; leave it out, or audit a smaller file"
            )
        credits = {name: algorithm.credit(table) for name, algorithm in algorithms.items()}
        census.add(table)
        level_tally.add(table, [cast(Comparison, level(table).trace) for level in levels])
        recipe_tally.add(table, credits)
        movers.add(table, credits[names[0]], credits[names[-1]])
        if tokens is not None and read_tokens is not None:
            tokens.add(table, credits, read_tokens(table))
    token_recipes = None if tokens is None else tokens.result()
    result = census.result(), level_tally.result(), recipe_tally.result()
    return Audit(
        census=result[0],
        levels=result[1],
        recipes=result[2],
        gains=movers.gains,
        losses=movers.losses,
        findings=[*write_findings(*result), *write_token_findings(token_recipes or ())],
        token_recipes=token_recipes,
        token_movers=None if tokens is None else tokens.movers,
    )


def gives_token_credit(algorithms: Mapping[str, Algorithm]) -> bool:
    """Whether any of the recipes gives tokens credit of their own."""
    return any(algorithm.token_credit is not None for algorithm in algorithms.values())


# Plain-language findings: what the numbers of an audit mean for somebody about to train.

MUCH_UNREWARDED = 0.05
"""Share of credit without reward from which it is worth a sentence."""
MUCH_OWN_ROLLOUT = 0.05
"""Fraction of compared steps without another rollout in their groups from which it is worth a sentence."""
ENOUGH_STEPS = 30
"""Compared steps below which a level is too thin to speak about."""


def write_findings(census: Census, levels: Sequence[HistoryLevel], recipes: Sequence[RecipeColumn]) -> list[str]:
    """Sentences worth reading first, in the order of the pipeline: groups, states, histories, recipes."""
    return [
        *_describe_groups(census),
        *_describe_states(census, levels),
        *_describe_histories(levels),
        *_describe_recipes(census, recipes),
    ]


def _describe_groups(census: Census) -> Iterator[str]:
    if census.lone_tasks:
        yield (
            f"{_share(census.lone_tasks, census.tasks)} of the tasks have a single attempt: nothing to compare it "
            "with. Sample at least two attempts per task."
        )
    if census.equal_tasks:
        yield (
            f"{_share(census.equal_tasks, census.tasks)} of the tasks have attempts that all score the same: episode "
            "credit (GRPO) is exactly 0 there. Step-level credit may still differ; otherwise filter or replay them."
        )
    sizes = set(census.attempts_per_task)
    if len(sizes) > 1:
        yield f"Group sizes differ ({min(sizes)} to {max(sizes)} attempts): statistics are over the attempts present."
    if census.malformed_steps:
        yield f"{_share(census.malformed_steps, census.steps)} of the responses were malformed."
    if census.refused_steps:
        yield f"{_share(census.refused_steps, census.steps)} of the actions were refused by the environment."
    if census.invalid_steps and census.malformed_steps is None and census.refused_steps is None:
        yield (
            f"{_share(census.invalid_steps, census.steps)} of the steps were invalid: malformed, or refused by the "
            "environment; the file does not say which."
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
            f"Only {_share(shallow.compared_steps, with_state)} of the steps share their state: step-level credit will "
            "be thin. Look for counters, time stamps or ids in the state keys (`groupwise check rollouts`)."
        )
    if shallow.compared_steps and shallow.equal_steps > 0.5 * shallow.compared_steps:
        yield (
            f"{_share(shallow.equal_steps, shallow.compared_steps)} of the steps that share a state share one return "
            "too: compared, and nothing learnt."
        )


def _describe_histories(levels: Sequence[HistoryLevel]) -> Iterator[str]:
    shallow = levels[0]
    # The deepest level that still compares enough steps to speak about.
    deep = next((level for level in reversed(levels[1:]) if level.compared_at_both >= ENOUGH_STEPS), None)
    if deep is None:
        return
    plural = "s" if deep.depth > 1 else ""
    yield (
        f"{_share(deep.split_steps, shallow.compared_steps)} of the steps that share a state stand in one that was "
        f"reached by several histories (depth {deep.depth})."
    )
    yield (
        f"{deep.compared_steps} steps ({_share(deep.compared_steps, shallow.compared_steps)} of those) still find "
        f"company that shares {deep.depth} earlier state{plural} too; for them the baseline moves by "
        f"{deep.baseline_shift:.3g} on average ({deep.relative_shift:.2f} deviations), and {deep.sign_flips} turn sign."
    )


def _describe_recipes(census: Census, recipes: Sequence[RecipeColumn]) -> Iterator[str]:
    for before, after in pairwise(recipes):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            yield f"From {before.name} to {after.name}, {_share(flips, both)} of the credited steps change sign."
    for recipe in recipes:
        if recipe.unrewarded_share > MUCH_UNREWARDED:
            yield (
                f"{100 * recipe.unrewarded_share:.1f} % of the credit of {recipe.name} lies in tasks in which nobody "
                "earned anything: most likely a penalty on malformed or refused steps is all that differs there. "
                "Compare with `invalid_penalty=0`, or `refused_penalty=0` where that is set."
            )
    for recipe in recipes:
        own, compared = recipe.own_rollout_steps or 0, recipe.compared_steps
        if own > MUCH_OWN_ROLLOUT * compared:
            yield (
                f"{_share(own, compared)} of the steps that {recipe.name} compares have no other rollout in their "
                'groups: a rollout is compared with itself there. A grouper with `peers = "other_rollouts"` does not '
                "count them as compared."
            )
    last = recipes[-1]
    if last.compared_steps < census.steps:
        missing = census.steps - last.compared_steps
        yield f"{last.name} has nobody to compare {_share(missing, census.steps)} of the steps with; they get 0."


def write_token_findings(recipes: Sequence[TokenColumn]) -> list[str]:
    """What recipes make of tokens, in sentences; nothing where none gives them credit of their own."""
    sentences = []
    for recipe in recipes:
        if recipe.has_own_credit:
            words = f"Under {recipe.name} {_share(recipe.trained_tokens, recipe.tokens)} of the tokens train"
            if recipe.inside_share is not None:
                words += f"; {100 * recipe.inside_share:.1f} % of the variance of their credit lies inside steps"
            sentences.append(f"{words}.")
    for before, after in pairwise(recipes):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            share = _share(flips, both)
            sentences.append(f"From {before.name} to {after.name}, {share} of the credited tokens change sign.")
    return sentences


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


# The census: what is in the file, before anything is compared.


@dataclass(frozen=True, kw_only=True)
class Census:
    """Counts of what was recorded."""

    tasks: int
    """Tasks (or groups, where the file names them)."""
    attempts: int
    """Attempts over all tasks."""
    steps: int
    """Steps over all attempts."""
    attempts_per_task: dict[int, int]
    """How many tasks have how many attempts."""
    mean_return: float
    """Mean return over attempts."""
    lone_tasks: int
    """Tasks with a single attempt: nothing to compare an attempt with."""
    equal_tasks: int
    """Tasks with several attempts that all have the same return: GRPO learns nothing from them."""
    steps_without_state: int
    """Steps whose state is not comparable."""
    malformed_steps: int | None
    """Steps whose response had not the form that was asked for; None = the file does not say."""
    refused_steps: int | None
    """Steps that were not malformed and whose action the environment refused; None = the file does not say."""
    invalid_steps: int | None
    """Steps that were malformed or refused; None = the file does not say."""


class CensusTally:
    """Counts chunk by chunk."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._return_sum = 0.0

    def add(self, table: StepTable) -> None:
        """Count one chunk's steps."""
        first = table.attempts.first
        attempts_of_task = np.bincount(table.task[first], minlength=len(table.task_ids))
        equal = table.tasks.is_constant(table.episode_return) & (attempts_of_task > 1)
        self._sizes.update(attempts_of_task.tolist())
        self._return_sum += float(table.episode_return[first].sum())
        self._counts.update(
            tasks=len(table.task_ids),
            attempts=len(first),
            steps=len(table),
            lone_tasks=int(np.sum(attempts_of_task == 1)),
            equal_tasks=int(np.sum(equal)),
            steps_without_state=int(np.sum(table.state < 0)),
        )
        self._counts.update({name: int(np.sum(flawed)) for name, flawed in _find_flawed_steps(table).items()})

    def result(self) -> Census:
        """The counts so far."""
        counts = self._counts
        names = ("tasks", "attempts", "steps", "lone_tasks", "equal_tasks", "steps_without_state")
        return Census(
            attempts_per_task=dict(sorted(self._sizes.items())),
            mean_return=self._return_sum / max(counts["attempts"], 1),
            malformed_steps=counts.get("malformed_steps"),
            refused_steps=counts.get("refused_steps"),
            invalid_steps=counts.get("invalid_steps"),
            **{name: counts[name] for name in names},
        )


def _find_flawed_steps(table: StepTable) -> dict[str, BoolArray]:
    """Which steps were malformed, refused, or one of the two, as far as the table says (S)."""
    columns, flawed = table.extra, {}
    if "well_formed" in columns:
        flawed["malformed_steps"] = ~columns["well_formed"]
    if "accepted" in columns:
        flawed["refused_steps"] = ~columns["accepted"] & ~flawed.get("malformed_steps", np.False_)
    if "valid" in columns:
        flawed["invalid_steps"] = ~columns["valid"]
    return flawed


# Groups at each depth of history: how many steps are compared there, and what groups of equal states hide.
#
# Axis: S steps.


@dataclass(frozen=True, kw_only=True)
class HistoryLevel:
    """What comparing at one depth of history gives."""

    depth: int
    """Number of earlier states that must be equal; 0 = the state alone."""
    groups: int
    """Groups with at least two steps."""
    compared_steps: int
    """Steps in such a group."""
    own_rollout_steps: int
    """Compared steps whose whole group is of their own rollout."""
    alone_steps: int
    """Steps that have this much history and nobody who shares it."""
    too_early_steps: int
    """Steps without this much history, or without a state."""
    equal_steps: int
    """Compared steps whose whole group has one return: compared, and nothing learnt."""
    mean_size: float
    """Mean size of the groups with at least two steps."""
    split_steps: int
    """Steps compared at depth 0 whose state group holds several histories of this depth."""
    baseline_shift: float
    """Mean distance between the baseline at this depth and at depth 0, over steps compared at both."""
    relative_shift: float
    """The same, in deviations of the depth-0 group."""
    sign_flips: int
    """Steps compared at both whose distance from the baseline changes sign."""
    compared_at_both: int
    """Steps compared at both."""


class LevelTally:
    """Counts chunk by chunk; the comparisons come from outside, one per depth, in units of the return."""

    def __init__(self, depths: int) -> None:
        self._counts: list[Counter[str]] = [Counter() for _ in range(depths)]
        self._shift = np.zeros(depths)
        self._relative_shift = np.zeros(depths)
        self._scaled = np.zeros(depths)

    def add(self, table: StepTable, comparisons: Sequence[Comparison]) -> None:
        """Count one chunk: its comparisons by state and ever more history."""
        shallow = comparisons[0]
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
            self._add_shift(depth, shallow, level)

    def _add_shift(self, depth: int, shallow: Comparison, level: Comparison) -> None:
        both = shallow.compared & level.compared
        shift = np.abs(level.baseline[both] - shallow.baseline[both])
        spread = _measure_deviation(shallow)[both]
        flips = (shallow.signal - shallow.baseline)[both] * (level.signal - level.baseline)[both] < 0
        self._shift[depth] += float(shift.sum())
        self._relative_shift[depth] += float((shift[spread > 0] / spread[spread > 0]).sum())
        self._scaled[depth] += float(np.sum(spread > 0))
        self._counts[depth].update(sign_flips=int(flips.sum()), compared_at_both=int(both.sum()))

    def result(self) -> list[HistoryLevel]:
        """The levels so far, shallowest first."""
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
    """Whether a step's shallow group holds several deep groups (S); steps too early for depth count as one more."""
    states = Segments.of(shallow)
    pairs = Segments.of(pair_labels(states.label, deep + 1))
    kinds = np.bincount(states.label[pairs.first], minlength=len(states))
    return np.append(kinds > 1, False)[states.label]


def _measure_deviation(level: Comparison) -> np.ndarray:
    """Population deviation of each step's group (S); 0 outside."""
    groups = Segments.of(level.label)
    distance = np.where(level.compared, level.signal - level.baseline, 0.0)
    return groups.spread(np.sqrt(groups.sum(distance**2) / groups.size), 0.0)


# The steps that gain or lose most when one recipe takes another's place.


@dataclass(frozen=True, kw_only=True)
class Mover:
    """A step whose credit changes much."""

    task: str | int
    """Id of its task (or group)."""
    attempt: str | int
    index: int
    state: str
    action: str
    before: float
    """Credit under the first recipe."""
    after: float
    """Credit under the last recipe."""

    @property
    def change(self) -> float:
        """How much the step gains."""
        return self.after - self.before

    @property
    def name(self) -> tuple[str, str, int]:
        """What orders movers of one change."""
        return str(self.task), str(self.attempt), self.index


class MoverTally:
    """Keeps the largest gains and losses chunk by chunk."""

    def __init__(self, num: int) -> None:
        self._num = num
        self.gains: list[Mover] = []
        """Largest first."""
        self.losses: list[Mover] = []
        """Largest first."""

    def add(self, table: StepTable, before: Credit, after: Credit) -> None:
        """Look for movers in one chunk."""
        change = after.trace.values - before.trace.values
        self.losses = self._merge(self.losses, table, change, before, after)
        self.gains = self._merge(self.gains, table, -change, before, after)

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
        return heapq.nsmallest(self._num, movers, key=lambda mover: (-abs(mover.change), *mover.name))


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


# Credit under several recipes, side by side.
#
# Axes: R recipes, S steps.


@dataclass(frozen=True, kw_only=True)
class RecipeColumn:
    """What one recipe gives the file's steps."""

    name: str
    """Name of the recipe."""
    compared_steps: int
    """Steps compared with anybody."""
    own_rollout_steps: int | None
    """Compared steps that have no other rollout in any of their groups; None = the recipe does not say."""
    silent_steps: int
    """Compared steps whose credit is exactly 0."""
    mean_size: float
    """Mean absolute credit over all steps."""
    largest: float
    """Largest absolute credit."""
    unrewarded_share: float
    """Share of the absolute credit in tasks in which nobody earned anything, such as that of penalties."""
    flips: dict[str, int]
    """Against each other recipe: steps whose credit has the opposite sign."""
    both_signed: dict[str, int]
    """Against each other recipe: steps where both credits have a sign."""
    correlation: dict[str, float | None]
    """Against each other recipe: correlation of the two credits over all steps; None where one is constant."""


class RecipeTally:
    """Adds up credit chunk by chunk."""

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
        """Add one chunk's credit, recipe by recipe."""
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

    def result(self) -> list[RecipeColumn]:
        """One column a recipe."""
        correlation = self._correlation()
        return [
            RecipeColumn(
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

    def _correlation(self) -> FloatArray:
        mean = self._sum / max(self._steps, 1)
        covariance = self._product / max(self._steps, 1) - np.outer(mean, mean)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        product = np.outer(deviation, deviation)
        return np.where(product > 0, covariance / np.where(product > 0, product, 1.0), np.nan)
