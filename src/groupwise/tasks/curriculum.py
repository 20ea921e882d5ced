"""The curriculum protocol: it hands out tasks, is told how they went, and its state can be saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from groupwise.core.parts.part import Slot
from groupwise.core.records import Task, Trajectory


class LiveCurriculum(Protocol):
    """A curriculum at work. Its state goes into checkpoints, as plain JSON values."""

    def next(self, num: int) -> list[Task]:
        """The next tasks to attempt; a task may come twice."""

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Take in how an update's attempts went."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: what it must know to go on as if it had never stopped."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""


class Curriculum(Protocol):
    """Fills the slot `curriculum`: says which tasks of the panel come next."""

    def start(self, tasks: Sequence[Task], seed: int) -> LiveCurriculum:
        """Begin with a panel."""


CurriculumSlot = Annotated[Curriculum, Slot("curriculum")]
"""A field of a run file that a curriculum fills."""
