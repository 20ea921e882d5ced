from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from groupwise.data.records import Task
from groupwise.data.segments import FloatArray
from groupwise.losses import ENTROPY, Clip, Kl, PolicyLoss, SequenceMean, Tensor, TokenColumns, Unit
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, ObservedUpdate, Part, Positive
from groupwise.system.errors import ConfigError


@method
def epo(
    *,
    weight: Finite = 0.001,
    smoothing: Finite = 1.0,
    low: Finite = 0.0,
    high: Finite = 2.0,
    outside: Finite = 0.1,
    updates: PositiveInt = 150,
    form: Literal["hinge", "constant"] = "hinge",
) -> Algorithm:
    """EPO (Xu et al. 2025, arXiv:2509.22576; its gradient is ours): GRPO with a bonus for entropy near its usual level.

    loss = GRPO - weight * (H - smoothing * w(e) * P);   P > 0 where H is outside (low, high) x the usual entropy

    Choices: the usual entropy is the mean of earlier updates, by the index of a step. w fades over `updates`, which
    should be the run's own number. P grows with the distance from the corridor; `form="constant"` is the release's 0.1
    outside it, which has no gradient. The release names (0, 2), (0.5, 1.5) and (0.8, 1.2) for (low, high), and 0.05 for
    `outside` in ScienceWorld. The usual entropy is saved in checkpoints and in the journal. See `entropy_corridor`.
    """
    corridor = EntropyCorridor(
        weight=weight, smoothing=smoothing, low=low, high=high, outside=outside, updates=updates, form=form
    )
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(weight=0.001), corridor)),
    )


OUTSIDE = "entropy_outside"
"""Reported metric: the fraction of tokens whose entropy is outside the corridor."""


class EntropyCorridor(Part, slot="penalty"):
    """Reward uncertainty, but less outside a corridor around the usual entropy of that step of a rollout.

        l = -weight * ( H - smoothing * w(e) * P ),   U = usual entropy at the token's step, low U < H < high U: P = 0
        P outside: outside * ((H - high U)+ + (low U - H)+) / max(U, floor)     form="hinge"
                   outside, which has no gradient                               form="constant"
        w(e) = 1 - 0.2 (1 - exp(-2 e / m)) for e < m,  0.8 exp(-3 (e - m) / m) from m on;   m = updates / 2

    e is the number of finished updates. U is the mean over the updates that reached a step of that index; each counts
    with the mean entropy of the tokens sampled there, as the engine reported it. Before the first, P is 0.

    Source: EPO (Xu et al. 2025, arXiv:2509.22576) and its release. **Choices.** The release's penalty is the constant,
    which trains nothing; the hinge, its division by U and the floor are ours. The release counts updates that did not
    reach a step as 0 (padded at the front) and includes the update itself in U. It leaves P out of micro-batches
    without a step of an episode's second half; here the split changes nothing. `updates` is the run's own number of
    them.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY})
    weight: NotNegative = 0.001
    """How much of it is subtracted from the loss; at 0 no entropy is needed."""
    smoothing: NotNegative = 1.0
    """Weight of the penalty outside the corridor; at 0 it is `EntropyBonus`."""
    low: NotNegative = 0.0
    """The corridor's lower end, as a multiple of the usual entropy."""
    high: NotNegative = 2.0
    """Its upper end."""
    outside: NotNegative = 0.1
    """The penalty outside: constant, or per multiple of the usual entropy that the entropy is away."""
    form: Literal["hinge", "constant"] = "hinge"
    """Whether the penalty grows with the distance from the corridor."""
    over: Literal["token", "step"] = "token"
    """Whose entropy must be inside: that of each token, or the mean of each step."""
    updates: PositiveInt = 150
    """Updates over which the smoothing fades: those of the run."""
    floor: Positive = 0.01
    """Smallest divisor of the distance, in nats."""
    column: Annotated[str, Field(min_length=1)] = "usual_entropy"
    """Column of U in the step table; `_phase` is added for w(e). Two such parts that differ need two names."""

    @model_validator(mode="after")
    def _has_room(self) -> EntropyCorridor:
        if self.low >= self.high:
            raise ConfigError(f"low ({self.low:g}) is not below high ({self.high:g}): no entropy is inside")
        return self

    @property
    def needs_entropy(self) -> bool:
        """Whether its state reads the entropies that the engine reports."""
        return bool(self.weight and self.smoothing)

    @property
    def unit(self) -> Unit:
        return "step" if self.smoothing and self.over == "step" else "token"

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column, name_phase(self.column)} if self.smoothing else ())

    def __call__(self, columns: TokenColumns) -> Tensor:
        entropy_T = columns.require(ENTROPY)
        if not self.smoothing:
            return -entropy_T
        phase_T = columns.column(name_phase(self.column))
        return -(entropy_T - self.smoothing * phase_T * self._penalise(columns))

    def measure(self, columns: TokenColumns) -> dict[str, Tensor]:
        return {OUTSIDE: self._find_outside(columns)} if self.smoothing else {}

    def start(self, *, seed: int) -> UsualEntropy:
        return UsualEntropy(self.column, updates=self.updates)

    def _penalise(self, columns: TokenColumns) -> Tensor:
        """P of each token (T)."""
        usual_T, entropy_T = columns.column(self.column), self._read_entropy(columns)
        if self.form == "constant":
            return self.outside * self._find_outside(columns).to(entropy_T)
        distance_T = (entropy_T - self.high * usual_T).relu() + (self.low * usual_T - entropy_T).relu()
        return self.outside * (usual_T > 0).to(usual_T) * distance_T / usual_T.clamp(min=self.floor)

    def _find_outside(self, columns: TokenColumns) -> Tensor:
        """Whether the entropy is outside the corridor; False without a corridor (T)."""
        usual_T, entropy_T = columns.column(self.column), self._read_entropy(columns).detach()
        is_inside_T = (self.low * usual_T < entropy_T) & (entropy_T < self.high * usual_T)
        return (usual_T > 0) & ~is_inside_T

    def _read_entropy(self, columns: TokenColumns) -> Tensor:
        entropy_T = columns.require(ENTROPY)
        return entropy_T if self.over == "token" else columns.units("step").mean(entropy_T)


