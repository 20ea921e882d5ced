"""A reward for answers that are partly right: a ladder over how much of the answer matched."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import FAULTS, Trajectory


class LadderReward(Part, slot="reward"):
    """Pay for how many levels of an answer matched, from the first on; an exact answer is paid 1.

        r_last = 1 if exact, else rungs[levels that matched]

    Source: RSVR of SRPO (GREAM, 2025, arXiv:2510.20815) and its release: an answer is a path of codes; 0, 1, 2, 3 and 4
    or more right ones from the first on pay 0, 0.5, 0.707, 0.866, 0.95. Choices: the environment says how many levels
    matched, and whether all did, as facts of the step in which the attempt answered; the last step that has them
    counts. A response that was malformed in that step is paid 0, and so is an attempt that never answered.
    """

    judges: ClassVar[bool] = True
    levels: Annotated[str, Field(min_length=1)] = "matched"
    """The fact that says how many levels matched: a number from 0."""
    exact: Annotated[str, Field(min_length=1)] = "exact"
    """The fact that says whether the whole answer did."""
    rungs: Annotated[tuple[float, ...], Field(min_length=1)] = (0.0, 0.5, 0.707, 0.866, 0.95)
    """What 0, 1, ... levels pay; more than there are rungs pay the last."""

    @model_validator(mode="after")
    def _rises(self) -> LadderReward:
        if list(self.rungs) != sorted(self.rungs):
            raise ValueError(f"rungs {list(self.rungs)} fall; a better match must not pay less")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if not trajectory.steps or trajectory.stop in FAULTS:
            return (0.0,) * len(trajectory.steps)
        answered = [step for step in trajectory.steps if self.levels in step.facts]
        before = (0.0,) * (len(trajectory.steps) - 1)
        if not answered or answered[-1].well_formed is False:
            return (*before, 0.0)
        facts = answered[-1].facts
        levels = facts[self.levels]
        if isinstance(levels, bool) or not isinstance(levels, int) or levels < 0:
            raise RecordError(
                f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: the fact {self.levels!r} is {levels!r}, "
                "but reward 'ladder' counts matched levels with it; let the environment give a number from 0"
            )
        return (*before, 1.0 if facts.get(self.exact) else self.rungs[min(levels, len(self.rungs) - 1)])
