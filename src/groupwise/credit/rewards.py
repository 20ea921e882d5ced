"""Rewards: what a reward part is handed and what it returns, and the rewards that come with groupwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field, NonNegativeInt, model_validator

from groupwise.data.field_kinds import is_count
from groupwise.data.records import FAULTS, Trajectory, score_of
from groupwise.parts.part import Count, Finite, NotNegative, Part, Slot
from groupwise.system.errors import RecordError


class Reward(Protocol):
    """Pays an attempt: a number for each of its steps, in their order.

    A part that judges how well the task was done declares `judges = True`; the others shape the return, and what the
    judges pay stays known beside it.
    """

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]: ...


class ReadsResponses(Protocol):
    """A reward that also reads what was said, as texts; it declares `reads_responses = True`."""

    def pay(self, trajectory: Trajectory, responses: Sequence[str]) -> tuple[float, ...]:
        """Pay an attempt whose responses say this."""


RewardSlot = Annotated[Reward, Slot("reward")]
"""A field of a run file that a reward fills."""


def pay_last(trajectory: Trajectory, amount: float) -> tuple[float, ...]:
    """An amount on the last step, and 0 on those before; nothing where there is no step."""
    return (*(0.0,) * (len(trajectory.steps) - 1), amount)[: len(trajectory.steps)]


# Rewards that judge how well the task was done.


class EnvironmentReward(Part, slot="reward"):
    """The environment's own reward of each step.

    r_t = weight * reward_t
    """

    judges: ClassVar[bool] = True
    weight: Finite = 1.0
    """What it is multiplied by."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple([self.weight * step.reward for step in trajectory.steps])


class OutcomeReward(Part, slot="reward"):
    """One amount for a solved task, another for a failed one, on the last step.

        r_last = solved if success else failed;   r_t = 0 before

    Source: 10 and 0 are what GiGPO and HGPO train on (Feng et al. 2025, arXiv:2505.10978). It takes the place of the
    reward `environment`, which pays what the environment says. An attempt that a fault ended was never judged: it is
    paid nothing.
    """

    judges: ClassVar[bool] = True
    solved: Finite = 10.0
    """Paid where the environment says that the task was solved."""
    failed: Finite = 0.0
    """Paid where it says that it was not."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if not trajectory.steps or trajectory.stop in FAULTS:
            return pay_last(trajectory, 0.0)
        if "success" not in trajectory.scores:
            raise RecordError(
                f"{trajectory.describe()}: the environment did not say whether the "
                "task was solved, which reward 'outcome' reads; set `Outcome.success` when an attempt ends, or use "
                "reward 'environment'"
            )
        return pay_last(trajectory, self.solved if trajectory.scores["success"] else self.failed)


class GradedReward(Part, slot="reward"):
    """What the environment paid for an attempt, if that was enough; on the last step.

        r_last = weight * grade if grade >= min_grade, else 0;   grade = sum of the environment's rewards

    Source: ProRAG's reward for an answer, 2 F1 from 0.2 on (arXiv:2601.21912, release). It takes the place of the
    reward `environment`, for worlds that pay answers which are partly right. An attempt that a fault ended was never
    judged: it is paid nothing.
    """

    judges: ClassVar[bool] = True
    weight: Finite = 2.0
    """What the grade is multiplied by."""
    min_grade: Finite = 0.2
    """Grade from which on it is paid."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        grade = math.fsum(step.reward for step in trajectory.steps)
        is_paid = grade >= self.min_grade and trajectory.stop not in FAULTS
        return pay_last(trajectory, self.weight * grade if is_paid else 0.0)


# Rewards for how an agent goes about a task: its steps, the form of its responses, actions that were refused.


class StepReward(Part, slot="reward"):
    """The same amount for every step: negative, it asks for short attempts.

    r_t = each
    """

    each: Finite = -0.01
    """Paid for a step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return (self.each,) * len(trajectory.steps)


class MalformedResponseReward(Part, slot="reward"):
    """A penalty for every response without the form that was asked for, whatever the environment made of it.

        r_t = -penalty where the response is malformed, else 0

    Source: 0.1 as in GiGPO's release (arXiv:2505.10978). Choices: it is part of the reward, so that discounted returns
    carry it back to earlier steps. Recipes of that family have an `invalid_penalty` of their own, taken from the step's
    own return after discounting: use the one or the other.
    """

    penalty: NotNegative = 0.1
    """Taken from a malformed step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(-self.penalty if step.well_formed is False else 0.0 for step in trajectory.steps)


class RefusedActionReward(Part, slot="reward"):
    """A penalty for every well-formed response whose action the environment refused.

        r_t = -penalty where the response is well formed and its action refused, else 0

    Ours. Choices: where a prompt does not list what is possible, guessing is part of the search, and this teaches not
    to search (docs/adr/0006-invalid-penalty.md). `refused_penalty` of the recipes stays on its step; this one is
    carried back to earlier steps by discounted returns: use the one or the other.
    """

    penalty: NotNegative = 0.1
    """Taken from a refused step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(
            -self.penalty if step.accepted is False and step.well_formed is not False else 0.0
            for step in trajectory.steps
        )


class FormatReward(Part, slot="reward"):
    """Pays for responses of the form that was asked for, whatever the environment made of the action.

        r_t = (kept if the response is well formed, else broken) / steps        `per="attempt"`
        r_t =  kept if the response is well formed, else broken                 `per="step"`
        r_last = kept if all responses are well formed, else broken             `per="whole"`

    Source: format rewards of the R1 kind (DeepSeek-R1, arXiv:2501.12948), which score one response; the last is
    ProRAG's (arXiv:2601.21912), with 1 and -1. Choices: over many steps the mean is paid, so that a longer attempt
    earns no more by it. What the form is, the run's action rule says.
    """

    kept: Finite = 0.1
    """Paid for a well-formed response."""
    broken: Finite = 0.0
    """Paid for any other."""
    per: Literal["attempt", "step", "whole"] = "attempt"
    """Whether an attempt is paid the mean over its steps, each step in full, or one amount for all of them."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if self.per == "whole":
            is_kept = all(step.well_formed for step in trajectory.steps)
            return pay_last(trajectory, self.kept if is_kept else self.broken)
        share = len(trajectory.steps) if self.per == "attempt" else 1
        return tuple((self.kept if step.well_formed else self.broken) / share for step in trajectory.steps)