# The usual entropy at each step of a rollout: the state of EPO. Axis: M tasks.


def name_phase(column: str) -> str:
    """Column of the phase weight, beside the usual entropy of that name."""
    return f"{column}_phase"


def weigh_phase(done: int, updates: int) -> float:
    """Weight of the smoothing after this many updates: slowly down to 0.8, then exponentially towards 0.

    >>> [round(weigh_phase(done, 150), 4) for done in (0, 74, 75, 150)]
    [1.0, 0.8278, 0.8, 0.0398]
    """
    middle = updates / 2
    if done < middle:
        return 1 - 0.2 * (1 - math.exp(-2 * done / middle))
    return 0.8 * math.exp(-3 * (done - middle) / middle)


class UsualEntropy:
    """The usual entropy at each step of a rollout: the state of `EntropyCorridor`.

    Worked example: two updates, and only the second reached a third step: means [[1.0, 0.5], [2.0, 0.7, 0.9]] give sums
    [3.0, 1.2, 0.9] and counts [2, 2, 1]. The usual entropies are 1.5, 0.6, 0.9; 0 from the fourth step on.
    """

    def __init__(self, column: str, *, updates: int) -> None:
        self._column, self._updates = column, updates
        self._done = 0
        self._sums: list[float] = []
        self._counts: list[int] = []

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """The usual entropy by the index of a step, and the phase weight; the same for all tasks (M)."""
        usual = [total / count if count else 0.0 for total, count in zip(self._sums, self._counts, strict=True)]
        return {
            self._column: np.tile(np.array([*usual, 0.0], dtype=np.float64), (len(tasks), 1)),
            name_phase(self._column): np.full(len(tasks), weigh_phase(self._done, self._updates), dtype=np.float64),
        }

    def observe(self, update: ObservedUpdate) -> None:
        self._done = update.number
        entropies: dict[int, list[float]] = {}
        for trajectory in update.trajectories:
            for step in trajectory.steps:
                entropies.setdefault(step.index, []).extend(step.entropy[step.forced :])
        for index in sorted(index for index, values in entropies.items() if values):
            longer = [0] * (index + 1 - len(self._counts))
            self._counts += longer
            self._sums += map(float, longer)
            self._sums[index] += math.fsum(entropies[index]) / len(entropies[index])
            self._counts[index] += 1

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done, "sums": list(self._sums), "counts": list(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._done = int(state["done"])
        self._sums = [float(total) for total in state["sums"]]
        self._counts = [int(count) for count in state["counts"]]
