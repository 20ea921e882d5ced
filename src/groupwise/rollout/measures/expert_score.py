"""What the environment's expert would say of each step: a judge by rule, where no model can judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory
from groupwise.rollout.measures.tools import Tools

Score = Annotated[float, Field(ge=0, le=10)]


class ExpertScore(Part, slot="measure"):
    """Score every step from 0 to 10 by whether it is what the environment's expert would have done there.

    It writes the fact `step_score`, which the filter `scored_steps` reads. The attempt is carried out again in a fresh
    environment, in this process, and the expert is asked before each step; no model is asked.

    Source: ours; WebSTAR has a language model score steps (10 = surely succeeds and nothing is better, 5 = borderline,
    at most 6 where another action is better), and this rule stands in its place. **Choices.** Another action that is
    just as good as the expert's is not told apart: it is borderline. So is a step for which the expert knows nothing.

    Worked example: where the expert would "open drawer 1", that step has 10, "look" has 5, and "sing", which the
    environment refuses, has 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"expert"})
    writes: ClassVar[frozenset[str]] = frozenset({"step_score"})
    agreed: Score = 10.0
    """Score of what the expert would have done."""
    other: Score = 5.0
    """Score of another action that the environment carried out."""
    refused: Score = 0.0
    """Score of an action that the environment refused."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The score of each step."""
        advice = iter(tools.ask_expert([trajectory for group in groups for trajectory in group]))
        return [[self._score(trajectory, next(advice)) for trajectory in group] for group in groups]

    def _score(self, trajectory: Trajectory, advice: Sequence[str | None]) -> list[dict[str, float]]:
        scores = []
        for step, advised in zip(trajectory.steps, advice, strict=True):
            score = self.refused if step.accepted is False else self.other
            scores.append({"step_score": self.agreed if advised is not None and step.action == advised else score})
        return scores
