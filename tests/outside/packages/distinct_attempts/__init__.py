"""An admission of one's own: attempts that did what another one did are compared once."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.extend import Draw, Part, Trajectory


class Distinct(Part, slot="admission"):
    """Leave out the attempts whose actions are those of an earlier attempt of the group."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        first = {tuple(step.action for step in attempt.steps): attempt for attempt in reversed(group)}
        return [attempt for attempt in group if attempt in first.values()]
