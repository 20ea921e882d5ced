"""Which task comes next: curricula over an environment's panel."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.curricula.curriculum import CurriculumSlot
from groupwise.curricula.shuffled import Shuffled

CURRICULA: dict[str, type[Part]] = {"shuffled": Shuffled}

__all__ = ["CURRICULA", "CurriculumSlot", "Shuffled"]
