from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from groupwise.credit import ColumnMean, EpisodeReturn, NumberState, StepTrace, read_remembered, weigh_credit
from groupwise.data.credit import Credit, Derivation
from groupwise.data.records import Task
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean, Tensor, TokenColumns
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, ObservedUpdate, Part, PositiveShare, Share, SignalPart
from groupwise.rollout.scorers import ResponseEmbedding
from groupwise.system.errors import ConfigError, RecordError


@method
def gardo(
    *,
    auxiliary: tuple[str, ...] = (),
    weight: Finite = 0.04,
    share: Share = 0.1,
    max_kl: PositiveFloat = 0.05,
    every: PositiveInt | None = 15,
    diversity: bool = True,
) -> Algorithm:
    """GARDO (2025, arXiv:2512.24138, from its release for diffusion; for language models ours): KL only where it is
    needed.

    A_i = d_i * (R_i - mean(R)) where that is not negative, else R_i - mean(R);   loss = clipped + weight * k3, gated

    Choices: the gate is open for a fraction of the rollouts: those whose return is highest relative to the columns
    `auxiliary` (numbers, or lists whose mean counts). These columns are not trained on; without any, the gate is open
    for all. The fraction follows the mean doubt. The policy becomes the reference when it is `max_kl` nats per token
    away, or after `every` updates. d, the distance to the nearest other rollout, uses the policy's own hidden states
    instead of the source's image model; `diversity=False` leaves it out. See `gated_kl`, `doubt_gate` and
    `distinct_credit`. Clip 0.2.
    """
    credit = dr_grpo().advantage
    signals = tuple(ColumnMean(name=name) for name in auxiliary)
    gate = DoubtGate(auxiliary=signals, first=share, lowest=min(share, 0.02), highest=max(share, 0.2))
    return Algorithm(
        advantage=DistinctCredit(of=credit) if diversity else credit,
        scorers=(ResponseEmbedding(),) if diversity else None,
        channels={"kl_gate": gate} if weight else None,
        loss=PolicyLoss(
            surrogate=Clip(), aggregate=SequenceMean(), penalties=(GatedKl(weight=weight, max_kl=max_kl, every=every),)
        ),
    )


