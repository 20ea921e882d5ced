"""Hidden states of the responses of an update, and a point for each response: their mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory
from groupwise.core.segments import FloatArray
from groupwise.rollout.measures.segment_cuts import take_sampled
from groupwise.rollout.measures.tools import Tools


def read_response_states(groups: Sequence[Sequence[Trajectory]], tools: Tools) -> Iterator[FloatArray]:
    """The hidden states of each step's sampled tokens, tokens by width, step after step; none where none was sampled.

    One response at a time: the states of all are too many to keep (8 MB for 1,000 tokens of width 1,000), so a measure
    makes its numbers of each before it takes the next.
    """
    for group in groups:
        for trajectory in group:
            for step in trajectory.steps:
                sampled = take_sampled(step)
                if sampled:
                    yield tools.hidden([(step.prompt_ids + step.response_ids[: step.forced], sampled)])[0]
                else:
                    yield np.zeros((0, 0))


class ResponseEmbedding(Part, slot="measure"):
    """Write down where each response lies among the policy's hidden states: the fact `embedding`, a list of numbers.

        embedding = mean over the sampled tokens of the last hidden state

    Parts that ask how alike answers are (by their cosine, say) read it; no other model is needed. **Choices.** Ours: a
    mean over tokens, of the state that has read the token. Numbers are kept as they are, not scaled to length 1. A step
    without a sampled token has no numbers. They are written with the step, so a journal grows by the model's width in
    numbers a step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    fact: Annotated[str, Field(min_length=1)] = "embedding"
    """What the fact is called."""

    @property
    def writes(self) -> frozenset[str]:
        """The facts that it writes."""
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The mean hidden state of each step."""
        points = (
            states.mean(axis=0).tolist() if len(states) else list[float]()
            for states in read_response_states(groups, tools)
        )
        return [[[{self.fact: next(points)} for _ in trajectory.steps] for trajectory in group] for group in groups]
