"""The weight-transfer protocol: weights by name on one side, an engine on the other, a version that both know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from groupwise.core.parts.part import Slot

if TYPE_CHECKING:
    import torch

    from groupwise.engines.engine import Engine


class WeightTransfer(Protocol):
    """A way that is open between one learner and one engine."""

    def hand_over(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        engine: Engine,
        *,
        version: int,
    ) -> None:
        """See to it that the engine has the weights and calls them by the version when this returns.

        It may be asked for any version at any time: a run that is resumed goes back, and so does one that is evaluated
        at an earlier checkpoint. The canary then compares what the engine says with what the learner says.
        """


class WeightTransferPart(Protocol):
    """Fills the slot `weight_transfer`: brings new weights from the learner to the engine."""

    def open(self, folder: Path | None) -> WeightTransfer:
        """Open the way for a run.

        Args:
            folder: a place of the run's own for files on the way, which need not exist; None where the run is only
                read, and nothing may be written into its folder.
        """


WeightTransferSlot = Annotated[WeightTransferPart, Slot("weight_transfer")]
"""A field of a run file that a weight transfer fills."""
