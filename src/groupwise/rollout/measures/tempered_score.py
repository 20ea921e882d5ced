"""How likely sampled tokens are under a hotter and a colder policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory
from groupwise.rollout.measures.segment_cuts import take_sampled
from groupwise.rollout.measures.tools import Tools


class TemperedScore(Part, slot="measure"):
    """Write down the log-prob of each sampled token at two other temperatures: the facts `logp_hot` and `logp_cold`.

    Source: the second importance ratio of DCPO. **Choices.** Which of the two is used is known only once credit is
    computed, by the entropy of the update before, so both are measured: two forward passes. Temperatures are multiples
    of the run's own, at which tokens were sampled.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    writes: ClassVar[frozenset[str]] = frozenset({"logp_hot", "logp_cold"})
    hot: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1.2
    """The higher temperature."""
    cold: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The lower temperature."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """Two lists of log-probs for each step."""
        steps = [step for group in groups for trajectory in group for step in trajectory.steps if take_sampled(step)]
        pairs = [(step.prompt_ids + step.response_ids[: step.forced], take_sampled(step)) for step in steps]
        hot, cold = (
            iter(tools.score(pairs, temperature=factor * tools.temperature)) for factor in (self.hot, self.cold)
        )
        return [
            [
                [
                    {
                        "logp_hot": list(next(hot)) if take_sampled(step) else [],
                        "logp_cold": list(next(cold)) if take_sampled(step) else [],
                    }
                    for step in trajectory.steps
                ]
                for trajectory in group
            ]
            for group in groups
        ]
