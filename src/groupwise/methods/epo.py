"""EPO (Xu et al. 2025, arXiv:2509.22576; its gradient is ours)."""

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
from groupwise.methods.method import recipe
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Finite, NotNegative, Part, Positive
from groupwise.parts.stateful import ObservedUpdate
from groupwise.system.errors import ConfigError


@recipe
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
    """EPO (Xu et al. 2025, arXiv:2509.22576; its gradient is ours): GRPO with a bonus for entropy near its own past.

    loss = GRPO - weight * (H - smoothing * w(e) * P);   P > 0 where H is outside (low, high) x the usual entropy

    Choices: what is usual is the mean of the updates before, by the index of a step; w fades over `updates`, which
    should be those of the run. P grows with the distance from the corridor; `form="constant"` is the release's 0.1 for
    all outside it, which moves nothing. The release names (0, 2), (0.5, 1.5) and (0.8, 1.2) for (low, high), and 0.05
    for `outside` in ScienceWorld. What is remembered is kept in checkpoints and in the journal. See `entropy_corridor`.
    """
    corridor = EntropyCorridor(
        weight=weight, smoothing=smoothing, low=low, high=high, outside=outside, updates=updates, form=form
    )
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(weight=0.001), corridor)),
    )


OUTSIDE = "entropy_outside"
"""What the loss reports of it: the share of tokens whose entropy is outside the corridor."""


class EntropyCorridor(Part, slot="penalty"):
    """Reward uncertainty, less so where it leaves a corridor around what was usual at that step of an attempt.

        l = -weight * ( H - smoothing * w(e) * P ),   U = usual entropy at the token's step, low U < H < high U: P = 0
        P outside: outside * ((H - high U)+ + (low U - H)+) / max(U, floor)     form="hinge"
                   outside, which has no gradient                               form="constant"
        w(e) = 1 - 0.2 (1 - exp(-2 e / m)) for e < m,  0.8 exp(-3 (e - m) / m) from m on;   m = updates / 2

    e is how many updates are over. U is the mean, over those that reached a step of that index, of the mean entropy of
    the tokens sampled there, as the engine said it. Before, P is 0.

    Source: EPO (Xu et al. 2025, arXiv:2509.22576) and its release. **Choices.** The release's penalty is the constant,
    which trains nothing; the hinge, its division by U and the floor are ours. The release counts updates that did not
    reach a step as 0 (padded at the front), has the update itself in U, and leaves P out of micro-batches without a
    step of an episode's second half: no split of ours may decide that. `updates` is the run's own number of them.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY})
    weight: NotNegative = 0.001
    """How much of it is taken off the loss; at 0 no entropy is needed."""
    smoothing: NotNegative = 1.0
    """How much leaving the corridor counts; at 0 it is `EntropyBonus`."""
    low: NotNegative = 0.0
    """The corridor's lower end, as a multiple of what was usual."""
    high: NotNegative = 2.0
    """Its upper end."""
    outside: NotNegative = 0.1
    """The penalty outside: as it stands, or for each multiple of what was usual that the entropy is off."""
    form: Literal["hinge", "constant"] = "hinge"
    """Whether the penalty grows with the distance from the corridor."""
    over: Literal["token", "step"] = "token"
    """Whose entropy has to be within: that of each token, or the mean of each step."""
    updates: PositiveInt = 150
    """Updates over which the smoothing fades out: those of the run."""
    floor: Positive = 0.01
    """What the distance is divided by at least, in nats."""
    column: Annotated[str, Field(min_length=1)] = "usual_entropy"
    """What the step table calls U, and with `_phase` behind it w(e); two such parts that differ need two names."""

    @model_validator(mode="after")
    def _has_room(self) -> EntropyCorridor:
        if self.low >= self.high:
            raise ConfigError(f"low ({self.low:g}) is not below high ({self.high:g}): no entropy is inside")
        return self

    @property
    def needs_entropy(self) -> bool:
        """Whether its memory reads the entropies that the engine records."""
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
        """Whether the entropy is outside the corridor, where there is one (T)."""
        usual_T, entropy_T = columns.column(self.column), self._read_entropy(columns).detach()
        is_inside_T = (self.low * usual_T < entropy_T) & (entropy_T < self.high * usual_T)
        return (usual_T > 0) & ~is_inside_T

    def _read_entropy(self, columns: TokenColumns) -> Tensor:
        entropy_T = columns.require(ENTROPY)
        return entropy_T if self.over == "token" else columns.units("step").mean(entropy_T)


# What a run remembers of the entropy at each step of its attempts: the memory of EPO. Axis: M tasks.


def name_phase(column: str) -> str:
    """What the step table calls the weight of the phase, beside the usual entropy of that name."""
    return f"{column}_phase"


def weigh_phase(done: int, updates: int) -> float:
    """How much smoothing counts after so many updates of a run: slowly down to 0.8, then exponentially towards 0.

    >>> [round(weigh_phase(done, 150), 4) for done in (0, 74, 75, 150)]
    [1.0, 0.8278, 0.8, 0.0398]
    """
    middle = updates / 2
    if done < middle:
        return 1 - 0.2 * (1 - math.exp(-2 * done / middle))
    return 0.8 * math.exp(-3 * (done - middle) / middle)


class UsualEntropy:
    """What the entropy was at each step of an attempt, so far: the state of `EntropyCorridor`.

    Worked example: two updates, of which only the second reached a third step: means [[1.0, 0.5], [2.0, 0.7, 0.9]]
    make sums [3.0, 1.2, 0.9], counts [2, 2, 1], and 1.5, 0.6, 0.9 were usual; 0 from the fourth step on.
    """

    def __init__(self, column: str, *, updates: int) -> None:
        self._column, self._updates = column, updates
        self._done = 0
        self._sums: list[float] = []
        self._counts: list[int] = []

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """What was usual by the index of a step, and the weight of the phase; the same for all tasks (M)."""
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
