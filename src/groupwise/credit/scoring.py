"""Scoring: the rewards of a step become the sum over the reward parts; then group reward shaping adds to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar, Literal, cast

from groupwise.credit.rewards import ReadsResponses, Reward
from groupwise.data.column_checks import LARGEST_REWARD
from groupwise.data.records import Step, Trajectory
from groupwise.parts.part import NotNegative, Part, kind_of, name_of
from groupwise.parts.slots import Shaper
from groupwise.system.errors import RecordError

ReadResponse = Callable[[Sequence[int]], str]
"""Decodes token ids into the text of a response."""


def score_trajectory(
    trajectory: Trajectory, rewards: Sequence[Reward], *, read_response: ReadResponse | None = None
) -> Trajectory:
    """The trajectory with the rewards of the parts.

    Its step rewards are the sums over the parts. Its scores get the total of each part under the part's kind, and the
    total of all under `return`. A part with a `solved_at` decides `success` instead of the environment. If some parts
    judge and others shape, `accuracy` is the sum of the judges. Filters that ask whether a task has a learning signal
    read that, because a length penalty makes equal answers differ.

    Score a rollout once, right after it was sampled: the environment's own rewards are replaced. `read_response` is for
    parts that read texts (`reads_responses`); without it they read actions.
    """
    steps = trajectory.steps
    if trajectory.outcome is not None:
        raise RecordError(
            f"{trajectory.describe()}: it has an outcome of its own, {trajectory.outcome}, which would replace "
            "the rewards of its steps; leave the outcome out, or the rewards"
        )
    payments: list[list[float]] = []
    judged: list[list[float]] = []
    scores: dict[str, float] = {}
    for part in rewards:
        kind: str | None = getattr(part, "score_name", None)
        if kind is None:
            kind = kind_of(type(part)) if isinstance(part, Part) else type(part).__name__
        if read_response is not None and getattr(part, "reads_responses", False):
            responses = [read_response(step.response_ids) for step in steps]
            amounts = list(map(float, cast(ReadsResponses, part).pay(trajectory, responses)))
        else:
            amounts = list(map(float, part(trajectory)))
        if len(amounts) != len(steps):
            raise RecordError(
                f"{trajectory.describe()}: reward {kind!r} gave {len(amounts)} numbers for {len(steps)} steps; "
                "give one per step"
            )
        for step, amount in zip(steps, amounts, strict=True):
            if not abs(amount) <= LARGEST_REWARD:
                raise RecordError(
                    f"{trajectory.describe()}, step {step.index}: reward {kind!r} is {amount}; rewards are finite and "
                    f"at most {LARGEST_REWARD:g}: fix what computes it (a missing reward is not a zero)"
                )
        payments.append(amounts)
        judged += [amounts] if getattr(part, "judges", False) else []
        scores[kind] = scores.get(kind, 0.0) + math.fsum(amounts)
        solved_at: float | None = getattr(part, "solved_at", None)
        if solved_at is not None:
            scores["success"] = float(math.fsum(amounts) >= solved_at)
    if 0 < len(judged) < len(payments):
        scores["accuracy"] = math.fsum(chain.from_iterable(judged))
    totals = list(map(math.fsum, zip(*payments, strict=True))) if payments else [0.0] * len(steps)
    return replace(
        trajectory,
        steps=tuple(
            [
                step if total == step.reward else replace(step, reward=total)
                for step, total in zip(steps, totals, strict=True)
            ]
        ),
        scores={**trajectory.scores, **scores, "return": math.fsum(totals)},
    )


def check_recorded(trajectory: Trajectory, name: Literal["logp_behaviour", "entropy"], why: str) -> None:
    """Raise an error if the engine did not report the log-probs, or the entropies, of all sampled tokens."""
    for step in trajectory.steps:
        if len(getattr(step, name)) != len(step.response_ids):
            words = "entropies" if name == "entropy" else "log-probs"
            raise RecordError(
                f"{trajectory.describe()}, step {step.index}: the {words} of its sampled tokens were not recorded, "
                f"{why}; use an engine that reports them"
            )


def shape_group(group: Sequence[Trajectory], shapers: Sequence[Shaper]) -> list[Trajectory]:
    """The rollouts of a group with what each shaper adds; their own rewards stay known."""
    trajectories = list(group)
    for shaper in shapers:
        for number, (trajectory, amounts) in enumerate(zip(trajectories, shaper(tuple(trajectories)), strict=True)):
            steps = trajectory.steps
            if len(amounts) != len(steps) or not all(map(math.isfinite, amounts)):
                raise RecordError(
                    f"{trajectory.describe()}: shaper {name_of(shaper)} gave {amounts!r} for {len(steps)} steps; "
                    "give one finite number per step"
                )
            if any(amounts):
                pairs = zip(steps, amounts, strict=True)
                shaped = tuple(replace(step, shaped=step.shaped + amount) for step, amount in pairs)
                trajectories[number] = replace(trajectory, steps=shaped)
    return trajectories


REFERENCE_LOGP = "reference_logp"
"""The step info with a response's log-prob under the reference policy."""


class ReferenceKl(Part, slot="shaper"):
    """Subtract from each step's reward how much more likely its response is than under the reference policy.

        r_t <- r_t - weight * sum over its tokens of (ln pi(token) - ln pi_ref(token))

    Source: the KL of RLOO (Ahmadian et al. 2024, arXiv:2402.14740) and P3O (Wu et al. 2023, arXiv:2310.00212), which is
    part of the reward of an answer in both. The estimator is k1, and pi the policy that sampled. REINFORCE++ subtracts
    it per token: `kl` of the token credit `token_return`. Choices: it is summed over a response, as in TRL's RLOO, and
    put on its step; a method that discounts carries it back to earlier steps. It reads the step info `reference_logp`,
    which the scorer `reference_score` writes. Off-policy rollouts stay as they are, because their recorded log-probs
    are not those of pi. These are rollouts with a hint, a forced beginning or another temperature that train as if
    without.
    """

    needs_entropy: ClassVar[bool] = False
    weight: NotNegative
    """Cost of a nat of divergence."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        amounts: list[tuple[float, ...]] = []
        for trajectory in group:
            if trajectory.off_policy:
                amounts.append((0.0,) * len(trajectory.steps))
                continue
            check_recorded(trajectory, "logp_behaviour", "which the shaper reference_kl reads")
            amounts.append(
                tuple(-self.weight * self._measure_divergence(trajectory, step) for step in trajectory.steps)
            )
        return amounts

    def _measure_divergence(self, trajectory: Trajectory, step: Step) -> float:
        if REFERENCE_LOGP not in step.info:
            raise RecordError(
                f"{trajectory.describe()}, step {step.index}: it has no step info {REFERENCE_LOGP!r}, which the shaper "
                'reference_kl reads; add scorers = ["reference_score"] to [algorithm]'
            )
        return math.fsum(step.logp_behaviour) - float(step.info[REFERENCE_LOGP])
