"""Which task comes next: curricula over the tasks of an environment's panel."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.tasks.curriculum import CurriculumSlot
from groupwise.tasks.shuffled import Shuffled

CURRICULA: dict[str, type[Part]] = {"shuffled": Shuffled}

__all__ = ["CURRICULA", "CurriculumSlot", "Shuffled"]
