"""Signals less a penalty that stays on its step: for malformed responses, and for actions that were refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import SignalPart
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable


class Penalised(Part, slot="signal"):
    """Another signal, less a penalty on each step whose response was malformed (column `well_formed`).

    Placed after discounting, as GiGPO and HGPO release it: the penalty stays on its step and is not passed back to
    the steps before. There a step is invalid where its tags are missing or it holds Chinese characters; a command that
    the game refuses is valid (`penalised_refusals` is about those). A table that says nothing of malformed steps has
    none; one that has `valid` alone is refused, since that does not tell malformed steps from refused ones.
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: Annotated[float, Field(ge=0)]
    """What a malformed step loses."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty or not ("well_formed" in table.extra or "valid" in table.extra):
            return signal
        if "well_formed" not in table.extra:
            raise RecordError(
                f"the table has a column 'valid' and none called 'well_formed'; the penalty of {self.penalty:g} is on "
                "malformed responses, and `valid` is false for actions that the environment refused too: record "
                "'well_formed' and 'accepted', or set the penalty to 0 (`hgpo:invalid_penalty=0`)"
            )
        return signal - self.penalty * ~table.column("well_formed")


class PenalisedRefusals(Part, slot="signal"):
    """Another signal, less a penalty on each step whose action the environment refused (column `accepted`).

    Ours; GiGPO and HGPO take nothing off for a command that the game refuses. A malformed response is not counted,
    whatever became of its action. Divided by the deviation of a group in which nothing else differs, it is a whole
    deviation however small it is, and a policy that may not guess stops searching (docs/adr/0006-invalid-penalty.md).
    """

    of: SignalPart
    """The signal that is penalised."""
    penalty: Annotated[float, Field(ge=0)]
    """What a refused step loses."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        if not self.penalty:
            return signal
        refused = ~table.column("accepted")
        if "well_formed" in table.extra:
            refused &= table.column("well_formed")
        return signal - self.penalty * refused
