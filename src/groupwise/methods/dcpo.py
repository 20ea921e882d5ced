from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from groupwise.credit import NumberState, read_remembered, read_token_numbers, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.records import Trajectory
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Draw, Finite, NotNegative, ObservedUpdate, Part
from groupwise.rollout.scorers import Tools, sort_by_step, take_sampled


@method
def dcpo(*, target: Finite = 0.5, hot: Finite = 1.2, cold: Finite = 0.8) -> Algorithm:
    """DCPO (2025, release 597358816/DCPO): GRPO with a second ratio on right answers that holds the entropy at a
    target.

    A_t = (1 - w) * A + w * c * exp(logp^T_t - logp_t),   w = a / (1 + a),   a = min(|target - H|, 0.1) / share right

    Choices: those of the parts `tempered_score` and `tempered_credit`; if no answer is right, w = 0. A is GRPO's. The
    released script has target 0.5, its best result 0.25. Clip 0.2 with the dual bound 3, mean over tokens, no KL.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=TemperedCredit(target=target),
        scorers=(TemperedScore(hot=hot, cold=cold),),
        loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=TokenMean()),
    )


LAST_ENTROPY = "last_entropy"


class TemperedCredit(Part, slot="token_credit"):
    """Add to right answers how much more likely each token would be under a hotter or colder policy.

        A_t = (1 - w) * A + w * c * exp(logp^T_t - logp_t),   c = 1 where the return is above `right_above`, else 0
        w = a / (1 + a),   a = min(|target - H|, max_gap) / share of right answers;   T hot where H <= target, else cold

    H is the entropy of the previous update, estimated by the mean of -logp over its sampled tokens; 0 before the first.

    Source: DCPO's release (597358816/DCPO). **Choices.** If no answer is right, w is 0; the release would divide by
    zero. Answers are rollouts. The scorer `tempered_score` gives logp^T; logp is the engine's. Without a remembered H,
    a table has H = 0, as before the first update.
    """

    mixes_tasks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"logp_hot", "logp_cold"})
    target: NotNegative = 0.5
    """The target entropy H0."""
    max_gap: NotNegative = 0.1
    """Distance from the target above which the weight does not grow."""
    right_above: float = 0.05
    """Return above which an answer is right."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        is_right = table.episode_return > self.right_above
        level = read_remembered(table, LAST_ENTROPY, 0.0)
        weight = self.find_weight(level, float(is_right[table.rollouts.first].mean()) if len(table) else 0.0)
        name = "logp_hot" if level <= self.target else "logp_cold"
        tempered = read_token_numbers(table, tokens, name, writer="the scorer tempered_score")
        ratio = np.exp(tempered - tokens.column("logp", table))
        return train_all((1.0 - weight) * credit.values[tokens.row] + weight * is_right[tokens.row] * ratio, self)

    def find_weight(self, level: float, share_right: float) -> float:
        """Weight of the second ratio, given the last entropy and the fraction of right answers.

        >>> round(TemperedCredit().find_weight(0.42, 0.25), 6)
        0.242424
        """
        pull = min(abs(self.target - level), self.max_gap) / share_right if share_right > 0 else 0.0
        return pull / (1.0 + pull)

    def start(self, *, seed: int) -> LastEntropy:
        return LastEntropy(LAST_ENTROPY, 0.0)

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        returns = {int(a): float(r) for a, r in zip(table.rollout, table.episode_return, strict=True)}
        share = sum(value > self.right_above for value in returns.values()) / len(returns)
        level = float(table.column(LAST_ENTROPY)[step]) if LAST_ENTROPY in table.extra else 0.0
        pull = min(abs(self.target - level), self.max_gap) / share if share else 0.0
        weight = pull / (1 + pull)
        name = "logp_hot" if level <= self.target else "logp_cold"
        tempered, sampled = table.column(name)[step][int(tokens.position[token])], float(tokens.logp[token])
        is_right = table.episode_return[step] > self.right_above
        ratio = math.exp(tempered - sampled) if is_right else 0.0
        own = float(credit.values[step])
        value = (1 - weight) * own + weight * ratio
        lines = (
            f"right answers: {share:.6g} of the {len(returns)} rollouts",
            f"entropy {level:.6g}, and {self.target:.6g} is wanted: pull {pull:.6g}, so weight {weight:.6g}",
            f"{name} {tempered:.6g}, log-prob {sampled:.6g}: ratio {math.exp(tempered - sampled):.6g}"
            if is_right
            else f"its answer is not right (return {table.episode_return[step]:.6g}), so no ratio is added",
        )
        formula = f"{1 - weight:.6g} x {own:.6g} + {weight:.6g} x {ratio:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)


class LastEntropy(NumberState):
    """The entropy of the previous update, as the mean of -logp."""

    def observe(self, update: ObservedUpdate) -> None:
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        logps = [logp for step in steps for logp in step.logp_behaviour[step.forced :]]
        if logps:
            self._value = -math.fsum(logps) / len(logps)


class TemperedScore(Part, slot="scorer"):
    """Write the log-prob of each sampled token at two other temperatures: the step info `logp_hot` and `logp_cold`.

    Source: the second importance ratio of DCPO. **Choices.** The entropy of the previous update decides which of the
    two is used, but only when advantages are computed. So both are measured, with two forward passes. Temperatures are
    multiples of the run's own sampling temperature.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    writes: ClassVar[frozenset[str]] = frozenset({"logp_hot", "logp_cold"})
    hot: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 1.2
    """The higher temperature."""
    cold: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The lower temperature."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        steps = [step for group in groups for trajectory in group for step in trajectory.steps]
        sampled = [step for step in steps if take_sampled(step)]
        pairs = [(step.prompt_ids + step.response_ids[: step.forced], take_sampled(step)) for step in sampled]
        hot, cold = (
            iter(tools.score(pairs, temperature=factor * tools.temperature)) for factor in (self.hot, self.cold)
        )
        info = []
        for step in steps:
            is_scored = bool(take_sampled(step))
            of_step = [list(next(scores)) if is_scored else [] for scores in (hot, cold)]
            info.append(dict(zip(("logp_hot", "logp_cold"), of_step, strict=True)))
        return sort_by_step(groups, info)
