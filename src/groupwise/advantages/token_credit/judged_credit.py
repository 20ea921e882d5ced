"""What a judge says of the segments of answers, compared within the task and added to credit: ProRAG.

Axes: S steps of the table, K sampled tokens of all steps, G segments of all steps.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_segments import AnswerSegments, join_numbers, read_segments
from groupwise.advantages.token_credit.judged_trace import BROKEN, ENDS, KEPT, SCORES, JudgedTrace
from groupwise.core.credit import Credit
from groupwise.core.parts.part import Part
from groupwise.core.segments import BoolArray, FloatArray, IntArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable


class JudgedCredit(Part, slot="token_credit"):
    """Add to the credit of tokens how their segment was judged, against all judged tokens of the task's answers.

        A_t = A + weight * (s_t - mean) / sqrt(variance + eps),   s_t = sigmoid(score of the token's segment)

    Mean and population variance are over the tokens of all answers to the task that may train, so that long segments
    weigh more; with one token the root is 1, and where all scores are equal nothing is added.

    Source: ProRAG (arXiv:2601.21912), from its release, whose scores are logits of a trained process reward model.
    **Choices.** The measure `judged_segments` gives the scores, by whatever judge there is. The release also adds +1 or
    -2 for the form of a step, but gives every step -2, which falls out of the comparison: off, unless
    `step_format="intended"`, which reads the column `well_formed`. `per="segment"` counts every segment once.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, SCORES})
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.3
    """Weight of the judgement; the release's script has 0.3, its argument's default is 0.5."""
    per: Literal["token", "segment"] = "token"
    """What counts once in mean and variance."""
    squashes: bool = True
    """Whether scores are logits, of which the sigmoid is taken; else they count as they are."""
    step_format: Literal["off", "intended"] = "off"
    """Whether the form of a response adds to the scores of its segments."""
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-8
    """Added to the variance."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        segments = read_segments(table, tokens, ends=ENDS, numbers=SCORES, more=0)
        scores = self._read_scores(table, segments)
        of_token = segments.of_token
        # What is counted: tokens, each with its segment's score, or the segments themselves.
        counted = of_token if self.per == "token" else np.arange(len(scores))
        step = segments.step[counted]
        distance = _compare(scores[counted], table.task[step], table.trains[step], self.eps)
        if self.per == "segment":
            distance = distance[of_token]
        return TokenCredit(
            values=credit.values[tokens.step] + self.weight * distance,
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=JudgedTrace(part=self),
        )

    def _read_scores(self, table: StepTable, segments: AnswerSegments) -> FloatArray:
        """The score of each segment (G)."""
        scores = join_numbers([[self.read_score(score) for score in numbers] for numbers in segments.numbers])
        if self.step_format == "intended":
            scores = scores + np.where(table.column("well_formed")[segments.step], KEPT, BROKEN)
        return scores

    def read_score(self, score: float) -> float:
        """What a judge's number counts for: its sigmoid, or itself.

        >>> JudgedCredit().read_score(0.0)
        0.5
        """
        return (1.0 + math.tanh(score / 2)) / 2 if self.squashes else score


def _compare(values: FloatArray, task: IntArray, counts: BoolArray, eps: float) -> FloatArray:
    """How far each value lies from the mean of those of its task that count, in their deviations; equal gives 0."""
    distance = np.zeros(len(values))
    for label in np.unique(task):
        own = task == label
        members = values[own & counts]
        if not len(members) or members.min() == members.max():
            continue
        centre = members[0] + (members - members[0]).mean()
        distance[own] = (values[own] - centre) / math.sqrt(np.square(members - centre).mean() + eps)
    return distance
