"""Memory: how much of an attempt's past its next prompt shows."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field, model_validator

from groupwise.core.parts.part import Part, Slot


class Memory(Protocol):
    """Says which past steps a prompt shows."""

    def first_shown(self, num_past: int) -> int:
        """Index of the earliest past step that is shown, of `num_past` so far; all from there on are shown."""


class Window(Part, slot="memory"):
    """Show the last few steps; every prompt begins anew, so prompts of an attempt share little but their opening."""

    steps: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown."""

    def first_shown(self, num_past: int) -> int:
        """All but the last `steps` are left out."""
        return max(num_past - self.steps, 0)


class Full(Part, slot="memory"):
    """Show everything; each prompt continues the one before, so prefixes are shared as far as can be."""

    def first_shown(self, num_past: int) -> int:
        """Nothing is left out."""
        return 0


class AnchoredWindow(Part, slot="memory"):
    """Show between `low` and `high` past steps: the window grows to `high`, then is cut back to `low`.

    Between two cuts each prompt continues the one before, so that prefixes stay shared while prompts stay bounded.
    """

    low: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown right after a cut."""
    high: Annotated[int, Field(ge=1)] = 6
    """How many past steps are shown at most."""

    @model_validator(mode="after")
    def _grows(self) -> AnchoredWindow:
        if self.high <= self.low:
            raise ValueError(f"high is {self.high} but must exceed low, {self.low}; the window has to grow")
        return self

    def first_shown(self, num_past: int) -> int:
        """Whole strides are left out, so that the beginning moves seldom."""
        if num_past <= self.high:
            return 0
        stride = self.high - self.low
        return -(-(num_past - self.high) // stride) * stride


MemorySlot = Annotated[Memory, Slot("memory")]
