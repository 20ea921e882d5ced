"""What answers would come out as if they ended early: accuracy after each line, by making the policy answer there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory, score_of
from groupwise.rollout.measures.segment_cuts import cut_after_separators, play_on, take_answer, take_sampled
from groupwise.rollout.measures.tools import Tools

Separators = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class ForcedAnswers(Part, slot="measure"):
    """Cut answers into lines, and make the policy say its answer before the first and after each but the last.

        accuracy_k = mean score of `answers` attempts that begin with k lines and `stub`;   at the end the answer's own

    It writes the facts `line_token_ends` (sampled tokens up to the end of each line) and `line_accuracy` (one more than
    lines: before the first, after each). The token credit `line_gains` reads them.

    Source: ours, after VSRM (arXiv:2508.10293), whose split rule and probes were not published. **Choices.** A line
    ends with a token that holds one of the separators, if it is long enough; more lines than `max_lines` are merged
    evenly. Probes are sampled as attempts are, and none of them trains; what one says after the stub may be as long as
    the run's longest response and `answer_tokens` more, not `answer_tokens` at most. Where a fault ended all of them,
    two lines become one, and at the beginning the accuracy is the answer's own. Attempts are one answer.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"play"})
    writes: ClassVar[frozenset[str]] = frozenset({"line_token_ends", "line_accuracy"})
    stub: str = "answer"
    """What makes the policy answer; it is put after the lines so far."""
    separators: Separators = ("\n\n", "\n", ";")
    """What a line ends with."""
    min_tokens: Annotated[int, Field(ge=1)] = 50
    """Tokens that a line has at least."""
    max_lines: Annotated[int, Field(ge=1)] = 16
    """Lines that an answer has at most."""
    answers: Annotated[int, Field(ge=1)] = 8
    """Attempts to answer, after each line."""
    answer_tokens: Annotated[int, Field(ge=1)] = 64
    """Room for an answer beyond the run's longest response."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The lines of each answer, and how often the answer would be right after each."""
        stub, attempts = tools.encode(self.stub), [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, tools) for trajectory in attempts]
        starts = {group[0].task.id: group[0] for group in groups if group}
        prefixes: list[tuple[Trajectory, tuple[int, ...]]] = [(first, stub) for first in starts.values()]
        for trajectory, ends_of_answer in zip(attempts, ends, strict=True):
            step = trajectory.steps[0]
            prefixes += [(trajectory, step.response_ids[: step.forced + end] + stub) for end in ends_of_answer[:-1]]
        extra = len(stub) + self.answer_tokens
        played = iter(play_on(prefixes, tools, draw=draw, times=self.answers, extra_tokens=extra))
        first = {task: _mean_score(next(played)) for task in starts}
        facts = []
        for trajectory, ends_of_answer in zip(attempts, ends, strict=True):
            known = [(end, _mean_score(next(played))) for end in ends_of_answer[:-1]]
            inner = [(end, level) for end, level in known if level is not None]
            level = first[trajectory.task.id]
            own = score_of(trajectory)
            facts.append(
                {
                    "line_token_ends": [*(end for end, _ in inner), ends_of_answer[-1]],
                    "line_accuracy": [own if level is None else level, *(level for _, level in inner), own],
                }
            )
        remaining = iter(facts)
        return [[[next(remaining)] for _ in group] for group in groups]

    def _cut(self, trajectory: Trajectory, tools: Tools) -> list[int]:
        return cut_after_separators(
            tools.pieces(take_sampled(take_answer(trajectory, "forced_answers"))),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_lines,
        )


def _mean_score(attempts: Sequence[Trajectory]) -> float | None:
    return math.fsum(score_of(attempt) for attempt in attempts) / len(attempts) if attempts else None
