"""Signals: what is compared, a number a step. Axis: S steps."""

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
    """The whole attempt's score, the same for all its steps: `outcome` where given, else the sum of its rewards."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.episode_return


class StepRewardSignal(Part, slot="signal"):
    """The step's own reward."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.reward


class ColumnSignal(Part, slot="signal"):
    """A named column of the table."""

    name: str
    """Name of the column, as handed to `from_columns`."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, table: StepTable) -> FloatArray:
        return to_numbers(self.name, table.column(self.name))


class ColumnMean(Part, slot="signal"):
    """The mean of what a named column holds at each step: of a list of numbers, or of True and False; 0 of nothing."""

    name: str
    """Name of the column: a fact of the environment, say, such as whether each line is right."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, table: StepTable) -> FloatArray:
        means: list[Any] = []
        for entry in table.column(self.name):
            if isinstance(entry, list | tuple):  # what holds more than numbers is refused by its column's name
                strange = [value for value in entry if not isinstance(value, int | float)]
                means.append(strange[0] if strange else math.fsum(entry) / max(len(entry), 1))
            else:
                means.append(entry)
        return to_numbers(self.name, means)


class ReturnToGo(Part, slot="signal"):
    """The discounted sum of this step's reward and of those that follow in the attempt.

    R_t = r_t + gamma * R_{t+1}
    """

    gamma: Share
    """Discount from one step to the next."""
    of: SignalPart = StepRewardSignal()
    """What is summed."""
    within: Literal["attempt", "role"] = "attempt"
    """Which later steps count: all of the attempt, or those of the same player in it."""

    def __call__(self, table: StepTable) -> FloatArray:
        rewards = table.ask_once(self.of)
        if self.within == "attempt" or "role" not in table.extra:
            return discount(rewards, table.attempt, self.gamma)
        return discount(rewards, pair_labels(table.attempt, table.codes("role") + 1), self.gamma)


class Centred(Part, slot="signal"):
    """Another signal, less its mean over a group; steps in no group keep it as it is."""

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
    """Refuse a step whose number lies outside (S); a sum of rewards may miss a bound by its last digit."""
    outside = (values < low - 1e-9 * max(1.0, abs(low))) | (values > high + 1e-9 * max(1.0, abs(high)))
    if outside.any():
        step = int(np.argmax(outside))
        raise RecordError(f"{table.describe_step(step)}: {what} {values[step]:g}, {problem}")


def discount(rewards: FloatArray, label: IntArray, gamma: float) -> FloatArray:
    """Sum the steps of each label from the last one back, R_t = r_t + gamma * R_{t+1} (S).

    All labels advance together, one step of time at a pass: the arithmetic is Horner's, as a plain loop would do it.
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
    """Another signal, less a penalty on each step whose response was malformed (column `well_formed`).

    Placed after discounting, as GiGPO and HGPO release it: the penalty stays on its step and is not passed back to
    the steps before. There a step is invalid where its tags are missing or it holds Chinese characters; a command that
    the game refuses is valid (`penalised_refusals` is about those). A table that says nothing of malformed steps has
    none; one that has `valid` alone is refused, since that does not tell malformed steps from refused ones.
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: NonNegativeFloat
    """What a malformed step loses."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty or not ("well_formed" in table.extra or "valid" in table.extra):
            return signal
        if "well_formed" not in table.extra:
            raise RecordError(
                f"the table has a column 'valid' and none called 'well_formed'; the penalty of {self.penalty:g} is on "
                "malformed responses, and `valid` is false for actions that the environment refused too: record "
                "'well_formed' and 'accepted', or set the penalty to 0 (`hgpo:invalid_penalty=0`)"
            )
        return signal - self.penalty * ~table.column("well_formed")


class PenalisedRefusals(Part, slot="signal"):
    """Another signal, less a penalty on each step whose action the environment refused (column `accepted`).

    Ours; GiGPO and HGPO take nothing off for a command that the game refuses. A malformed response is not counted,
    whatever became of its action. Divided by the deviation of a group in which nothing else differs, it is a whole
    deviation however small it is, and a policy that may not guess stops searching (docs/adr/0006-invalid-penalty.md).
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: NonNegativeFloat
    """What a refused step loses."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty:
            return signal
        refused = ~table.column("accepted")
        if "well_formed" in table.extra:
            refused &= table.column("well_formed")
        return signal - self.penalty * refused


# A baseline that remembers: what earlier updates lead one to expect of a task.


class AbovePrior(Part, slot="signal"):
    """Another signal, less the task's prior: a running mean of what attempts of earlier updates brought.

        signal = of - prior
        prior  <- (keep * weight * prior + sum of the attempts' values) / (keep * weight + attempts)
        weight <- keep * weight + attempts

    Source: SPO (single-stream policy optimisation, arXiv:2509.13232), whose tracker for returns of 0 and 1 this is:
    weight * prior and weight * (1 - prior) are its alpha and beta, and the prior is used before the new return joins.
    With it a task needs one attempt only, as `Relative` with `no_baseline` compares with nobody.

    **Choices.** `keep` is a constant; the source makes it of how far the policy moved since, within 0.875 and 0.96. A
    task forgets when it is attempted, and once an update, however many attempts it got. An attempt counts with the mean
    of `of` over its steps, as the environment and the rewards gave it, before shaping. A task that was never attempted
    has `first_level`, and so has one with guidance in its prompt, which is another task. Attempts that took no part in
    an update count too, unless `of` reads what a measure found: nobody measured those.
    """

    of: SignalPart = EpisodeReturn()
    """What is compared with the prior."""
    keep: Share = 0.96
    """How much of the past still counts when a task is attempted again; 1 = all of it, for ever."""
    first_level: Finite = 0.5
    """The prior of a task that was never attempted."""
    first_weight: NotNegative = 1.0
    """How many attempts that first prior counts for."""
    column: Annotated[str, Field(min_length=1)] = "prior"
    """What the step table calls the prior; two such parts that differ need two names."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.ask_once(self.of) - to_numbers(self.column, table.column(self.column))

    def start(self, *, seed: int) -> TaskPriors:
        return TaskPriors(self)


class TaskPriors:
    """The running mean of each task that was attempted, and how many attempts it counts for."""

    def __init__(self, part: AbovePrior) -> None:
        self._part = part
        self._tasks: dict[str, tuple[float, float]] = {}

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {self._part.column: np.array([self._find_prior(task.id)[0] for task in tasks], dtype=np.float64)}

    def observe(self, update: ObservedUpdate) -> None:
        try:
            self._join(update.trajectories)
        except RecordError:  # `of` reads what a measure found, which only those have that took part
            pairs = zip(update.trajectories, update.credit, strict=True)
            self._join([trajectory for trajectory, credit in pairs if credit is not None])

    def _join(self, trajectories: Sequence[Trajectory]) -> None:
        if not trajectories:
            return
        table = StepTable.from_trajectories(trajectories)
        values = table.attempts.mean(table.ask_once(self._part.of))
        tasks = Segments.of(table.task[table.attempts.first])
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
