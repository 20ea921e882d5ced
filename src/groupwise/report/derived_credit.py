"""The advantages of an update, computed again from its journal: which steps were compared, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from groupwise.credit import ByHistory, ByState, ByTask
from groupwise.data.credit import Comparison, Credit, Shared, Trace, WeightedSum, find_own_rollout_only, spans_rollouts
from groupwise.data.past_rollouts import number_at
from groupwise.data.records import SAMPLED_ELSEWHERE, Origin, Task
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.data.step_columns import lay_out_rows, make_rows
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.stateful import StateBefore, check_journaled, join_columns
from groupwise.report.explained_step import AGREEMENT, ExplainedStep, explain_whole_step, needs_all_tasks
from groupwise.report.number_format import format_signed
from groupwise.report.prompts import TokenTexts
from groupwise.rollout.plans import MARK
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError, RecordError
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class ComparisonGroup:
    """The group of a step under one of the algorithm's groupers."""

    by: str
    """What the members share, in words."""
    members: int
    """Steps in the group, including itself; 0 = it is in none."""
    own_rollout_only: bool = False
    """Whether all other members are steps of its own rollout."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedCredit:
    """The step table of an update and the advantages that an algorithm gives it."""

    algorithm: Algorithm
    table: StepTable
    rows: Sequence[Mapping[str, Any]]
    """The rows of the table: those of the journal, then those of replayed rollouts that were compared."""
    credit: Credit
    recorded: Sequence[float]
    """The advantages in the journal, in the same order."""

    @classmethod
    def compute(
        cls, trajectories: Sequence[Mapping[str, Any]], algorithm: Algorithm, states: Sequence[StateBefore] = ()
    ) -> DerivedCredit:
        """Compute an update's advantages, given `Journal.trajectories` and `Journal.states_before`."""
        rows = [row for record in trajectories for row in record["steps"]]
        recorded = [value for record in trajectories for value in record["credit"]]
        number = next((record["number"] for record in trajectories if "number" in record), None)
        table = join_columns(make_step_table(rows, version=None if number is None else number - 1), states)
        table = algorithm.estimator_table(table)
        credit = algorithm.advantage(table)
        return cls(algorithm=algorithm, table=table, rows=rows, credit=credit, recorded=recorded)

    @property
    def agrees(self) -> bool:
        """Whether the numbers equal those of the journal."""
        recorded = np.asarray(self.recorded, dtype=np.float64)
        return bool(np.allclose(self.credit.values, recorded, rtol=AGREEMENT, atol=AGREEMENT))

    def credit_tokens(self) -> list[CreditedTokens] | None:
        """The advantages of each row's tokens; None if tokens have those of their steps."""
        if self.algorithm.token_credit is None:
            return None
        tokens = TokenTable.from_rows(self.table, self.rows)
        token_credit = self.algorithm.token_credit(self.table, self.credit.by_step(), tokens)
        keep = self.algorithm.keep(self.table, self.credit).tolist()
        return [
            CreditedTokens(
                ids=row.get("response_ids") or (),
                num_forced=int(row.get("forced") or 0),
                values=token_credit.values[tokens.find_tokens(number)],
                trains=token_credit.trains[tokens.find_tokens(number)] & may_train,
            )
            for number, (row, may_train) in enumerate(zip(self.rows, keep, strict=True))
        ]

    def find_peers(self) -> list[tuple[ComparisonGroup, ...]]:
        levels = [
            (_describe_shared(trace.part), _count_members(trace.label), spans_rollouts(self.table, trace.label))
            for trace in _walk_comparisons(self.credit.trace)
        ]
        return [
            tuple(
                ComparisonGroup(
                    by=by, members=int(sizes[step]), own_rollout_only=bool(sizes[step] > 1 and not spans[step])
                )
                for by, sizes, spans in levels
            )
            for step in self.credit.step_of_row.tolist()
        ]

    def find_own_rollout_only(self) -> list[bool | None]:
        """Whether each row was compared only within its own rollout; None = unknown."""
        own = find_own_rollout_only(self.table, self.credit.trace)
        return [None] * len(self.rows) if own is None else own[self.credit.step_of_row].tolist()