# Rewards by the length of responses, in sampled tokens; the token that ends a response counts.


class OverlongReward(Part, slot="reward"):
    """A soft penalty for responses that come near the limit of length, by L sampled tokens.

        r = 0                                       if L <= limit - buffer
        r = weight * (limit - buffer - L) / buffer  if limit - buffer < L <= limit
        r = -weight                                 if L > limit

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 13), with limit 20480 and buffer 4096. Choices: each step's
    response is measured by itself. A buffer of 0 leaves the hard limit. A response cut off at a limit of as many tokens
    has length L = limit and is paid -weight. Whether a task is worth training on should not go by this reward: the
    column `accuracy` keeps what the judges paid, and the filter `zero_spread` reads that.
    """

    limit: Count = 20480
    """Tokens from which on the whole penalty is due."""
    buffer: NonNegativeInt = 4096
    """Tokens before the limit over which the penalty grows."""
    weight: NotNegative = 1.0
    """The whole penalty."""

    @model_validator(mode="after")
    def _fits(self) -> OverlongReward:
        if self.buffer > self.limit:
            raise ValueError(f"buffer is {self.buffer} but at most {self.limit}, the limit that it leads up to")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        free, paid = self.limit - self.buffer, []
        for length in (len(step.response_ids) for step in trajectory.steps):
            beyond = (free - length) / self.buffer if free < length <= self.limit else -1.0
            paid.append(self.weight * (beyond if length > free else 0.0))
        return tuple(paid)


class LengthReward(Part, slot="reward"):
    """The same amount for every sampled token beyond a free number: negative, it asks for short responses.

        r = each * max(L - free, 0)

    Source: ours; the linear form of the length penalties around.
    """

    each: Finite = -0.001
    """Paid for a token."""
    free: NonNegativeInt = 0
    """Tokens of a response that are not counted."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.each * max(len(step.response_ids) - self.free, 0) for step in trajectory.steps)


class BrevityReward(Part, slot="reward"):
    """More for a right answer the shorter it is, by L sampled tokens of the whole attempt; nothing for a wrong one.

        r_last = weight * max(0, 1 - L / limit)   if solved, else 0

    Source: R^3 (2026, arXiv:2601.19620), with limit 32768. Choice: it is added to the outcome, so that a right answer
    earns c * (1 + r). Which groups are all right or all wrong goes by the outcome alone.
    """

    limit: Count = 32768
    """Tokens from which on nothing is added."""
    weight: NotNegative = 1.0
    """What an answer of no length would be paid."""
    solved_at: float = 0.5
    """Score from which on an answer counts as right."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        length = sum(len(step.response_ids) for step in trajectory.steps)
        is_right = score_of(trajectory) >= self.solved_at
        return pay_last(trajectory, self.weight * max(0.0, 1 - length / self.limit) if is_right else 0.0)


class LadderReward(Part, slot="reward"):
    """Pay for how many levels of an answer matched, from the first on; an exact answer is paid 1.

        r_last = 1 if exact, else rungs[levels that matched]

    Source: RSVR of SRPO (GREAM, 2025, arXiv:2510.20815) and its release: an answer is a path of codes; 0, 1, 2, 3 and 4
    or more right ones from the first on pay 0, 0.5, 0.707, 0.866, 0.95. Choices: the environment says how many levels
    matched, and whether all did, as facts of the step in which the attempt answered; the last step that has them
    counts. A response that was malformed in that step is paid 0, and so is an attempt that never answered.
    """

    judges: ClassVar[bool] = True
    levels: Annotated[str, Field(min_length=1)] = "matched"
    """The fact that says how many levels matched: a number from 0."""
    exact: Annotated[str, Field(min_length=1)] = "exact"
    """The fact that says whether the whole answer did."""
    rungs: Annotated[tuple[float, ...], Field(min_length=1)] = (0.0, 0.5, 0.707, 0.866, 0.95)
    """What 0, 1, ... levels pay; more than there are rungs pay the last."""

    @model_validator(mode="after")
    def _rises(self) -> LadderReward:
        if list(self.rungs) != sorted(self.rungs):
            raise ValueError(f"rungs {list(self.rungs)} fall; a better match must not pay less")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        answered = [step for step in trajectory.steps if self.levels in step.facts]
        if trajectory.stop in FAULTS or not answered or answered[-1].well_formed is False:
            return pay_last(trajectory, 0.0)
        facts = answered[-1].facts
        levels = facts[self.levels]
        if not is_count(levels):
            raise RecordError(
                f"{trajectory.describe()}: the fact {self.levels!r} is {levels!r}, "
                "but reward 'ladder' counts matched levels with it; let the environment give a number from 0"
            )
        return pay_last(trajectory, 1.0 if facts.get(self.exact) else self.rungs[min(levels, len(self.rungs) - 1)])
