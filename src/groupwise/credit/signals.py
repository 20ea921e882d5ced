"""Signals: what is compared, a number a step. Axis: S steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from groupwise.data.column_checks import to_numbers
from groupwise.data.segments import FloatArray, IntArray, Segments, order_by_key, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part
from groupwise.parts.slots import GrouperPart, SignalPart
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
        means = [_average(entry) if isinstance(entry, list | tuple) else entry for entry in table.column(self.name)]
        return to_numbers(self.name, means)


class ReturnToGo(Part, slot="signal"):
    """The discounted sum of this step's reward and of those that follow in the attempt.

    R_t = r_t + gamma * R_{t+1}
    """

    gamma: Annotated[float, Field(ge=0, le=1)]
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


def _average(entries: Sequence[Any]) -> Any:
    """The mean of numbers; what is none is handed back, to be refused by its column's name."""
    strange = [entry for entry in entries if not isinstance(entry, int | float)]
    return strange[0] if strange else math.fsum(entries) / max(len(entries), 1)


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
    penalty: Annotated[float, Field(ge=0)]
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
    penalty: Annotated[float, Field(ge=0)]
    """What a refused step loses."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty:
            return signal
        refused = ~table.column("accepted")
        if "well_formed" in table.extra:
            refused &= table.column("well_formed")
        return signal - self.penalty * refused
