from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from pydantic import model_validator

from groupwise.credit import ByTask, ColumnSignal, NoBaseline, NoScale, Relative, Sum, Term
from groupwise.data.records import FAULTS, Trajectory
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.methods.rloo import rloo
from groupwise.parts import Algorithm, Count, Draw, Finite, Part
from groupwise.rollout.forks import Fork
from groupwise.rollout.scorers import LARGEST_SEED, Tools
from groupwise.system.errors import RecordError


@method
def pav(*, alpha: Finite = 0.5, best_of: Count = 4, continuations: Count = 8) -> Algorithm:
    """PAV (Setlur et al. 2024, arXiv:2410.08146): RLOO, plus the change that each step made in a prover's chance of
    success.

    A_t = R - mean(other R) + alpha * (V_after - V_before),   V = success of the best of `best_of` rollouts from there

    Choices: those of the part `prover_values`, which runs `continuations` rollouts from a copy of the environment
    before each step; the paper trains a verifier to predict their result. Each step has only its own progress: summed
    over the later steps, all but the ends would cancel. alpha is ours (the paper's was not found): summed over a
    rollout, progress is its success minus the expected one, so it weighs half as much as the final score. alpha = 0 is
    RLOO's advantage, and nothing is sampled. Success is 0 or 1, so rewards should be of that size. Clip 0.2, mean over
    tokens, no KL.
    """
    loss = PolicyLoss(surrogate=Clip(), aggregate=TokenMean())
    if alpha == 0:
        return Algorithm(advantage=rloo().advantage, loss=loss)
    progress = Relative(
        by=ByTask(),
        of=ColumnSignal(name="prover_progress"),
        baseline=NoBaseline(),
        scale=NoScale(),
        average="step",
        alone="raw",
    )
    return Algorithm(
        advantage=Sum(terms=(Term(weight=1.0, of=rloo().advantage), Term(weight=alpha, of=progress))),
        scorers=(ProverValues(best_of=best_of, continuations=continuations),),
        loss=loss,
    )


SUCCESS = "success"
Situation = tuple[str, tuple[tuple[int, ...], ...]]
"""A task and all responses so far: the same environment state, and the same prompt."""


class ProverValues(Part, slot="scorer"):
    """Continue from before each step, and value the situation by the best of several rollouts.

        V = expected best success of `best_of` rollouts from here,   progress of a step = V after it - V before it

    It writes the step info `prover_value` (V before the step) and `prover_progress`. After a rollout's last step V is
    its own success. The environment must support copies.

    Source: PAV (Setlur et al. 2024, arXiv:2410.08146), whose provers are the best of K of the policy; K = 4 is best.
    **Choices.** The paper trains a verifier on such values, here they are measured. V is the mean over all sets of
    `best_of` among `continuations` rollouts, which is unbiased; 1 - (1 - q)^K of the fraction q of successes is too
    low. Rollouts with the same responses so far share one V. If environment errors leave fewer than `best_of`, a step's
    progress is 0 and its value is left out. Continuations are sampled like rollouts and do not train.

    Worked example: of 8 continuations 2 succeed, best of 4: 1 - C(6, 4) / C(8, 4) = 1 - 15 / 70 = 0.786.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"fork"})
    writes: ClassVar[frozenset[str]] = frozenset({"prover_value", "prover_progress"})
    best_of: Count = 4
    """K: rollouts of the prover; 1 = the policy itself."""
    continuations: Count = 8
    """Rollouts from each situation."""

    @model_validator(mode="after")
    def _enough_to_choose_from(self) -> ProverValues:
        if self.continuations < self.best_of:
            raise ValueError(
                f"{self.continuations} continuations cannot tell the best of {self.best_of}; raise continuations"
            )
        return self

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        places: dict[Situation, tuple[Trajectory, int]] = {}
        for trajectory in (trajectory for group in groups for trajectory in group):
            if any(step.unhinted_prompt_ids or step.forced for step in trajectory.steps):
                raise RecordError(
                    f"{trajectory.describe()}: it was hinted, and a continuation "
                    "would not be; use prover_values with a plan without hint"
                )
            for kept in range(len(trajectory.steps)):
                places.setdefault(_describe_situation(trajectory, kept), (trajectory, kept))
        forks = [
            Fork(
                trunk=trunk,
                kept=kept,
                number=number,
                seed=int(draw(trunk.task.id, trunk.rollout, kept, number).integers(LARGEST_SEED)),
            )
            for trunk, kept in places.values()
            for number in range(self.continuations)
        ]
        played = tools.play_forks(forks) if forks else []
        values: dict[Situation, float | None] = {}
        for number, situation in enumerate(places):
            of_situation = played[number * self.continuations : (number + 1) * self.continuations]
            scores = [_read_success(rollout) for rollout in of_situation if rollout.stop not in FAULTS]
            values[situation] = find_best_of(scores, self.best_of) if len(scores) >= self.best_of else None
        return [[_describe_steps(trajectory, values) for trajectory in group] for group in groups]


def find_best_of(scores: Sequence[float], num: int) -> float:
    """The mean, over all sets of `num` of the scores, of the best in the set.

    >>> find_best_of([0.0, 1.0, 0.0, 0.0], 2)
    0.5
    """
    chances = ((score, math.comb(below, num - 1)) for below, score in enumerate(sorted(scores)))
    return math.fsum(score * chance for score, chance in chances) / math.comb(len(scores), num)


def _describe_situation(trajectory: Trajectory, kept: int) -> Situation:
    return trajectory.task.id, tuple(step.response_ids for step in trajectory.steps[:kept])


def _describe_steps(trajectory: Trajectory, values: dict[Situation, float | None]) -> list[dict[str, float]]:
    known = [values[_describe_situation(trajectory, kept)] for kept in range(len(trajectory.steps))]
    info = []
    for before, after in pairwise([*known, _read_success(trajectory)]):
        progress = 0.0 if before is None or after is None else after - before
        info.append({"prover_progress": progress} | ({} if before is None else {"prover_value": before}))
    return info


def _read_success(trajectory: Trajectory) -> float:
    if SUCCESS not in trajectory.scores:
        raise RecordError(
            f"{trajectory.describe()}: its environment does not say whether it "
            "succeeded, which prover_values reads; use one that does"
        )
    return trajectory.scores[SUCCESS]
