from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import model_validator

from groupwise.credit import ByTask, EpisodeReturn, FlooredDeviation, Relative, pay_last
from groupwise.data.records import Trajectory, score_of
from groupwise.data.segments import FloatArray
from groupwise.losses import Clip, EntropyShare, PolicyLoss, SequenceMean
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Draw, Finite, NotNegative, Part, Positive, PositiveShare
from groupwise.rollout.scorers import Tools, read_response_states
from groupwise.system.errors import ConfigError, RecordError


@method
def after_dsdr(
    *,
    bonus: Finite = 0.1,
    cap: Finite = 0.5,
    temperature: Finite = 0.1,
    entropy: Finite = 0.001,
    floor: Finite = 0.05,
    solved_above: Finite = 0.5,
) -> Algorithm:
    """After DSDR (ours; arXiv:2602.19895 of 2026 has both scales): different right answers get a bonus and explore
    more.

    R_i = r_i + bonus * min(D_i, cap);   A_i = (R_i - mean(R)) / max(std(R) + 1e-6, floor);   l - entropy w_i rho H

    Choices: from notes on the paper are a bounded bonus for right answers by embeddings and formulas, and entropy
    distributed by a softmax of D. Ours are embeddings from the policy's own hidden states, lines with `=` as formulas,
    and all numbers. See the scorer `right_diversity`, the shaper `diversity_bonus` and the penalty `entropy_share`. If
    all are right, only the bonus differs, and the floor keeps its effect small. Clip 0.2; each answer counts the same;
    no KL. The plan `top_up` and filters that drop solved tasks are errors, because diversity is learned from solved
    tasks.
    """
    credit = Relative(by=ByTask(), of=EpisodeReturn(), scale=FlooredDeviation(floor=floor))
    penalties = (EntropyShare(weight=entropy),) if entropy else ()
    return Algorithm(
        advantage=credit,
        scorers=(RightDiversity(temperature=temperature, solved_above=solved_above),),
        shapers=(DiversityBonus(weight=bonus, cap=cap),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=penalties),
    )


class DiversityBonus(Part, slot="shaper"):
    """Add a bonus to a right rollout that is unlike the other right ones.

        R_i <- R_i + weight * min(D_i, cap)

    D is the step info `distinctness`, which the scorer `right_diversity` writes: 0 for wrong rollouts, and for the only
    right one.

    Source: ours, after DSDR (2026, arXiv:2602.19895, from notes). The bonus is on the last step. It must be smaller
    than the reward of a right answer: weight * cap is at most 0.5, for returns of 0 and 1.
    """

    needs_entropy: ClassVar[bool] = False
    needs_solved_groups: ClassVar[bool] = True
    weight: NotNegative = 0.1
    """Factor of the distinctness."""
    cap: PositiveShare = 0.5
    """Distinctness above this adds no more."""

    @model_validator(mode="after")
    def _stays_small(self) -> DiversityBonus:
        if self.weight * self.cap > 0.5:
            raise ConfigError(
                f"weight x cap is {self.weight * self.cap:g}: being different would pay half as much as being right "
                "and more; give at most 0.5"
            )
        return self

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [pay_last(trajectory, self._pay(trajectory)) for trajectory in group]

    def _pay(self, trajectory: Trajectory) -> float:
        if not trajectory.steps or "distinctness" not in trajectory.steps[-1].info:
            raise RecordError(
                f"{trajectory.describe()}: how unlike the others it is was not measured; add the scorer right_diversity"
            )
        return self.weight * min(float(trajectory.steps[-1].info["distinctness"]), self.cap)


class RightDiversity(Part, slot="scorer"):
    """Write how much each right rollout differs from the other right ones of its task, and its share of exploration.

        D_i = (mean_j (1 - cos(e_i, e_j)) + share of i's formulas that no j has) / 2, clipped to [0, 1];   j != i right
        w_i = softmax over the right rollouts of D_i / temperature

    The step info are `distinctness`, D (0 for a wrong rollout and for the only right one), and `entropy_share`, w times
    the size of the group, so shares have mean 1 (0 for a wrong rollout).

    Source: ours, after DSDR (2026, arXiv:2602.19895, from notes). **Choices.** e is the mean hidden state of a
    rollout's sampled tokens, so no other model is needed. Formulas are lines with `=` in the responses, without white
    space. A rollout without formulas uses e alone. Two numbers per step are kept, not the states.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    writes: ClassVar[frozenset[str]] = frozenset({"distinctness", "entropy_share"})
    temperature: Positive = 0.1
    """How evenly exploration is distributed; larger is more even."""
    solved_above: Finite = 0.5
    """The score above which a rollout is right."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        states = read_response_states(groups, tools)
        return [self._measure_group(group, states, tools) for group in groups]

    def _measure_group(self, group: Sequence[Trajectory], states: Iterator[FloatArray], tools: Tools) -> list[Any]:
        points = [_find_point([next(states) for _ in trajectory.steps]) for trajectory in group]
        right = [place for place, trajectory in enumerate(group) if score_of(trajectory) > self.solved_above]
        formulas = []
        for place in right:
            lines = [line for step in group[place].steps for line in tools.text(step.response_ids).splitlines()]
            formulas.append({"".join(line.split()) for line in lines if "=" in line})
        distinct = measure_distinctness([points[place] for place in right], formulas)
        shares = share_out(distinct, self.temperature)
        of_place = dict(zip(right, zip(distinct, shares, strict=True), strict=True))
        info = []
        for place, trajectory in enumerate(group):
            distance, share = of_place.get(place, (0.0, 0.0))
            info.append([{"distinctness": distance, "entropy_share": share * len(group)} for _ in trajectory.steps])
        return info


def measure_distinctness(points: Sequence[FloatArray], formulas: Sequence[set[str]]) -> list[float]:
    """How unlike the others each is, from 0 to 1; equal points and formulas give exactly 0.

    For points of length 1, half the squared distance is 1 - cos; it is exactly 0 for equal points.
    """
    distinct = []
    for place, (point, own) in enumerate(zip(points, formulas, strict=True)):
        others = [other for other in range(len(points)) if other != place]
        if not others:
            return [0.0]
        known_points = [points[other] for other in others if len(point) and len(points[other])]
        apart = [float(((point - other) ** 2).sum()) / 2 for other in known_points]
        terms = [math.fsum(apart) / len(apart)] if apart else [0.0]
        if own:
            known = set().union(*(formulas[other] for other in others))
            terms.append(len(own - known) / len(own))
        distinct.append(min(max(math.fsum(terms) / len(terms), 0.0), 1.0))
    return distinct


def share_out(distinct: Sequence[float], temperature: float) -> list[float]:
    """Softmax shares that add up to 1; an empty list stays empty."""
    top = max(distinct, default=0.0)
    weights = [math.exp((value - top) / temperature) for value in distinct]
    return [weight / math.fsum(weights) for weight in weights]


def _find_point(states: Sequence[FloatArray]) -> FloatArray:
    """The mean of a rollout's states at length 1; empty if nothing was sampled, and 0 stays 0."""
    sampled = [some for some in states if len(some)]
    if not sampled:
        return np.zeros(0)
    mean: FloatArray = np.concatenate(sampled).mean(axis=0)
    length = float(np.sqrt((mean**2).sum()))
    return np.asarray(mean / length if length > 0 else mean)
