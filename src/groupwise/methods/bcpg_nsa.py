from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.credit import AnswerSegments, ZeroSpread, join_numbers, read_segments, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import PolicyLoss, SequenceMean, SquaredDrift
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.methods.prorag import ENDS, SCORES
from groupwise.methods.rec import Reinforce
from groupwise.parts import Algorithm, Finite, Part
from groupwise.rollout.scorers import JudgedSegments


@method
def bcpg_nsa(
    *, beta: Finite = 0.5, tau: Finite = 1e-3, right_above: Finite = 0.5, separators: tuple[str, ...] = ("\n\n",)
) -> Algorithm:
    """BCPG-NSA (2025, arXiv:2505.14403, from notes): REINFORCE with a smaller penalty on right steps of wrong answers.

    loss = mean over answers, then tokens, of -beta_t * (R - mean(R)) * logp, + tau / 2 * (sum_t logp - logp_old)^2 / n
    beta_t = beta where the answer is bad and the token's step was judged right, else 1

    Choices: those of the parts `judged_segments`, `spared_segments` and `squared_drift`. The source trains several
    times on answers that were sampled once. There a model and a process reward model must agree on each step, cut by a
    learned segmenter. Here answers are sampled in each update, steps end with a blank line, and `algorithm.judge`
    decides; a run file has to name it. In the tests and in the example it is a rule. Zero-variance groups are dropped.
    logp_old is the engine's, as for `opmd`; there is no ratio and no clip.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        filters=(ZeroSpread(),),
        token_credit=SparedSegments(beta=beta, right_above=right_above),
        scorers=(JudgedSegments(separators=separators),),
        loss=PolicyLoss(
            surrogate=Reinforce(), aggregate=SequenceMean(), penalties=(SquaredDrift(weight=tau),), old="engine"
        ),
    )


class SparedSegments(Part, slot="token_credit"):
    """Multiply the advantage of a bad answer by beta in segments that were judged right; all tokens train.

        A_t = beta * A where A < 0 and the token's segment is right, else A;   right: score > right_above

    At 1 nothing changes, at 0 right segments get no advantage, and below 0 they get a positive one in bad answers too.

    Source: BCPG-NSA (arXiv:2505.14403, eqs. 6 and 7, from notes). **Choices.** The scorer `judged_segments` gives the
    scores; the threshold is ours. An answer is bad if its advantage is negative. With the mean as baseline, this is
    every wrong answer of a task that has a right one. The last segment of a response that was cut off is not right. If
    all segments of a rollout were judged right, the judge missed the mistake, and the last one keeps its negative
    advantage.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, SCORES})
    beta: Annotated[float, Field(ge=-1, le=1)] = 0.5
    """Factor of the negative advantage in right segments of bad answers."""
    right_above: Finite = 0.5
    """Score above which a segment is right."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        segments = read_segments(table, tokens, ends=ENDS, numbers=SCORES, more=0)
        is_spared = self._find_right(table, segments) & (credit.values < 0)[segments.step]
        weight = np.where(is_spared, self.beta, 1.0)[segments.of_token]
        return train_all(weight * credit.values[tokens.row], self)

    def _find_right(self, table: StepTable, segments: AnswerSegments) -> BoolArray:
        """Whether each segment counts as right (G)."""
        is_right: BoolArray = join_numbers([list(scores) for scores in segments.numbers]) > self.right_above
        step = segments.step
        is_last = np.append(step[1:] != step[:-1], True)[: len(step)]
        if "cut" in table.extra:
            is_right &= ~(is_last & np.equal(table.column("cut")[step], True))
        for rollout in np.unique(table.rollout[step]):
            own = np.flatnonzero(table.rollout[step] == rollout)
            if is_right[own].all():
                is_right[own[-1]] = False
        return is_right

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        place = sum(1 for end in table.column(ENDS)[step] if end <= int(tokens.position[token]))
        labels = []
        for other in sorted(set(tokens.row[table.rollout[tokens.row] == table.rollout[step]].tolist())):
            scores = table.column(SCORES)[other]
            is_cut = "cut" in table.extra and bool(table.column("cut")[other])
            labels += [
                (other, number, score > self.right_above and not (is_cut and number == len(scores) - 1))
                for number, score in enumerate(scores)
            ]
        missed = labels[-1][:2] if all(is_right for *_, is_right in labels) else None
        is_right = (step, place, True) in labels and (step, place) != missed
        own = float(credit.values[step])
        weight = self.beta if own < 0 and is_right else 1.0
        verdict = "judged right" if is_right else "not judged right"
        formula = f"segment {place + 1}, {verdict}: {weight:.6g} x {own:.6g} = {weight * own:.6g}"
        return Derivation(value=weight * own, formula=formula)
