"""Micro-batches: samples laid out for the model, with what is known of their tokens before it runs.

Axis: T trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from groupwise.batching import Pack, PaddedRows, column
from groupwise.core.errors import RecordError
from groupwise.core.sample import Sample
from groupwise.losses.columns import TokenColumns


@dataclass(frozen=True, eq=False, kw_only=True)
class MicroBatch:
    """One forward and backward pass: tokens for the model, columns for the loss."""

    layout: Pack | PaddedRows
    """The tokens."""
    logp_behaviour: torch.Tensor
    """Log-prob that the engine reported for each trained token (T)."""
    advantage: torch.Tensor
    """Credit of each trained token (T)."""
    step: torch.Tensor
    """Step of each trained token within its trajectory (T)."""
    trajectory: torch.Tensor
    """Trajectory of each trained token (T)."""
    off_policy: torch.Tensor | None = None
    """Whether another policy sampled each trained token (T); None = none of the update's."""
    logp_old: torch.Tensor | None = None
    """Log-prob under the weights at the start of the update (T), once it was scored."""
    logp_ref: torch.Tensor | None = None
    """Log-prob under the reference policy (T), once it was scored."""

    def columns(self, logp_T: torch.Tensor, entropy_T: torch.Tensor | None) -> TokenColumns:
        """What the loss sees, given what the model said."""
        return TokenColumns(
            logp=logp_T,
            entropy=entropy_T,
            logp_behaviour=self.logp_behaviour,
            logp_old=self.logp_old,
            logp_ref=self.logp_ref,
            advantage=self.advantage,
            mask=torch.ones_like(self.trajectory, dtype=torch.bool),
            sample=self.layout.sample,
            step=self.step,
            trajectory=self.trajectory,
            off_policy=self.off_policy,
        )


def check_logps(samples: Sequence[Sample]) -> None:
    """Refuse samples whose log-probs were not recorded."""
    for number, sample in enumerate(samples):
        if sample.num_trained and not sample.logp_behaviour:
            raise RecordError(
                f"{sample.name}: the log-probs of its sampled tokens were not recorded; record what the engine reports",
                row=number,
            )


def micro_batches(samples: Sequence[Sample], layouts: Sequence[Pack | PaddedRows]) -> list[MicroBatch]:
    """Give each layout of samples what is known of its tokens."""
    device = layouts[0].sample.device
    behaviour = [one.of_trained(one.logp_behaviour) for one in samples]
    advantage = [one.of_trained(one.advantage) for one in samples]
    step = torch.tensor([one.step for one in samples], device=device)
    trajectory = torch.tensor([one.trajectory for one in samples], device=device)
    strange = [one.off_policy for one in samples]
    off_policy = torch.tensor(strange, device=device) if any(strange) else None
    return [
        MicroBatch(
            layout=layout,
            logp_behaviour=column(layout, behaviour),
            advantage=column(layout, advantage),
            step=step[layout.sample],
            trajectory=trajectory[layout.sample],
            off_policy=None if off_policy is None else off_policy[layout.sample],
        )
        for layout in layouts
    ]
