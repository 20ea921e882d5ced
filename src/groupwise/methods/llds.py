from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from groupwise.data.samples import Totals
from groupwise.losses import OLD_LOGP, UNITS, LossResult, PolicyLoss, Tally, Tensor, TokenColumns, TrajectorySums, Unit
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, LossPart, NotNegative, Part, name_of
from groupwise.system.errors import ConfigError


@method
def llds(*, weight: Finite = 0.1, gate: Literal["step", "trajectory"] = "step") -> Algorithm:
    """LLDS (2025, arXiv:2512.04220, from re-implementations): GRPO plus a pull on right responses that became less
    likely.

    loss = GRPO + weight * sum over active tokens of max(0, logp_old - logp) / active tokens

    Choices: a step is active if its advantage is not negative and it became less likely as a whole; `gate="trajectory"`
    decides per rollout. It is 0 at the first optimizer step of an update. See the loss `llds`.
    """
    base = grpo()
    assert base.loss is not None, "the method has a loss"
    return Algorithm(advantage=base.advantage, loss=Llds(of=base.loss, weight=weight, gate=gate))


class Llds(Part, slot="loss"):
    """Another loss plus a pull on tokens without a negative advantage that became less likely since the update began.

        D_t  = logp_old - logp;   an action is active where its A >= 0 and the sum of its D > 0
        loss = of + weight * sum over the tokens of active actions of max(0, D) / tokens of active actions

    Only tokens that became less likely are pulled, and only in actions that became less likely as a whole; the gate has
    no gradient. A first pass counts the active tokens.

    Source: LLDS (2025, arXiv:2512.04220), after re-implementations that agree; weight 0.1 is one of those the source
    tried. Choices: `gate="trajectory"` is the source's form for whole answers. A is the mean over the action's tokens;
    an advantage of 0 is not negative. `per="all"` is another reading. The variant that leaves final answers out is not
    here. It is 0 at the first optimizer step of an update: use several, or rollouts that another policy sampled.
    """

    of: LossPart = PolicyLoss()
    """The loss that is minimized besides; it must not need a first pass."""
    weight: NotNegative = 0.1
    """Strength of the pull."""
    gate: Literal["step", "trajectory"] = "step"
    """What counts as an action."""
    per: Literal["active", "all"] = "active"
    """Which tokens the pull is divided by."""

    @model_validator(mode="after")
    def _has_one_first_pass(self) -> Llds:
        if hasattr(self.of, "first_pass"):
            raise ConfigError(f"of: {name_of(self.of)} has a first pass of its own; give a policy_loss")
        return self

    @property
    def needs(self) -> frozenset[str]:
        return self.of.needs | {OLD_LOGP}

    @property
    def columns(self) -> frozenset[str]:
        return getattr(self.of, "columns", frozenset())

    @property
    def channels(self) -> frozenset[str]:
        return getattr(self.of, "channels", frozenset())

    @property
    def unit(self) -> Unit:
        own: Unit = "step" if self.gate == "step" else "sample"
        other: Unit = self.of.unit  # type: ignore[assignment]
        return max(own, other, key=UNITS.index)

    def first_pass(self, columns: TokenColumns, totals: Totals) -> TrajectorySums:
        columns = columns.select_trained()
        drop_T = _measure_drop(columns)
        active_T = _find_active_steps(columns, drop_T)
        return TrajectorySums.of(columns, totals, drop=drop_T, credit=columns.advantage, active=active_T)

    def __call__(self, columns: TokenColumns, totals: Totals, summary: TrajectorySums) -> LossResult:
        result = self.of(columns, totals)
        columns = columns.select_trained()
        drop_T = _measure_drop(columns)
        if self.gate == "step":
            active_T, num_active = _find_active_steps(columns, drop_T), summary.sums["active"].sum()
        else:
            is_active_R = (summary.sums["drop"] > 0) & (summary.mean("credit") >= 0)
            active_T = is_active_R.to(drop_T).index_select(0, columns.trajectory)
            num_active = (summary.tokens * is_active_R).sum()
        divisor = num_active.clamp(min=1) if self.per == "active" else max(totals.tokens, 1)
        pull = self.weight * (active_T * drop_T.relu()).sum() / divisor
        tally = Tally(total=active_T.sum(), count=len(columns))
        return LossResult(loss=result.loss + pull, metrics={**result.metrics, "extra/active": tally})


def _measure_drop(columns: TokenColumns) -> Tensor:
    return columns.require(OLD_LOGP) - columns.logp


def _find_active_steps(columns: TokenColumns, drop_T: Tensor) -> Tensor:
    """1 for the tokens of active steps, else 0 (T)."""
    steps = columns.units("step")
    is_active_T = (steps.sum(drop_T.detach()) > 0) & (steps.mean(columns.advantage) >= 0)
    return is_active_T.to(drop_T)
