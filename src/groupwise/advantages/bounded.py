"""A signal with an upper bound: a step above it is an error.

Axis: S steps.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import SignalPart
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable


class Bounded(Part, slot="signal"):
    """Another signal that nobody can get more of than the best; one above it is an error, since `best` is then wrong.

    For methods that put a made-up perfect attempt into a group (NGRPO): one that real attempts beat is no such thing.
    """

    of: SignalPart
    """The signal that is bounded."""
    best: Annotated[float, Field(allow_inf_nan=False)]
    """The largest value that the signal can have."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        # A sum of rewards may pass the best by its last digit.
        above = np.flatnonzero(signal > self.best + 1e-9 * max(1.0, abs(self.best)))
        if len(above):
            raise RecordError(
                f"{table.describe_step(int(above[0]))}: the return is {signal[above[0]]:g}, above `best`, "
                f"{self.best:g}; set `best` to what a perfect attempt earns"
            )
        return signal