class DoubtGate(Part, slot="estimator"):
    """Open for the rollouts whose reward ranks highest relative to their auxiliary rewards; else 0.

        W(x)_i = share of the other rollouts of the update whose x is lower;   U_i = W(of)_i - mean_k W(auxiliary_k)_i
        open_i = U_i >= 0 and U_i >= the (1 - q) quantile of the U >= 0;   gate = open_i * steps / open steps
        q <- q (1 +- change) where the mean of the U >= 0 is above, below all of the last `window` updates', in limits

    Without auxiliary rewards it is open for all. Steps that do not train are not counted.

    Source: GARDO (2025, arXiv:2512.24138) and its release, for diffusion. **Choices.** The release subtracts ranks of
    which 1 is best, so its sign is the opposite; win rates follow the paper's text. Quantiles are interpolated, and all
    rollouts at the quantile pass. A rollout has the mean of a signal over its steps. Values that differ only by
    rounding (1e-9) are equal. The running fraction q counts only rollouts of the update, not replayed ones, with their
    rewards before group reward shaping.
    """

    mixes_tasks: ClassVar[bool] = True
    of: SignalPart = EpisodeReturn()
    """The reward that is trained on, which may be a proxy."""
    auxiliary: tuple[SignalPart, ...] = ()
    """Other rewards, which are not trained on."""
    first: PositiveShare = 0.1
    """The fraction q at the start of a run."""
    lowest: PositiveShare = 0.02
    """The smallest fraction."""
    highest: PositiveShare = 0.2
    """The largest fraction."""
    change: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Relative change of the fraction per update."""
    window: PositiveInt = 20
    """Number of earlier updates that the mean doubt is compared with."""
    column: Annotated[str, Field(min_length=1)] = "gate_share"
    """Column of the fraction in the step table; two such parts that differ need two names."""

    @model_validator(mode="after")
    def _begins_within_limits(self) -> DoubtGate:
        if not self.lowest <= self.first <= self.highest:
            raise ConfigError(
                f"first ({self.first:g}) is not from lowest ({self.lowest:g}) to highest ({self.highest:g}); give "
                "limits around it"
            )
        return self

    def __call__(self, table: StepTable) -> Credit:
        doubt_A = self.measure_doubt(table)
        doubtful = doubt_A[doubt_A >= 0]
        bound = (
            np.quantile(doubtful, 1 - read_remembered(table, self.column, self.first)) if len(doubtful) else math.inf
        )
        is_open = table.rollouts.spread((doubt_A >= bound - 1e-9) | (not self.auxiliary)) > 0
        num_open = int((is_open & table.trains).sum())
        values = np.where(is_open, int(table.trains.sum()) / num_open if num_open else 0.0, 0.0)
        compared = np.full(len(table), len(doubt_A) > 1)
        return Credit.of(table, StepTrace(values=values, compared=compared, part=self))

    def measure_doubt(self, table: StepTable) -> FloatArray:
        """U of each rollout (A)."""
        own, *others = (win_rates(table.rollouts.mean(table.ask_once(signal))) for signal in (self.of, *self.auxiliary))
        # Rounded, since it is compared with 0: 2/3 less the mean of 1/3 and 1 may miss it by a digit.
        return np.round(own - np.mean(others, axis=0), 12) if others else own

    def start(self, *, seed: int) -> GateShare:
        return GateShare(self)

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        rollouts = table.rollout.tolist()
        own, *others = (_rate_wins(part_of(table).tolist(), rollouts) for part_of in (self.of, *self.auxiliary))
        doubts = {
            rollout: round(rate - math.fsum(other[rollout] for other in others) / max(len(others), 1), 12)
            for rollout, rate in own.items()
        }
        share = read_remembered(table, self.column, self.first)
        doubtful = [doubt for doubt in doubts.values() if doubt >= 0]
        bound = float(np.quantile(doubtful, 1 - share)) if doubtful else math.inf
        opened = {rollout for rollout, doubt in doubts.items() if doubt >= bound - 1e-9 or not others}
        kept = [rollout for rollout, trains in zip(rollouts, table.trains.tolist(), strict=True) if trains]
        num_open = sum(rollout in opened for rollout in kept)
        value = len(kept) / num_open if num_open and rollouts[step] in opened else 0.0
        words = f"open for all: {len(kept)} / {num_open}"
        if others:
            how = f"open: {len(kept)} / {num_open}" if rollouts[step] in opened else "shut"
            words = f"doubt {doubts[rollouts[step]]:.6g} against {bound:.6g}, {how}"
        members = tuple((rollouts.index(rollout), doubt) for rollout, doubt in doubts.items())
        return Derivation(value=value, formula=f"{words} = {value:.6g}", members=members)


def win_rates(values: FloatArray) -> FloatArray:
    """The fraction of the others that each value exceeds, by more than rounding (A); 0 for a single value."""
    lower = np.searchsorted(np.sort(values), values - 1e-9 * np.maximum(np.abs(values), 1.0))
    return lower / max(len(values) - 1, 1)


class GateShare(NumberState):
    """The fraction q and the mean doubts of the last updates: the state of `DoubtGate`.

    Worked example: fraction 0.1, last means 0.2 and 0.3. A mean of 0.35 is above all of them: the fraction becomes
    0.11. A mean of 0.25 changes nothing.
    """

    def __init__(self, part: DoubtGate) -> None:
        super().__init__(part.column, part.first, key="share")
        self._part = part
        self._recent: list[float] = []

    def observe(self, update: ObservedUpdate) -> None:
        pairs = zip(update.trajectories, update.credit, strict=True)
        compared = [trajectory for trajectory, credit in pairs if credit is not None and trajectory.steps]
        doubt = self._part.measure_doubt(StepTable.from_trajectories(compared)) if compared else np.zeros(0)
        doubt = doubt[doubt >= 0]
        if not len(doubt):
            return
        mean = float(doubt[0] + (doubt - doubt[0]).sum() / len(doubt))
        if self._recent and mean > max(self._recent):
            self._value = min(self._value * (1 + self._part.change), self._part.highest)
        elif self._recent and mean < min(self._recent):
            self._value = max(self._value * (1 - self._part.change), self._part.lowest)
        self._recent = [*self._recent, mean][-self._part.window :]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"recent": list(self._recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._recent = [float(mean) for mean in state["recent"]]


def _rate_wins(values: Sequence[float], rollouts: Sequence[int]) -> dict[int, float]:
    """The fraction of the other rollouts that each one exceeds."""
    of_rollout: dict[int, list[float]] = {}
    for value, rollout in zip(values, rollouts, strict=True):
        of_rollout.setdefault(rollout, []).append(value)
    means = {rollout: own[0] + math.fsum(x - own[0] for x in own) / len(own) for rollout, own in of_rollout.items()}
    return {
        rollout: sum(other < mean - 1e-9 * max(abs(mean), 1.0) for other in means.values()) / max(len(means) - 1, 1)
        for rollout, mean in means.items()
    }


SAME = 1e-12
"""Mean distance below which the rollouts of a task count as equal."""


class DistinctCredit(Part, slot="estimator"):
    """Multiply advantages that are not negative by the distance to the most similar rollout.

        near_i = min over the other rollouts j at its task of (1 - cos(e_i, e_j));   d_i = near_i / mean(near)
        A_i    = d_i * A_i where A_i >= 0, else A_i

    Source: GARDO (2025, arXiv:2512.24138) and its release, for images. **Choices.** The point of a rollout is the mean
    of its responses' points, each at length 1; the scorer `response_embedding` writes them. The only rollout of a task,
    or one without a point, keeps its advantage and is nobody's neighbour. If all points are equal, all keep theirs.
    """

    of: EstimatorPart
    """The advantages that are weighted."""
    info_key: Annotated[str, Field(min_length=1)] = "embedding"
    """The column with the point of each response, as a list of numbers."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.info_key})

    def __call__(self, table: StepTable) -> Credit:
        trace, weight = self.of(table).trace, self.weigh_rollouts(table)[table.rollout]
        weight = np.where(trace.values >= 0, weight, 1.0)
        return weigh_credit(table, trace, weight, self)

    def weigh_rollouts(self, table: StepTable) -> FloatArray:
        """d of each rollout (A)."""
        point_A, is_known_A = self._read_points(table)
        weight_A = np.ones(len(table.rollouts))
        task_A = table.task[table.rollouts.first]
        for task in np.unique(task_A):
            members = np.flatnonzero((task_A == task) & is_known_A)
            if len(members) > 1:
                points = point_A[members]
                # Half the square of the difference is 1 - cos, and exactly 0 for equal points.
                apart = np.array([((points - point) ** 2).sum(axis=1) / 2 for point in points])
                np.fill_diagonal(apart, np.inf)
                near = apart.min(axis=1)
                mean = near.mean()
                weight_A[members] = near / mean if mean > SAME else np.ones(len(points))
        return weight_A

    def _read_points(self, table: StepTable) -> tuple[FloatArray, BoolArray]:
        """The point of each rollout (A, W), at length 1, and whether it is known (A)."""
        column = table.column(self.info_key)
        width = max((len(numbers) for numbers in column if isinstance(numbers, list | tuple)), default=0)
        point_S = np.zeros((len(table), width))
        for step, numbers in enumerate(column):
            if not isinstance(numbers, list | tuple) or len(numbers) not in (0, width):
                raise RecordError(
                    f"{table.describe_step(step)}: {self.info_key} is no list of {width} numbers; measure it with "
                    "response_embedding"
                )
            if len(numbers):
                point_S[step] = numbers
        if not np.isfinite(point_S).all():
            raise RecordError(f"{self.info_key} holds a number that is not finite; measure it with response_embedding")
        unit_S = _shorten(point_S)
        sum_A = np.zeros((len(table.rollouts), width))
        np.add.at(sum_A, table.rollout, unit_S)
        return _shorten(sum_A), np.asarray(np.any(sum_A != 0, axis=1))


