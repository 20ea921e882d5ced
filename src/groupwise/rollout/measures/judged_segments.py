"""What a judge says of each piece of a response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.errors import TrainingError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Step, Trajectory
from groupwise.rollout.judges.protocol import JudgeQuestion
from groupwise.rollout.measures.segment_cuts import cut_after_separators, take_sampled
from groupwise.rollout.measures.tools import Tools


class JudgedSegments(Part, slot="measure"):
    """Cut each response into segments, and write down what the algorithm's judge says of each.

    It writes the facts `judged_ends` (sampled tokens up to the end of each segment) and `judged_scores` (a number a
    segment). The token credits `judged_credit` and `spared_segments` read them. A question has the observation as its
    context, the segment as its answer, and in `said` what the response said before it.

    Source: process reward models, which score an answer step by step; ProRAG (arXiv:2601.21912) and BCPG-NSA
    (arXiv:2505.14403) read such scores. **Choices.** The scorer is whatever `algorithm.judge` is: a rule, a function,
    or a model behind a server. Without separators a response is one segment, as where every search is a step by itself;
    with them a segment ends as a line of `forced_answers` does. Forced tokens are said before the first segment. A step
    without a sampled token has no segment, and nobody is asked about it.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    writes: ClassVar[frozenset[str]] = frozenset({"judged_ends", "judged_scores"})
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """What a segment ends with; none = the whole response is one."""
    min_tokens: Annotated[int, Field(ge=1)] = 1
    """Tokens that a segment has at least."""
    max_segments: Annotated[int, Field(ge=1)] = 64
    """Segments that a response has at most."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The segments of each response, and their scores; all of an update are asked about at once."""
        attempts = [trajectory for group in groups for trajectory in group]
        ends = [[self._cut(step, tools) for step in trajectory.steps] for trajectory in attempts]
        questions = [
            question
            for trajectory, ends_of_attempt in zip(attempts, ends, strict=True)
            for step, ends_of_step in zip(trajectory.steps, ends_of_attempt, strict=True)
            for question in _write_questions(trajectory, step, ends_of_step, tools)
        ]
        answers = tools.judge(questions) if questions else []
        if len(answers) != len(questions):
            raise TrainingError(
                f"the judge gave {len(answers)} numbers for {len(questions)} questions; give one for each"
            )
        scores, of_attempt = iter(answers), iter(ends)
        return [
            [
                [{"judged_ends": own, "judged_scores": [float(next(scores)) for _ in own]} for own in next(of_attempt)]
                for _ in group
            ]
            for group in groups
        ]

    def _cut(self, step: Step, tools: Tools) -> list[int]:
        sampled = take_sampled(step)
        if not sampled:
            return []
        return cut_after_separators(
            tools.pieces(sampled),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_segments,
        )


def _write_questions(trajectory: Trajectory, step: Step, ends: Sequence[int], tools: Tools) -> Iterator[JudgeQuestion]:
    for begin, end in zip([0, *ends], ends, strict=False):
        yield JudgeQuestion(
            task=trajectory.task,
            context=step.observation or "",
            answer=tools.text(step.response_ids[step.forced + begin : step.forced + end]),
            said=tools.text(step.response_ids[: step.forced + begin]),
            facts=step.facts,
        )
