"""Signals: what is compared, one number per step. Axis: S steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from groupwise.data.column_checks import to_numbers
from groupwise.data.records import Task, Trajectory
from groupwise.data.segments import FloatArray, IntArray, Segments, order_by_key, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Finite, NotNegative, Part, Share
from groupwise.parts.slots import GrouperPart, SignalPart
from groupwise.parts.stateful import ObservedUpdate
from groupwise.system.errors import RecordError


class EpisodeReturn(Part, slot="signal"):
    """The return of the whole rollout, the same for all its steps: `outcome` if given, else the sum of its rewards."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.episode_return


class StepRewardSignal(Part, slot="signal"):
    """The step's own reward."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.reward


class ColumnSignal(Part, slot="signal"):
    """A named column of the table."""

    name: str
    """Name of the column, as passed to `from_columns`."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, table: StepTable) -> FloatArray:
        return to_numbers(self.name, table.column(self.name))


class ColumnMean(Part, slot="signal"):
    """The mean of a column's entry at each step: a list of numbers, or of True and False; 0 if the list is empty."""

    name: str
    """Name of the column, for example a step info that says whether each line is right."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, table: StepTable) -> FloatArray:
        means: list[Any] = []
        for entry in table.column(self.name):
            if isinstance(entry, list | tuple):  # an entry that is not a number is an error with the column's name
                strange = [value for value in entry if not isinstance(value, int | float)]
                means.append(strange[0] if strange else math.fsum(entry) / max(len(entry), 1))
            else:
                means.append(entry)
        return to_numbers(self.name, means)


class ReturnToGo(Part, slot="signal"):
    """The discounted sum of this step's reward and of the later rewards of the rollout.

    R_t = r_t + gamma * R_{t+1}
    """

    gamma: Share
    """Discount from one step to the next."""
    of: SignalPart = StepRewardSignal()
    """What is summed."""
    within: Literal["rollout", "role"] = "rollout"
    """Which later steps count: all of the rollout, or those of the same role."""

    def __call__(self, table: StepTable) -> FloatArray:
        rewards = table.ask_once(self.of)
        if self.within == "rollout" or "role" not in table.extra:
            return discount(rewards, table.rollout, self.gamma)
        return discount(rewards, pair_labels(table.rollout, table.codes("role") + 1), self.gamma)


class Centred(Part, slot="signal"):
    """Another signal minus its mean over a group; a step in no group keeps its value."""

    of: SignalPart
    """The signal that is centred."""
    by: GrouperPart
    """Over which steps the mean is taken."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal, groups = table.ask_once(self.of), Segments.of(table.ask_once(self.by))
        return signal - groups.spread(groups.mean(signal))


def check_range(
    table: StepTable, values: FloatArray, what: str, problem: str, *, low: float = -math.inf, high: float = math.inf
) -> None:
    """Raise an error for a step (S) outside the range; a sum of rewards may miss a bound by its last digit."""
    outside = (values < low - 1e-9 * max(1.0, abs(low))) | (values > high + 1e-9 * max(1.0, abs(high)))
    if outside.any():
        step = int(np.argmax(outside))
        raise RecordError(f"{table.describe_step(step)}: {what} {values[step]:g}, {problem}")


def discount(rewards: FloatArray, label: IntArray, gamma: float) -> FloatArray:
    """Sum the steps of each label from the last one back, R_t = r_t + gamma * R_{t+1} (S).

    All labels advance together, one step per pass. The arithmetic is Horner's, as in a plain loop.
    """
    order, starts = order_by_key(label)
    lengths = np.diff(np.append(starts, len(order)))
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    returns, running = np.empty(len(rewards)), np.zeros(len(starts))
    for offset in range(int(lengths[0]) - 1 if len(lengths) else -1, -1, -1):
        active = int(np.searchsorted(-lengths, -offset, side="left"))
        steps = order[starts[:active] + offset]
        running[:active] = rewards[steps] + gamma * running[:active]
        returns[steps] = running[:active]
    return returns


class Penalised(Part, slot="signal"):
    """Another signal, minus a penalty on each step with a malformed response (column `well_formed`).

    The penalty comes after discounting, as GiGPO and HGPO release it: it stays on its step. In those releases a step is
    invalid if its tags are missing or it contains Chinese characters; a command that the game rejects is valid
    (`penalised_refusals` covers those). A table without the column has no malformed steps. A table that only has
    `valid` is an error, because `valid` does not separate malformed responses from invalid actions.
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: NonNegativeFloat
    """Subtracted from a malformed step."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty or not ("well_formed" in table.extra or "valid" in table.extra):
            return signal
        if "well_formed" not in table.extra:
            raise RecordError(
                f"the table has a column 'valid' but no 'well_formed', which the penalty of {self.penalty:g} on "
                "malformed responses reads. `valid` is also false for actions that the environment rejected. Record "
                "'well_formed' and 'accepted', or set the penalty to 0 (on the command line: `--method "
                "hgpo:invalid_penalty=0`)"
            )
        return signal - self.penalty * ~table.column("well_formed")


