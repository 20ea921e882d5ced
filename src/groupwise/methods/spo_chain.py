from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from groupwise.credit import ENDS, VALUES, WhitenedTokens, check_recorded, join_numbers, read_comparison, read_segments
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.records import Step, Trajectory
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.methods.rloo import rloo
from groupwise.parts import Algorithm, Count, Draw, Part, PositiveShare, Share
from groupwise.rollout.scorers import Tools, cut_after_uncertain, play_on, sort_by_step, take_answer


@method
def spo_chain(
    *, max_probability: Share = 0.9, uncertain_tokens: Count = 5, continuations: Count = 9, whiten: bool = True
) -> Algorithm:
    """SPO-chain (2025, arXiv:2505.23564): the advantage of a segment is its change in the value of the answer so far.

    A_k = V_k - V_(k-1),   V = mean return of `continuations` from there;   at the end the return itself

    Choices: those of the parts `segment_values` and `segment_credit`. The value of the empty answer is the mean of the
    other rollouts of the task. So with one segment and `whiten=False` the advantage is that of `rloo`, bit-exact. Only
    tokens less likely than `max_probability` train. Whitened over the batch, as released. Clip 0.2, no KL.
    """
    part = SegmentCredit(max_probability=max_probability)
    return Algorithm(
        advantage=rloo().advantage,
        token_credit=WhitenedTokens(of=part) if whiten else part,
        scorers=(
            SegmentValues(
                max_probability=max_probability, uncertain_tokens=uncertain_tokens, continuations=continuations
            ),
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


class SegmentCredit(Part, slot="token_credit"):
    """Give the tokens of a segment its change in the value of the answer; sure tokens do not train.

        A_1 = V_1 - (R - A),   A_k = V_k - V_(k-1),   A_last = R - V_(last-1);   they add up to A, the step's credit

    R is the signal of the estimator. V_k is the value at the end of segment k, which the scorer `segment_values`
    writes. A token trains if its probability was below `max_probability`.

    Source: SPO-chain (arXiv:2505.23564). **Choices.** The value of the empty answer is the estimator's baseline, R - A,
    because the other rollouts of the task continue from it. So an answer of one segment has the advantage of its step,
    bit-exact. The estimator is `relative` and must not divide by a scale. For the release's whitening, put
    `whitened_tokens` around it.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, VALUES})
    max_probability: PositiveShare | None = 0.9
    """Probability below which a token trains; None = all do."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        signal = read_comparison(table, credit, "segment_credit").signal
        segments = read_segments(table, tokens, ends=ENDS, numbers=VALUES, more=-1)
        changes = [
            _list_changes(float(signal[step]), float(credit.values[step]), values) if ends else []
            for step, (ends, values) in enumerate(zip(segments.ends, segments.numbers, strict=True))
        ]
        trains = np.ones(len(tokens), dtype=np.bool_)
        if self.max_probability is not None:
            trains = np.exp(tokens.column("logp", table)) < self.max_probability
        values = join_numbers(changes)[segments.of_token]
        return TokenCredit(values=values, trains=trains, trace=self)

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step, position = int(tokens.row[token]), int(tokens.position[token])
        ends, inner = table.column(ENDS)[step], table.column(VALUES)[step]
        number = next(number for number, end in enumerate(ends) if position < end)
        earned = float(read_comparison(table, credit, "segment_credit").signal[step])
        own = float(credit.values[step])
        before = inner[number - 1] if number else earned - own
        after = inner[number] if number < len(inner) else earned
        value = own if len(ends) == 1 else math.fsum([after, -before])
        whence = "measured" if number else f"what was compared, {earned:.6g}, less the advantage of the step, {own:.6g}"
        whither = "measured" if number < len(inner) else "what was compared"
        lines = (
            f"value where its segment begins: {before:.6g} ({whence})",
            f"value where its segment ends: {after:.6g} ({whither})",
        )
        formula = f"segment {number + 1} of {len(ends)}: {after:.6g} - {before:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        probability = math.exp(float(tokens.logp[token]))
        return f"its probability was {probability:.6g}, and only tokens below {self.max_probability or 1:.6g} do"


def _list_changes(earned: float, credit: float, values: tuple[float, ...]) -> list[float]:
    if not values:
        return [credit]
    first = values[0] - (earned - credit)
    return [first, *(after - before for before, after in pairwise(values)), earned - values[-1]]


class SegmentValues(Part, slot="scorer"):
    """Split responses into segments after every few uncertain tokens, and continue from the end of each segment.

        V(prefix) = mean return of `continuations` rollouts that begin with the prefix

    It writes the step info `segment_ends` (sampled tokens up to the end of each segment) and `segment_values` (V at the
    end of each segment but the last, which ends with the answer's own return). The token credits `segment_credit` and
    `token_gae` read them.

    Source: SPO-chain (arXiv:2505.23564): a token is uncertain below a probability of 0.9, a segment has five of them,
    and a value has nine continuations. **Choices.** The beginning has no continuations: the other rollouts of the task
    serve as such. Continuations are sampled and rewarded like rollouts, within the same number of tokens, and do not
    train. If environment errors ended all of them, two segments become one. Rollouts have one step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"play"})
    writes: ClassVar[frozenset[str]] = frozenset({"segment_ends", "segment_values"})
    max_probability: PositiveShare = 0.9
    """Probability below which a token is uncertain."""
    uncertain_tokens: Count = 5
    """Uncertain tokens of a segment."""
    continuations: Count = 9
    """Rollouts from each end of a segment."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        rollouts = [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, take_answer(trajectory, "segment_values")) for trajectory in rollouts]
        prefixes = [
            (trajectory, trajectory.steps[0].response_ids[: trajectory.steps[0].forced + end])
            for trajectory, ends_of_answer in zip(rollouts, ends, strict=True)
            for end in ends_of_answer[:-1]
        ]
        played = iter(play_on(prefixes, tools, draw=draw, times=self.continuations))
        info = []
        for ends_of_answer in ends:
            known = [(end, of_end) for end in ends_of_answer[:-1] if (of_end := next(played))]
            info.append(
                {
                    "segment_ends": [*(end for end, _ in known), ends_of_answer[-1]],
                    "segment_values": [math.fsum(one.scores["return"] for one in of) / len(of) for _, of in known],
                }
            )
        return sort_by_step(groups, info)

    def _cut(self, trajectory: Trajectory, step: Step) -> list[int]:
        check_recorded(trajectory, "logp_behaviour", "which segment_values reads")
        logps = step.logp_behaviour[step.forced :]
        return cut_after_uncertain(logps, max_probability=self.max_probability, per_segment=self.uncertain_tokens)
