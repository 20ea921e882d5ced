"""The slot of a reward: what it is handed and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from groupwise.core.parts.part import Slot
from groupwise.core.records import Trajectory


class Reward(Protocol):
    """Pays an attempt: a number for each of its steps, in their order.

    A part that judges how well the task was done declares `judges = True`; the others shape the return, and what the
    judges pay stays known beside it.
    """

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]: ...


class ReadsResponses(Protocol):
    """A reward that also reads what was said, as texts; it declares `reads_responses = True`."""

    def pay(self, trajectory: Trajectory, responses: Sequence[str]) -> tuple[float, ...]:
        """Pay an attempt whose responses say this."""


RewardSlot = Annotated[Reward, Slot("reward")]
"""A field of a run file that a reward fills."""

Amount = Annotated[float, Field(allow_inf_nan=False)]
"""What may be paid: a finite number, negative to punish."""
