"""The curriculum protocol: it hands out tasks, hears how they went, and can be put away and taken up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from groupwise.core.parts.part import Slot
from groupwise.core.records import Task, Trajectory


class LiveCurriculum(Protocol):
    """A curriculum at work. What it remembers goes into checkpoints, as plain JSON values."""

    def next(self, num: int) -> list[Task]:
        """The next tasks to attempt; a task may come twice."""

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Hear how an update's attempts went."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""


class Curriculum(Protocol):
    """Fills the slot `curriculum`."""

    def start(self, tasks: Sequence[Task], seed: int) -> LiveCurriculum:
        """Begin with a panel."""


CurriculumSlot = Annotated[Curriculum, Slot("curriculum")]
"""A field of a run file that a curriculum fills."""
