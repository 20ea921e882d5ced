"""A bonus for right answers that are unlike the other right ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import Trajectory


class DiversityBonus(Part, slot="shaper"):
    """Add to what a right attempt earned by how unlike the other right ones it is.

        R_i <- R_i + weight * min(D_i, cap)

    D is the fact `distinctness`, which the measure `right_diversity` writes: 0 for wrong attempts, and for the only
    right one.

    Source: ours, after DSDR (2026, arXiv:2602.19895, from notes): a bounded bonus for right answers alone; its numbers
    were not found, weight and cap are ours. The bonus goes to the last step. It has to stay below what being right is
    worth: weight * cap is at most 0.5, for returns of 0 and 1.
    """

    needs_solved_groups: ClassVar[bool] = True
    """It says something about groups that are solved by every attempt."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """What distinctness is worth."""
    cap: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The distinctness beyond which nothing more is paid."""

    @model_validator(mode="after")
    def _stays_small(self) -> DiversityBonus:
        if self.weight * self.cap > 0.5:
            raise ConfigError(
                f"weight x cap is {self.weight * self.cap:g}: being different would pay half as much as being right "
                "and more; give at most 0.5"
            )
        return self

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropies of sampled tokens must be recorded: no."""
        return False

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [(*(0.0,) * (len(trajectory.steps) - 1), self._pay(trajectory)) for trajectory in group]

    def _pay(self, trajectory: Trajectory) -> float:
        if not trajectory.steps or "distinctness" not in trajectory.steps[-1].facts:
            raise RecordError(
                f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: how unlike the others it is was not "
                "measured; add the measure right_diversity"
            )
        return self.weight * min(float(trajectory.steps[-1].facts["distinctness"]), self.cap)
