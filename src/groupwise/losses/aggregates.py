"""Aggregates: from the losses of the tokens to one number.

Every denominator is counted over the whole update and passed in. So the numbers of the micro-batches add up to that of
the batch, for any split. If nothing trains, the denominator is 1 and the loss is 0.

Axis: T tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from groupwise.data.samples import Totals
from groupwise.losses.token_columns import Tensor, TokenColumns, Unit
from groupwise.parts.part import Part


class TokenMean(Part, slot="aggregate"):
    """Every token counts the same: long responses weigh more.

        sum_t l_t / tokens

    Source: DAPO (arXiv:2503.14476); `token-mean` in verl.
    """

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        return loss_T.sum() / max(totals.tokens, 1)


class SequenceMean(Part, slot="aggregate"):
    """Every sample counts the same: a token of a short response weighs more.

        mean_i(sum_t l_{i,t} / L_i)

    Source: GRPO (arXiv:2402.03300, eq. 3); `seq-mean-token-mean` in verl. L_i counts the tokens that train.
    """

    unit: ClassVar[Unit] = "sample"

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        return (loss_T / columns.units("sample").size(loss_T)).sum() / max(totals.samples, 1)


class SequenceSum(Part, slot="aggregate"):
    """The whole response is one action: the losses of its tokens add up.

        mean_i(sum_t l_{i,t})

    Source: REINFORCE, RLOO (arXiv:2402.14740); `seq-mean-token-sum` in verl.
    """

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        return loss_T.sum() / max(totals.samples, 1)


class ConstantLength(Part, slot="aggregate"):
    """Sum over the tokens, divided by a constant: the length of a response does not change the weight of its tokens.

        sum_t l_t / (samples * length)

    Source: Dr. GRPO (arXiv:2503.20783), as TRL divides. Choices: verl's `seq-mean-token-sum-norm` divides by the length
    alone (`per_sequence=False`). The length is a setting; verl's default is the padded width, which varies.
    """

    length: PositiveInt | None = None
    """The constant; None = the most tokens a sample may have (`Totals.max_tokens`)."""
    per_sequence: bool = True
    """Whether the number of samples divides too."""

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        samples = max(totals.samples, 1) if self.per_sequence else 1
        return loss_T.sum() / (samples * (self.length or totals.max_tokens))


class StepMean(Part, slot="aggregate"):
    """Every step counts the same, for any split of its tokens into samples.

        mean over steps of (mean over the step's tokens of l)

    Source: ours; SLATE (arXiv:2602.23440) averages over steps. If each step is one sample, it is `SequenceMean`.
    """

    unit: ClassVar[Unit] = "step"

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        return (loss_T / columns.units("step").size(loss_T)).sum() / max(totals.steps, 1)


class TrajectoryMean(Part, slot="aggregate"):
    """Every rollout counts the same, whatever its number of steps.

        mean over trajectories of (mean over the trajectory's tokens of l)                          `within="token"`
        mean over trajectories of (mean over its steps of (mean over the step's tokens of l))       `within="step"`

    Source: Flow-GRPO (AgentFlow, arXiv:2510.05592) averages over rollouts, turns and tokens; slime and agent-lightning
    take the mean within a rollout first. A trajectory may be split over several micro-batches: its tokens and steps are
    counted over the update (`Totals.trajectory_tokens`, `Totals.trajectory_steps`).
    """

    within: Literal["token", "step"] = "token"
    """What counts the same within a trajectory."""

    @property
    def unit(self) -> Unit:
        return self.within

    def __call__(self, loss_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
        counts = totals.trajectory_tokens if self.within == "token" else totals.trajectory_steps
        columns.check_counted(totals)
        share_T = loss_T / loss_T.new_tensor(counts).index_select(0, columns.trajectory)
        if self.within == "step":
            share_T = share_T / columns.units("step").size(share_T)
        return share_T.sum() / max(totals.trajectories, 1)