@dataclass(frozen=True, kw_only=True)
class UnderivableCredit:
    """Why the advantages of an update cannot be derived again from its journal."""

    reason: str

    def describe(self, number: int) -> str:
        return (
            f"The advantages of update {number} cannot be derived again ({self.reason}). The numbers are those of the "
            "journal, without the groups; rescued groups are found by their final scores"
        )


def describe_company(company: Sequence[ComparisonGroup]) -> str:
    """The groups of a step in words.

    >>> before = ComparisonGroup(by="state and 1 before", members=2)
    >>> describe_company([ComparisonGroup(by="state", members=8), before])
    '7 others by state, 1 other by state and 1 before'
    """
    comparisons = [
        f"{level.members - 1} other{'s' if level.members > 2 else ''} by {level.by}"
        f"{' (its own rollout only)' if level.own_rollout_only else ''}"
        for level in company
        if level.members > 1
    ]
    return ", ".join(comparisons) or "no other step"


def derive_credit(
    trajectories: Sequence[Mapping[str, Any]],
    algorithm: Algorithm | None,
    replayed: Sequence[Mapping[str, Any]] = (),
    states: Sequence[StateBefore] = (),
) -> DerivedCredit | UnderivableCredit:
    """Compute the advantages again, or say why that fails or gives other numbers than the journal.

    `replayed` are replayed rollouts that joined. `algorithm` None = unknown.
    """
    if algorithm is None:
        return UnderivableCredit(reason="the run's algorithm cannot be read here")
    if not any(record["steps"] for record in trajectories):
        return UnderivableCredit(reason="it has no steps")
    try:
        derived = DerivedCredit.compute([*trajectories, *choose_compared(replayed)], algorithm, states)
    except (RecordError, ConfigError) as error:
        return UnderivableCredit(reason=str(error))
    if not derived.agrees:
        furthest = float(np.max(np.abs(derived.credit.values - np.asarray(derived.recorded, dtype=np.float64))))
        return UnderivableCredit(reason=f"computed again, the numbers differ by up to {furthest:.3g}")
    return derived


