"""A KL to the reference where rewards are doubtful, to a reference that follows: GARDO. Axis: T tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.core.segments import FloatArray
from groupwise.losses.penalties import Kl, Weight
from groupwise.losses.token_columns import TokenColumns

if TYPE_CHECKING:
    from torch import Tensor

MEASURED = "loss/kl_to_reference"
"""What a loss with a reference reports of its own accord: mean of k3 over the tokens that train."""


class GatedKl(Kl, slot="penalty"):
    """Stay close to the reference where a gate says so, and move the reference along once the policy has left it.

        l         = weight * gate * k,   k as in `Kl`, gate a channel of credit
        reference <- the policy after an update in which mean k3 > max_kl, or `every` updates after the last time

    With the channel of `doubt_gate`, which is 0 or the number of steps over that of gated steps, the mean of l is
    the mean of k over the gated ones.

    Source: GARDO (2025, arXiv:2512.24138) and its release, for diffusion. **Choices.** Ours for language models: k by
    token, 0.05 nats a token in place of 3e-4 of the diffusion's own measure, updates in place of epochs. k3 is measured
    over all tokens that train, gated or not, and over all optimiser steps of an update. The new reference is that of
    the update that passed the bound, from the next one on; its policy is kept as a checkpoint, from which a resumed run
    takes it up.
    """

    weight: Weight = 0.04
    """How much of it is added to the loss; at 0 no reference policy is needed."""
    gate: Annotated[str, Field(min_length=1)] = "kl_gate"
    """The channel that says where it counts, and how much."""
    max_kl: Annotated[float, Field(gt=0)] = 0.05
    """Mean k3 above which the policy becomes the reference; infinity = never for that reason."""
    every: Annotated[int, Field(gt=0)] | None = 15
    """Updates after which it becomes the reference in any case; None = never for that reason."""

    @property
    def channels(self) -> frozenset[str]:
        """The channel of credit that it reads."""
        return frozenset({self.gate})

    def __call__(self, columns: TokenColumns) -> Tensor:
        return columns.channel(self.gate) * super().__call__(columns)

    def start(self, *, seed: int) -> ReferenceChoice:
        """Begin with the policy that the run starts from; nothing here is random."""
        return ReferenceChoice(self)


class ReferenceChoice:
    """Which policy is the reference: the state of `GatedKl`."""

    def __init__(self, part: GatedKl) -> None:
        self._part = part
        self.reference = 0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """Nothing of tasks: whoever holds the weights asks for `reference`."""
        return {}

    def observe(self, update: ObservedUpdate) -> None:
        """Take the update's policy where the one before is too far away, or too old."""
        kl, every = update.metrics.get(MEASURED, math.nan), self._part.every
        if kl > self._part.max_kl or (every is not None and update.number - self.reference >= every):
            self.reference = update.number

    def state_dict(self) -> dict[str, Any]:
        """The update whose policy it is."""
        return {"reference": self.reference}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with it."""
        self.reference = int(state["reference"])
