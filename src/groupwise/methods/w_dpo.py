from __future__ import annotations

from itertools import combinations

import numpy as np

from groupwise.credit import ColumnSignal, EpisodeReturn, check_range
from groupwise.data.samples import Pair, differ
from groupwise.data.step_table import StepTable
from groupwise.methods.dpo import Dpo
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part, SignalPart


@method
def w_dpo(*, beta: Finite = 0.1, reference: bool = True, verdict: str = "accepted") -> Algorithm:
    """W-DPO (StepORLM, 2025, from notes on the paper): DPO with pairs weighted by the difference of their judged
    scores.

    loss = mean over pairs of -w * log sigmoid(z);   w = 1 where outcomes differ, else |difference of step scores|

    Choices: the notes print z without a reference (`reference=False`); we use one, as DPO does. The verdict of a step
    is a column from 0 to 1. By default it says whether the environment accepted the action, a rule instead of the
    source's generative reward model; a judge's scorer gives others. Every two rollouts of a task are a pair.
    """
    return Algorithm(
        advantage=grpo().advantage,
        pairing=ByVerdict(outcome=EpisodeReturn(), verdict=ColumnSignal(name=verdict)),
        loss=Dpo(beta=beta, reference=reference, per="pair"),
    )


class ByVerdict(Part, slot="pairing"):
    """Every two rollouts of a task, ordered by their final scores, or if these are equal by their steps.

        weight = 1 where the outcomes differ, else |score_winner - score_loser|,   score = mean verdict of the steps

    Source: W-DPO of StepORLM (2025), which asks a solver for the outcome and a generative reward model for the steps.
    Choices: a verdict outside [0, 1] is an error. Two rollouts that are equal by both are no pair. Rollouts without a
    step that may train are left out.
    """

    outcome: SignalPart
    """The final score of a rollout, such as `episode_return`."""
    verdict: SignalPart
    """How good a step was, from 0 to 1."""

    def __call__(self, table: StepTable) -> list[Pair]:
        outcome_A = table.rollouts.mean(table.ask_once(self.outcome)).tolist()
        verdict, needed = (
            table.ask_once(self.verdict),
            "but pairs are weighed by verdicts from 0 to 1; scale what judges the steps",
        )
        check_range(table, verdict, "its verdict is", needed, low=0.0, high=1.0)
        score_A = table.rollouts.mean(verdict).tolist()
        trains_A = table.rollouts.sum(table.trains.astype(np.float64)) > 0
        task_A = table.task[table.rollouts.first].tolist()
        pairs = []
        for a, b in combinations(np.flatnonzero(trains_A).tolist(), 2):
            is_decided = differ(outcome_A[a], outcome_A[b])
            judged_A = outcome_A if is_decided else score_A
            if task_A[a] != task_A[b] or not differ(judged_A[a], judged_A[b]):
                continue
            winner, loser = (a, b) if judged_A[a] > judged_A[b] else (b, a)
            gap = judged_A[winner] - judged_A[loser]
            pairs.append(Pair(winner, loser, 1.0 if is_decided else gap, gap))
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        outcome_A, score_A = (table.rollouts.mean(table.ask_once(part)) for part in (self.outcome, self.verdict))
        if differ(outcome_A[pair.winner], outcome_A[pair.loser]):
            return f"their outcomes differ: {outcome_A[pair.winner]:.6g} against {outcome_A[pair.loser]:.6g}"
        return f"equal outcomes, verdicts differ: {score_A[pair.winner]:.6g} against {score_A[pair.loser]:.6g}"