def choose_compared(replayed: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The replayed rollouts that were compared again; the others keep their old advantages."""
    return [record for record in replayed if not record["source"].keeps_credit]


def measure_without_rescue(
    trajectories: Sequence[Mapping[str, Any]], algorithm: Algorithm | None, states: Sequence[StateBefore] = ()
) -> dict[str, float] | None:
    """Mean absolute advantage of each group without replayed rollouts, hints and reward shaping; None = unknown."""
    joined = find_joined(trajectories)
    own = [record for record in trajectories if (record["task"], record["rollout"]) not in joined]
    rows = [row | {"reward": row.get("reward_alone", row["reward"])} for record in own for row in record["steps"]]
    if algorithm is None or not rows:
        return None
    try:
        values = algorithm.credit(join_columns(make_step_table(rows), states)).values.tolist()
    except (RecordError, ConfigError):
        return None
    sizes: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        sizes.setdefault(row["task"], []).append(abs(value))
    return {task: math.fsum(of_task) / len(of_task) for task, of_task in sizes.items()}


def make_step_table(rows: Sequence[Mapping[str, Any]], *, version: int | None = None) -> StepTable:
    """The step table of a journal's rows; `version` is the policy version that the update trained."""
    return StepTable.from_columns(**lay_out_rows(rows, version=version))


def _walk_comparisons(trace: Trace) -> Iterator[Comparison]:
    if isinstance(trace, Comparison):
        yield trace
        if trace.of is not None:
            yield from _walk_comparisons(trace.of)
    elif isinstance(trace, WeightedSum):
        for term in trace.terms:
            yield from _walk_comparisons(term)
    elif isinstance(trace, Shared):
        yield from _walk_comparisons(trace.of)


def _count_members(label: IntArray) -> IntArray:
    sizes = np.bincount(label[label >= 0], minlength=1)
    return np.where(label >= 0, sizes[np.maximum(label, 0)], 0)


def _describe_shared(part: object) -> str:
    grouper = getattr(part, "by", None)
    if isinstance(grouper, ByTask):
        return "task"
    if isinstance(grouper, ByState) or (isinstance(grouper, ByHistory) and not grouper.depth):
        return "state"
    if isinstance(grouper, ByHistory):
        return f"state and {grouper.depth} before"
    return name_of(part if grouper is None else grouper)


# One step of a run, explained from the journal.


@dataclass(frozen=True, kw_only=True)
class RememberedColumn:
    """The value that a stateful part remembered of a task or step when an update began."""

    path: str
    column: str
    value: float


@dataclass(frozen=True, eq=False, kw_only=True)
class RunStepExplanation(ExplainedStep):
    """The explanation of a step of a run."""

    recorded: float
    remembered: tuple[RememberedColumn, ...]
    is_what_trained: bool
    """Whether it is explained under the run's own algorithm. If not, the journal has another number."""

    @property
    def gap(self) -> float | None:
        """As in `ExplainedStep`, and between the computed number and the journal's, for the run's own algorithm."""
        by_hand = super().gap
        if not self.is_what_trained:
            return by_hand
        value = self.explanation.value
        return max(abs(value - self.recorded) / max(1.0, abs(value)), by_hand or 0.0)

    def as_json(self) -> dict[str, Any]:
        remembered = [asdict(known) for known in self.remembered]
        own = {"recorded": self.recorded, "remembered": remembered, "is_what_trained": self.is_what_trained}
        return super().as_json() | own


def explain_run_step(
    folder: RunFolder,
    *,
    number: int,
    task: str,
    rollout: int,
    step: int,
    token: int | None = None,
    other: Algorithm | None = None,
) -> RunStepExplanation:
    """Explain the advantage of one step, and of one of its tokens if asked. `other` replaces the run's algorithm."""
    algorithm = other or folder.read_algorithm()
    only = None if needs_all_tasks(algorithm) else task
    trajectories = list(folder.journal.trajectories(number, task=only))
    replayed = read_replayed_rollouts(folder.journal, number, task=only)
    states = folder.journal.states_before(number)
    check_journaled(algorithm, states, where=f"{folder.path}: update {number}", path="algorithm")
    asked = [row for row in [*trajectories, *replayed] if (row["task"], row["rollout"]) == (task, rollout)]
    for source in (record["source"] for record in asked if "source" in record):
        if source.keeps_credit:
            raise RecordError(
                f"task {task!r}, rollout {rollout} has its advantages from update {source.number} and was not compared "
                f"in update {number}; use --update {source.number} --task {source.task} --rollout {source.rollout}"
            )
    # If the number differs from the journal's, the explanation prints both and their distance.
    derived = DerivedCredit.compute([*trajectories, *choose_compared(replayed)], algorithm, states)
    explained = explain_whole_step(
        algorithm,
        derived.table,
        derived.credit,
        task=task,
        rollout=rollout,
        step=step,
        token=token,
        rows=derived.rows,
        cut=TokenTexts(folder.path).cut,
    )
    recorded = [
        credit
        for record in asked
        for row, credit in zip(record["steps"], record["credit"], strict=True)
        if row["step"] == step
    ]
    if len(recorded) != 1:
        raise RecordError(f"{folder.path}: update {number} has {len(recorded)} rows of that step; expected one")
    return RunStepExplanation(
        **vars(explained),
        recorded=recorded[0],
        remembered=tuple(
            RememberedColumn(path=state.path, column=name, value=number_at(by_task[task], step))
            for state in states
            for name, by_task in state.columns.items()
            if task in by_task
        ),
        is_what_trained=other is None,
    )


# The tokens of a response with their advantages, in shades. Axis: T sampled tokens of the response.

NUM_SHADES = 5
"""Number of shades on either side of 0."""
NO_CREDIT, NO_TRAINING = "does not train", "forced on the policy, does not train"


@dataclass(frozen=True, eq=False, kw_only=True)
class CreditedTokens:
    """The advantages of the tokens of one response, and which of them train."""

    ids: Sequence[int]
    num_forced: int
    values: FloatArray
    """Advantage of each sampled token (T)."""
    trains: BoolArray
    """Whether each sampled token trains (T)."""

    @property
    def trained(self) -> FloatArray:
        return self.values[self.trains]

    def describe(self) -> str:
        trained = self.trained.tolist()
        if not trained:
            return f"none of {len(self.values)} sampled tokens trains"
        low, high = min(trained), max(trained)
        span = format_signed(low) if low == high else f"{format_signed(low)} to {format_signed(high)}"
        total = format_signed(math.fsum(trained))
        return f"{len(trained)} of {len(self.values)} sampled tokens train; advantages {span}, sum {total}"

    def as_json(self, texts: Sequence[str] | None) -> list[dict[str, Any]]:
        """Each token as plain data; the advantage is null if the token does not train."""
        flags = [False] * self.num_forced + self.trains.tolist()
        values = [None] * self.num_forced + self.values.tolist()
        return [
            {
                "token": int(token),
                "text": None if texts is None else texts[place],
                "trains": trains,
                "credit": value if trains else None,
            }
            for place, (token, trains, value) in enumerate(zip(self.ids, flags, values, strict=True))
        ]


@dataclass(frozen=True, kw_only=True)
class ShadedText:
    """Neighbouring tokens with equal advantages, as one piece of text."""

    text: str
    """Their text, or their ids without a tokenizer."""
    credit: float | None
    """Their advantage; None = they do not train."""
    first: int
    num: int
    is_forced: bool

    @property
    def meaning(self) -> str:
        place = f"token {self.first}" if self.num == 1 else f"tokens {self.first} to {self.first + self.num - 1}"
        if self.credit is None:
            return f"{place}: {NO_TRAINING if self.is_forced else NO_CREDIT}"
        return f"{place}: {format_signed(self.credit, 4)}"


def shade_tokens(
    tokens: CreditedTokens, texts: Sequence[str] | None, *, first: int = 0, end: int | None = None
) -> list[ShadedText]:
    """Tokens `first` to `end` of a response, in pieces of equal advantage; without texts, their ids."""

    def find_credit(place: int) -> tuple[bool, float | None]:
        sampled = place - tokens.num_forced
        if sampled < 0:
            return True, None
        return False, float(tokens.values[sampled]) if tokens.trains[sampled] else None

    pieces = []
    places = range(first, len(tokens.ids) if end is None else min(end, len(tokens.ids)))
    for (is_forced, credit), alike in groupby(places, key=find_credit):
        of = list(alike)
        text = "".join(f"{tokens.ids[place]} " if texts is None else texts[place] for place in of)
        pieces.append(ShadedText(text=text, credit=credit, first=of[0], num=len(of), is_forced=is_forced))
    return pieces


def find_reach(responses: Iterable[CreditedTokens]) -> float:
    """The absolute advantage of full shading: the largest among trained tokens."""
    return max((float(np.abs(tokens.trained).max(initial=0.0)) for tokens in responses), default=0.0)


def choose_shade(credit: float, reach: float) -> int:
    """The shade of an advantage: from -NUM_SHADES to NUM_SHADES, and 0 only for 0.

    >>> choose_shade(0.01, 1.0), choose_shade(-1.0, 1.0), choose_shade(3.0, 1.0), choose_shade(0.0, 1.0)
    (1, -5, 5, 0)
    """
    if not credit or not math.isfinite(credit):
        return 0
    size = min(max(math.ceil(NUM_SHADES * min(abs(credit) / reach, 1.0) if reach else 1), 1), NUM_SHADES)
    return size if credit > 0 else -size


# The origin of an update's rollouts: which joined a group from elsewhere, and their parents.


@dataclass(frozen=True, kw_only=True)
class ParentRollout:
    """The rollout that another rollout comes from.

    Worked example: all eight rollouts of a group failed. Rollout 8 was replayed from update 4, where it was rollout 0
    of the same task: number 4, rollout 0, why "every rollout failed".
    """

    number: int
    """The update for which it was sampled."""
    task: str
    rollout: int
    why: str
    log_ratio: float | None = None
    """How far the policy has moved away from it, in nats per token; None = not measured."""
    keeps_credit: bool = False
    """Whether it trains on its old advantages and is not compared."""


def read_replayed_rollouts(journal: Journal, number: int, *, task: str | None = None) -> list[dict[str, Any]]:
    """The replayed rollouts of an update, or of one task, in the form of `Journal.trajectories` plus `source`."""
    past_rollouts, records = journal.past_rollouts, []
    for row in past_rollouts.list_replayed(number):
        if task not in (None, row["task"]):
            continue
        past = past_rollouts.find(row["from_task"], number=row["from_number"], rollout=row["from_rollout"])
        read = past_rollouts.read(past)
        member = replace(read, task=Task(id=row["task"]), rollout=row["rollout"], origin=Origin.REPLAYED)
        source = ParentRollout(
            number=past.number,
            task=past.task,
            rollout=past.rollout,
            why=row["why"],
            log_ratio=row["log_ratio"],
            keeps_credit=row["keeps_credit"],
        )
        records.append(
            {
                "task": row["task"],
                "rollout": row["rollout"],
                "stop": read.stop.value,
                "outcome": read.scores["return"],
                "success": read.scores.get("success"),
                "origin": Origin.REPLAYED.value,
                "error": None,
                # Through JSON, like the rows that it is compared with: tuples become lists.
                "steps": json.loads(json.dumps(make_rows(member))),
                "credit": row["credit"],
                "source": source,
            }
        )
    return records


def find_joined(rollouts: Sequence[Mapping[str, Any]]) -> set[tuple[str, int]]:
    """Task and number of the rollouts that joined a group from elsewhere.

    These are replayed rollouts, successes with a hint that are recorded without it, and rollouts with a hint beside
    rollouts without one. If a whole group has a hint, its rollouts are its own.
    """
    unhinted = {record["task"] for record in rollouts if record["origin"] not in SAMPLED_ELSEWHERE}
    joined = set()
    for record in rollouts:
        task, origin = record["task"], record["origin"]
        is_retold = str(record.get("parent") or "").startswith(f"{task}{MARK}")
        is_beside = task in unhinted and MARK not in task
        if origin == Origin.REPLAYED.value or (origin == Origin.HINTED.value and (is_retold or is_beside)):
            joined.add((task, record["rollout"]))
    return joined


def find_parent(record: Mapping[str, Any], number: int) -> ParentRollout | None:
    """The rollout that a rollout of an update comes from; None = it is new, or not recorded."""
    replayed: ParentRollout | None = record.get("source")
    if replayed is not None:
        return replayed
    parent, origin = record.get("parent"), record["origin"]
    if not parent or origin not in (Origin.HINTED.value, Origin.REFLECTED.value):
        return None
    # A past rollout is `update/task/rollout`, one of the same update `task/rollout`; other ids are unknown.
    rest, _, rollout = parent.rpartition("/")
    update, _, task = rest.partition("/")
    if not rollout.isdecimal():
        return None
    why = "shown in the prompt" if origin == Origin.REFLECTED.value else "the source of its hint"
    if origin == Origin.HINTED.value and rest.startswith(f"{record['task']}{MARK}"):
        why = "solved with a hint, recorded without it"
    elif update.isdecimal() and task:
        number, rest = int(update), task
    return ParentRollout(number=number, task=rest, rollout=int(rollout), why=why)
