from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import Field, NonNegativeInt

from groupwise.credit import join_numbers, read_segments, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.records import Trajectory, score_of
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Draw, Finite, NotNegative, Part, Share
from groupwise.rollout.scorers import Tools, cut_after_separators, play_on, sort_by_step, take_answer, take_sampled


@method
def after_vsrm(
    *, weight: Finite = 1.0, stub: str = "answer", min_tokens: Count = 50, answers: Count = 8, idle_cost: Finite = 0.0
) -> Algorithm:
    """After VSRM (ours, after arXiv:2508.10293): a line's reward is its change in the chance of a right answer.

    A_k = A + weight * r_k,   r_k = change of accuracy, or a faded share of the next change where there is none

    Choices: those of the parts `forced_answers` and `line_gains`. The paper's formula, split rule and settings were not
    found, so all of them are ours. The answer of a probe may have as many tokens as the run's longest response plus 64.
    A is the return minus the group's mean. Clip 0.2, mean over tokens, no KL.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        token_credit=LineGains(weight=weight, idle_cost=idle_cost),
        scorers=(ForcedAnswers(stub=stub, min_tokens=min_tokens, answers=answers),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


ENDS, ACCURACY = "line_token_ends", "line_accuracy"


class LineGains(Part, slot="token_credit"):
    """Add to the advantage, line by line, how the line changed the chance of a right answer.

        A_k = A + weight * r_k,   d_k = accuracy_k - accuracy_(k-1)
        r_k = d_k where |d_k| > min_change;   else gamma^j * d_(k+j), the first such change in the next `window` lines;
        else -idle_cost

    Source: ours, after VSRM (arXiv:2508.10293): it says what the reward of a line depends on, but its formula was not
    found. **Choices.** The window, min_change and gamma are ours. Ours too: each line has only its own reward. Summed
    to the end, the rewards would be the accuracy at the end minus that before the line, whatever the lines did. The
    advantage of the whole answer stays.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, ACCURACY})
    weight: NotNegative = 1.0
    """Weight of the rewards of lines."""
    min_change: NotNegative = 0.05
    """Change of accuracy up to which a line is idle."""
    gamma: Share = 0.7
    """Factor from the next line's reward to that of an idle line."""
    window: NonNegativeInt = 3
    """Lines after an idle one that are searched for a change."""
    idle_cost: NotNegative = 0.0
    """Cost of an idle line without a later change."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        lines = read_segments(table, tokens, ends=ENDS, numbers=ACCURACY, more=1)
        payments = join_numbers([self.pay_lines(levels) for levels in lines.numbers])
        return train_all(credit.values[tokens.row] + self.weight * payments[lines.of_token], self)

    def pay_lines(self, accuracy: Sequence[float]) -> list[float]:
        """The reward of each line, given the accuracy before the first and after each.

        >>> [round(paid, 3) for paid in LineGains().pay_lines([0.25, 0.25, 0.25, 0.75, 0.75, 0.5])]
        [0.245, 0.35, 0.5, -0.175, -0.25]
        """
        changes = [after - before for before, after in pairwise(accuracy)]
        payments = []
        for line in range(len(changes)):
            near = enumerate(changes[line : line + 1 + self.window])
            payments.append(next((self.gamma**j * d for j, d in near if abs(d) > self.min_change), -self.idle_cost))
        return payments

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        levels, ends = table.column(ACCURACY)[step], table.column(ENDS)[step]
        line = sum(1 for end in ends if end <= int(tokens.position[token]))
        paid, distance = -self.idle_cost, 0
        while distance <= self.window and line + distance < len(ends):
            change = levels[line + distance + 1] - levels[line + distance]
            if abs(change) > self.min_change:
                paid = change * self.gamma**distance
                break
            distance += 1
        own = float(credit.values[step])
        value = own + self.weight * paid
        is_idle = distance > self.window or line + distance >= len(ends)
        why = (
            "no change in the next lines" if is_idle else f"a change {distance} lines on, x {self.gamma:.6g}^{distance}"
        )
        lines = (
            f"it is in line {line + 1} of {len(ends)}, which took accuracy from {levels[line]:.6g} to "
            f"{levels[line + 1]:.6g}",
            f"what the line is paid: {paid:.6g} ({why if distance else 'its own change'})",
        )
        formula = f"line {line + 1}: {own:.6g} + {self.weight:.6g} x {paid:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)


Separators = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class ForcedAnswers(Part, slot="scorer"):
    """Split responses into lines, and let the policy answer before the first line and after each line but the last.

        accuracy_k = mean score of `answers` rollouts that begin with k lines and `stub`;   at the end the answer's own

    It writes the step info `line_token_ends` (sampled tokens up to the end of each line) and `line_accuracy` (one more
    than lines: before the first, after each). The token credit `line_gains` reads them.

    Source: ours, after VSRM (arXiv:2508.10293), whose split rule and probes were not published. **Choices.** A line
    ends with a token that contains a separator, if it is long enough; if there are more than `max_lines`, lines are
    merged evenly. Probes are sampled like rollouts and do not train. The text after the stub may have as many tokens as
    the run's longest response plus `answer_tokens`. If environment errors ended all probes, two lines become one; at
    the beginning, the accuracy is then the answer's own. Rollouts have one step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"play"})
    writes: ClassVar[frozenset[str]] = frozenset({"line_token_ends", "line_accuracy"})
    stub: str = "answer"
    """Text after the lines so far that makes the policy answer."""
    separators: Separators = ("\n\n", "\n", ";")
    """What a line ends with."""
    min_tokens: Count = 50
    """Fewest tokens of a line."""
    max_lines: Count = 16
    """Most lines of a response."""
    answers: Count = 8
    """Probes after each line."""
    answer_tokens: Count = 64
    """Tokens of a probe beyond the run's longest response."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        stub, rollouts = tools.encode(self.stub), [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, tools) for trajectory in rollouts]
        starts = {group[0].task.id: group[0] for group in groups if group}
        prefixes: list[tuple[Trajectory, tuple[int, ...]]] = [(first, stub) for first in starts.values()]
        for trajectory, ends_of_answer in zip(rollouts, ends, strict=True):
            step = trajectory.steps[0]
            prefixes += [(trajectory, step.response_ids[: step.forced + end] + stub) for end in ends_of_answer[:-1]]
        extra = len(stub) + self.answer_tokens
        played = iter(play_on(prefixes, tools, draw=draw, times=self.answers, extra_tokens=extra))
        first = {task: _mean_score(next(played)) for task in starts}
        info = []
        for trajectory, ends_of_answer in zip(rollouts, ends, strict=True):
            known = [(end, _mean_score(next(played))) for end in ends_of_answer[:-1]]
            inner = [(end, level) for end, level in known if level is not None]
            level = first[trajectory.task.id]
            own = score_of(trajectory)
            info.append(
                {
                    "line_token_ends": [*(end for end, _ in inner), ends_of_answer[-1]],
                    "line_accuracy": [own if level is None else level, *(level for _, level in inner), own],
                }
            )
        return sort_by_step(groups, info)

    def _cut(self, trajectory: Trajectory, tools: Tools) -> list[int]:
        return cut_after_separators(
            tools.pieces(take_sampled(take_answer(trajectory, "forced_answers"))),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_lines,
        )


def _mean_score(rollouts: Sequence[Trajectory]) -> float | None:
    return math.fsum(score_of(rollout) for rollout in rollouts) / len(rollouts) if rollouts else None
