from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from groupwise.credit import join_numbers, read_segments, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, Part
from groupwise.rollout.scorers import JudgedSegments


@method
def prorag(
    *,
    weight: Finite = 0.3,
    per: Literal["token", "segment"] = "token",
    step_format: Literal["off", "intended"] = "off",
    separators: tuple[str, ...] = (),
) -> Algorithm:
    """ProRAG (2026, arXiv:2601.21912, code): GRPO plus each step's judged score relative to the group.

    A_t = (R - mean(R)) / (std(R) + 1e-4) + weight * (s_t - mean(s)) / std(s),   s = sigmoid(score of the step)

    Choices: those of the parts `judged_segments` and `judged_credit`; mean and std of s are over all tokens of the
    group (`per="segment"` counts each step once). The source trains a process reward model for the scores. Here
    `algorithm.judge` gives them, and a run file has to name one; in the tests and in the example it is a rule. Its
    outcome reward is `graded` and `format` (kept = 1, broken = -1, per = "whole") in `rewards`. Every response is a
    step, unless `separators` split it. Clip 0.2 and the mean over tokens, without KL, are ours; its bound on ratios is
    left out.
    """
    return Algorithm(
        advantage=grpo(eps=1e-4).advantage,
        token_credit=JudgedCredit(weight=weight, per=per, step_format=step_format),
        scorers=(JudgedSegments(separators=separators),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


ENDS, SCORES = "judged_ends", "judged_scores"
"""Step info that the scorer `judged_segments` writes."""
KEPT, BROKEN = 1.0, -2.0
"""Added to the scores of a well-formed or malformed response's segments, with `step_format="intended"`."""


class JudgedCredit(Part, slot="token_credit"):
    """Add to the advantage of tokens the score of their segment, relative to all judged tokens of the task.

        A_t = A + weight * (s_t - mean) / sqrt(variance + eps),   s_t = sigmoid(score of the token's segment)

    Mean and population variance are over the tokens of the task that may train, so long segments weigh more. If all
    scores are equal, nothing is added.

    Source: ProRAG (arXiv:2601.21912), from its release, whose scores are logits of a trained process reward model.
    **Choices.** The scorer `judged_segments` gives the scores, with any judge. The release also adds +1 or -2 for the
    format of a step, but every step gets -2, which cancels in the comparison. So this is off, unless
    `step_format="intended"`, which reads the column `well_formed`. `per="segment"` counts every segment once.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, SCORES})
    weight: NotNegative = 0.3
    """Weight of the score; 0.3 in the release's script, and 0.5 as its argument's default."""
    per: Literal["token", "segment"] = "token"
    """What counts once in mean and variance."""
    squashes: bool = True
    """Whether scores are logits, so that the sigmoid is taken."""
    step_format: Literal["off", "intended"] = "off"
    """Whether the format of a response adds to the scores of its segments."""
    eps: NotNegative = 1e-8
    """Added to the variance."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        segments = read_segments(table, tokens, ends=ENDS, numbers=SCORES, more=0)
        scores = join_numbers([[self.read_score(score) for score in numbers] for numbers in segments.numbers])
        if self.step_format == "intended":
            scores = scores + np.where(table.column("well_formed")[segments.step], KEPT, BROKEN)
        of_token = segments.of_token
        # What is counted: tokens, each with its segment's score, or the segments themselves.
        counted = of_token if self.per == "token" else np.arange(len(scores))
        step = segments.step[counted]
        distance = _compare(scores[counted], table.task[step], table.trains[step], self.eps)
        if self.per == "segment":
            distance = distance[of_token]
        return train_all(credit.values[tokens.row] + self.weight * distance, self)

    def read_score(self, score: float) -> float:
        """The value of a judge's number: its sigmoid, or itself.

        >>> JudgedCredit().read_score(0.0)
        0.5
        """
        return (1.0 + math.tanh(score / 2)) / 2 if self.squashes else score

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        scores = []
        for other in sorted(set(tokens.row.tolist())):
            if table.task[other] == table.task[step] and table.trains[other]:
                ends, numbers = table.column(ENDS)[other], table.column(SCORES)[other]
                for begin, end, number in zip([0, *ends], ends, numbers, strict=False):
                    scores += [self._score(table, other, number)] * (end - begin if self.per == "token" else 1)
        place = sum(1 for end in table.column(ENDS)[step] if end <= int(tokens.position[token]))
        own, score = float(credit.values[step]), self._score(table, step, table.column(SCORES)[step][place])
        mean, deviation = score, 1.0
        if len(set(scores)) > 1:
            mean = math.fsum(scores) / len(scores)
            deviation = math.sqrt(math.fsum((other - mean) ** 2 for other in scores) / len(scores) + self.eps)
        value = own + self.weight * (score - mean) / deviation
        formula = f"{own:.6g} + {self.weight:.6g} x ({score:.6g} - {mean:.6g}) / {deviation:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula)

    def _score(self, table: StepTable, step: int, number: float) -> float:
        form = 0.0 if self.step_format == "off" else KEPT if table.column("well_formed")[step] else BROKEN
        return self.read_score(number) + form


def _compare(values: FloatArray, task: IntArray, counts: BoolArray, eps: float) -> FloatArray:
    """Distance of each value from its task's mean, in standard deviations, over the values that count; equal values
    give 0.
    """
    distance = np.zeros(len(values))
    for label in np.unique(task):
        own = task == label
        members = values[own & counts]
        if not len(members) or members.min() == members.max():
            continue
        centre = members[0] + (members - members[0]).mean()
        distance[own] = (values[own] - centre) / math.sqrt(np.square(members - centre).mean() + eps)
    return distance