class PenalisedRefusals(Part, slot="signal"):
    """Another signal, minus a penalty on each step with an invalid action (column `accepted`).

    Ours; GiGPO and HGPO have no penalty for a command that the game rejects. A malformed response does not count,
    whatever became of its action. In a group in which nothing else differs, dividing by the standard deviation makes
    any penalty large. A policy that may not guess then stops searching (docs/adr/0006-invalid-penalty.md).
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: NonNegativeFloat
    """Subtracted from a step with an invalid action."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty:
            return signal
        refused = ~table.column("accepted")
        if "well_formed" in table.extra:
            refused &= table.column("well_formed")
        return signal - self.penalty * refused


# A baseline from earlier updates.


class AbovePrior(Part, slot="signal"):
    """Another signal, minus the task's prior: a running mean over the rollouts of earlier updates.

        signal = of - prior
        prior  <- (keep * weight * prior + sum of the rollouts' values) / (keep * weight + rollouts)
        weight <- keep * weight + rollouts

    Source: SPO (single-stream policy optimization, arXiv:2509.13232). This is its tracker for returns of 0 and 1:
    weight * prior and weight * (1 - prior) are its alpha and beta, and a return is compared before it joins the prior.
    A task then needs only one rollout, because `Relative` with `no_baseline` needs no group.

    **Choices.** `keep` is a constant; in the source it depends on how far the policy moved, within 0.875 and 0.96. A
    task forgets once per update in which it is sampled, however many rollouts it gets. A rollout counts with the mean
    of `of` over its steps, before group reward shaping. A task that was never sampled has `first_level`. A task with a
    hint in its prompt is another task. Rollouts that took no part in an update count too, unless `of` reads what a
    scorer measured.
    """

    of: SignalPart = EpisodeReturn()
    """What is compared with the prior."""
    keep: Share = 0.96
    """How much of the past counts when a task is sampled again; 1 = all of it, for ever."""
    first_level: Finite = 0.5
    """The prior of a task that was never sampled."""
    first_weight: NotNegative = 1.0
    """How many rollouts the first prior counts for."""
    column: Annotated[str, Field(min_length=1)] = "prior"
    """Column of the prior in the step table; two such parts that differ need two names."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.ask_once(self.of) - to_numbers(self.column, table.column(self.column))

    def start(self, *, seed: int) -> TaskPriors:
        return TaskPriors(self)


class TaskPriors:
    """The running mean of each sampled task, and how many rollouts it counts for."""

    def __init__(self, part: AbovePrior) -> None:
        self._part = part
        self._tasks: dict[str, tuple[float, float]] = {}

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {self._part.column: np.array([self._find_prior(task.id)[0] for task in tasks], dtype=np.float64)}

    def observe(self, update: ObservedUpdate) -> None:
        try:
            self._join(update.trajectories)
        except RecordError:  # `of` reads what a scorer measured; only rollouts that took part have that
            pairs = zip(update.trajectories, update.credit, strict=True)
            self._join([trajectory for trajectory, credit in pairs if credit is not None])

    def _join(self, trajectories: Sequence[Trajectory]) -> None:
        if not trajectories:
            return
        table = StepTable.from_trajectories(trajectories)
        values = table.rollouts.mean(table.ask_once(self._part.of))
        tasks = Segments.of(table.task[table.rollouts.first])
        for task, total, num in zip(table.task_ids, tasks.sum(values).tolist(), tasks.size.tolist(), strict=True):
            level, weight = self._find_prior(str(task))
            kept = self._part.keep * weight
            self._tasks[str(task)] = (kept * level + total) / (kept + num), kept + num

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": {task: list(prior) for task, prior in self._tasks.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tasks = {task: (float(level), float(weight)) for task, (level, weight) in state["tasks"].items()}

    def _find_prior(self, task: str) -> tuple[float, float]:
        return self._tasks.get(task, (self._part.first_level, self._part.first_weight))


# Numbers that a run keeps from update to update, the same for all tasks.


class NumberState:
    """One number and its column in the step table. A subclass says how an update changes it."""

    def __init__(self, column: str, first: float, *, key: str = "level") -> None:
        self._column, self._key, self._value = column, key, first

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {self._column: np.full(len(tasks), self._value, dtype=np.float64)}

    def state_dict(self) -> dict[str, Any]:
        return {self._key: self._value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._value = type(self._value)(state[self._key])


def read_remembered(table: StepTable, column: str, first: float) -> float:
    """The number that a table holds in this column; `first` if there is none."""
    return float(to_numbers(column, table.column(column))[0]) if column in table.extra and len(table) else first
