"""An entropy bonus that keeps the entropy of each step near its own past: EPO. Axis: T tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.losses.token_columns import ENTROPY, TokenColumns, Unit
from groupwise.losses.usual_entropy import UsualEntropy, name_phase

if TYPE_CHECKING:
    from torch import Tensor

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
    updates: Annotated[int, Field(gt=0)] = 150
    """Updates over which the smoothing fades out: those of the run."""
    floor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
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
        """What it must see whole in one micro-batch."""
        return "step" if self.smoothing and self.over == "step" else "token"

    @property
    def columns(self) -> frozenset[str]:
        """The named columns that it reads: its own memory."""
        return frozenset({self.column, name_phase(self.column)} if self.smoothing else ())

    def __call__(self, columns: TokenColumns) -> Tensor:
        entropy_T = columns.require(ENTROPY)
        if not self.smoothing:
            return -entropy_T
        phase_T = columns.column(name_phase(self.column))
        return -(entropy_T - self.smoothing * phase_T * self._penalise(columns))

    def measure(self, columns: TokenColumns) -> dict[str, Tensor]:
        """What the loss reports of it (T)."""
        return {OUTSIDE: self._find_outside(columns)} if self.smoothing else {}

    def start(self, *, seed: int) -> UsualEntropy:
        """Begin without a past; nothing here is random."""
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
