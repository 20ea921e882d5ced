"""What answers are worth half-way: values of prefixes, by going on from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Step, Trajectory
from groupwise.rollout.measures.segment_cuts import cut_after_uncertain, play_on, take_answer
from groupwise.rollout.measures.tools import Tools


class SegmentValues(Part, slot="measure"):
    """Cut answers into segments after every so many uncertain tokens, and play on from where each segment ends.

        V(prefix) = mean return of `continuations` attempts that begin with the prefix

    It writes the facts `segment_ends` (sampled tokens up to the end of each segment) and `segment_values` (V where a
    segment ends, but for the last, whose end is the answer's own outcome). The token credit `segment_credit` reads
    them, and `token_gae` does.

    Source: SPO-chain (arXiv:2505.23564): a token is uncertain below a probability of 0.9, five of them make a segment,
    nine continuations a value. **Choices.** The beginning is not played on from: the other attempts at the task are
    continuations of nothing. Continuations are sampled as attempts are, within the same number of tokens, and paid as
    they are; none of them trains. Where a fault ended all of them, two segments become one. Attempts are one answer.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"play"})
    writes: ClassVar[frozenset[str]] = frozenset({"segment_ends", "segment_values"})
    max_probability: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Probability below which a token counts as uncertain."""
    uncertain_tokens: Annotated[int, Field(ge=1)] = 5
    """Uncertain tokens of a segment."""
    continuations: Annotated[int, Field(ge=1)] = 9
    """Attempts that go on from each end of a segment."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The segments of each answer, and what they led to."""
        attempts = [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, take_answer(trajectory, "segment_values")) for trajectory in attempts]
        prefixes = [
            (trajectory, trajectory.steps[0].response_ids[: trajectory.steps[0].forced + end])
            for trajectory, ends_of_answer in zip(attempts, ends, strict=True)
            for end in ends_of_answer[:-1]
        ]
        played = iter(play_on(prefixes, tools, draw=draw, times=self.continuations))
        facts = iter(
            [_describe(ends_of_answer, [next(played) for _ in ends_of_answer[:-1]]) for ends_of_answer in ends]
        )
        return [[[next(facts)] for _ in group] for group in groups]

    def _cut(self, trajectory: Trajectory, step: Step) -> list[int]:
        if step.response_ids and not step.logp_behaviour:
            raise RecordError(
                f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: the log-probs of its sampled tokens were "
                "not recorded, which segment_values reads; use an engine that reports them"
            )
        logps = step.logp_behaviour[step.forced :]
        return cut_after_uncertain(logps, max_probability=self.max_probability, per_segment=self.uncertain_tokens)


def _describe(ends: Sequence[int], played: Sequence[Sequence[Trajectory]]) -> dict[str, Any]:
    known = [(end, attempts) for end, attempts in zip(ends, played, strict=False) if attempts]
    return {
        "segment_ends": [*(end for end, _ in known), ends[-1]],
        "segment_values": [math.fsum(attempt.scores["return"] for attempt in of) / len(of) for _, of in known],
    }