def _shorten(points: FloatArray) -> FloatArray:
    """Points at length 1; 0 stays 0."""
    length = np.sqrt((points**2).sum(axis=1, keepdims=True))
    return points / np.where(length > 0, length, 1.0)


MEASURED = "loss/kl_to_reference"
"""What a loss with a reference always reports: mean of k3 over the tokens that train."""


class GatedKl(Kl, slot="penalty"):
    """Stay close to the reference where a gate is open, and update the reference when the policy has moved away.

        l         = weight * gate * k,   k as in `Kl`, gate a channel of credit
        reference <- the policy after an update in which mean k3 > max_kl, or `every` updates after the last time

    The channel of `doubt_gate` is 0 or the number of steps over that of gated steps. So the mean of l is the mean of k
    over the gated ones.

    Source: GARDO (2025, arXiv:2512.24138) and its release, for diffusion. **Choices.** Ours for language models: k per
    token, 0.05 nats per token instead of 3e-4 in diffusion's own measure, updates instead of epochs. k3 is measured
    over all tokens that train, gated or not, and over all optimizer steps of an update. The new reference is the policy
    after the update that passed the bound, from the next update on. It is saved as a checkpoint, from which a resumed
    run loads it.
    """

    weight: NonNegativeFloat = 0.04
    """How much of it is added to the loss; at 0 no reference policy is needed."""
    gate: Annotated[str, Field(min_length=1)] = "kl_gate"
    """The channel with the gate: where the penalty counts, and how much."""
    max_kl: PositiveFloat = 0.05
    """Mean k3 above which the policy becomes the reference; infinity = never for that reason."""
    every: PositiveInt | None = 15
    """Updates after which the policy becomes the reference in any case; None = never for that reason."""

    @property
    def channels(self) -> frozenset[str]:
        return frozenset({self.gate})

    def __call__(self, columns: TokenColumns) -> Tensor:
        return columns.channel(self.gate) * super().__call__(columns)

    def start(self, *, seed: int) -> ReferenceChoice:
        return ReferenceChoice(self)


class ReferenceChoice:
    """Which policy is the reference: the state of `GatedKl`."""

    def __init__(self, part: GatedKl) -> None:
        self._part = part
        self.reference = 0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """No columns: the trainer reads `reference`."""
        return {}

    def observe(self, update: ObservedUpdate) -> None:
        kl, every = update.metrics.get(MEASURED, math.nan), self._part.every
        if kl > self._part.max_kl or (every is not None and update.number - self.reference >= every):
            self.reference = update.number

    def state_dict(self) -> dict[str, Any]:
        return {"reference": self.reference}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reference = int(state["reference"])
