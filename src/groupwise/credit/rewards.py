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
    """Rewards a rollout: one number per step, in order.

    A part that judges how well the task was done declares `judges = True`. All others shape the return; the sum of the
    judges is kept beside it.
    """

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]: ...


class ReadsResponses(Protocol):
    """A reward that also reads the responses as texts; it declares `reads_responses = True`."""

    def pay(self, trajectory: Trajectory, responses: Sequence[str]) -> tuple[float, ...]:
        """Reward a rollout with these responses."""


RewardSlot = Annotated[Reward, Slot("reward")]
"""A field of a run file that takes a reward."""


def pay_last(trajectory: Trajectory, amount: float) -> tuple[float, ...]:
    """The amount on the last step and 0 before it; nothing if there is no step."""
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

    Source: 10 and 0 are what GiGPO and HGPO train on (Feng et al. 2025, arXiv:2505.10978). It replaces the reward
    `environment`. A rollout that an environment error ended was not judged and gets 0.
    """

    judges: ClassVar[bool] = True
    solved: Finite = 10.0
    """Reward if the environment says that the task was solved."""
    failed: Finite = 0.0
    """Reward if it says that the task was not solved."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if not trajectory.steps or trajectory.stop in FAULTS:
            return pay_last(trajectory, 0.0)
        if "success" not in trajectory.scores:
            raise RecordError(
                f"{trajectory.describe()}: the environment did not report whether the "
                "task was solved, which reward 'outcome' reads; set `Outcome.success` when a rollout ends, or use "
                "reward 'environment'"
            )
        return pay_last(trajectory, self.solved if trajectory.scores["success"] else self.failed)


class GradedReward(Part, slot="reward"):
    """The sum of the environment's rewards if it is large enough; on the last step.

        r_last = weight * grade if grade >= min_grade, else 0;   grade = sum of the environment's rewards

    Source: ProRAG's reward for an answer, 2 F1 from 0.2 on (arXiv:2601.21912, release). It replaces the reward
    `environment`, for environments that reward partly right answers. A rollout that an environment error ended was not
    judged and gets 0.
    """

    judges: ClassVar[bool] = True
    weight: Finite = 2.0
    """What the grade is multiplied by."""
    min_grade: Finite = 0.2
    """The smallest grade that is rewarded."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        grade = math.fsum(step.reward for step in trajectory.steps)
        is_paid = grade >= self.min_grade and trajectory.stop not in FAULTS
        return pay_last(trajectory, self.weight * grade if is_paid else 0.0)


# Rewards for the way an agent works: steps, response format, invalid actions.


class StepReward(Part, slot="reward"):
    """The same amount for every step; a negative one asks for short rollouts.

    r_t = each
    """

    each: Finite = -0.01
    """Reward of each step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return (self.each,) * len(trajectory.steps)


class MalformedResponseReward(Part, slot="reward"):
    """A penalty for every malformed response, whatever the environment did with it.

        r_t = -penalty where the response is malformed, else 0

    Source: 0.1 as in GiGPO's release (arXiv:2505.10978). Choices: it is part of the reward, so discounted returns carry
    it back to earlier steps. The methods of that family have their own `invalid_penalty`, which is subtracted from the
    step's return after discounting. Use only one of the two.
    """

    penalty: NotNegative = 0.1
    """Subtracted from the reward of a malformed step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(-self.penalty if step.well_formed is False else 0.0 for step in trajectory.steps)


class RefusedActionReward(Part, slot="reward"):
    """A penalty for every well-formed response with an invalid action: the environment rejects it.

        r_t = -penalty where the response is well formed and its action refused, else 0

    Ours. Choices: if a prompt does not list the valid actions, guessing is part of the search, and this penalty teaches
    not to search (docs/adr/0006-invalid-penalty.md). `refused_penalty` of the methods stays on its step; this one is
    carried back to earlier steps by discounted returns. Use only one of the two.
    """

    penalty: NotNegative = 0.1
    """Subtracted from the reward of a step with an invalid action."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(
            -self.penalty if step.accepted is False and step.well_formed is not False else 0.0
            for step in trajectory.steps
        )


class FormatReward(Part, slot="reward"):
    """Reward for responses with the required format, whatever the environment did with the action.

        r_t = (kept if the response is well formed, else broken) / steps        `per="rollout"`
        r_t =  kept if the response is well formed, else broken                 `per="step"`
        r_last = kept if all responses are well formed, else broken             `per="whole"`

    Source: format rewards of the R1 kind (DeepSeek-R1, arXiv:2501.12948), which score one response; the last form is
    ProRAG's (arXiv:2601.21912), with 1 and -1. Choices: the default is the mean over the steps, so a longer rollout
    gets no more. The action parser of the run defines the format.
    """

    kept: Finite = 0.1
    """Reward of a well-formed response."""
    broken: Finite = 0.0
    """Reward of a malformed response."""
    per: Literal["rollout", "step", "whole"] = "rollout"
    """Reward the mean over the steps of a rollout, each step in full, or once for all of them."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if self.per == "whole":
            is_kept = all(step.well_formed for step in trajectory.steps)
            return pay_last(trajectory, self.kept if is_kept else self.broken)
        share = len(trajectory.steps) if self.per == "rollout" else 1
        return tuple((self.kept if step.well_formed else self.broken) / share for step in trajectory.steps)


# Rewards by the length of responses, in sampled tokens; the token that ends a response counts.


class OverlongReward(Part, slot="reward"):
    """A soft penalty for responses near the length limit, by L sampled tokens.

        r = 0                                       if L <= limit - buffer
        r = weight * (limit - buffer - L) / buffer  if limit - buffer < L <= limit
        r = -weight                                 if L > limit

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 13), with limit 20480 and buffer 4096. Choices: the response of
    each step is measured alone. A buffer of 0 leaves the hard limit. A response that was cut off at this limit has L =
    limit and gets -weight. The filter `zero_spread` ignores this reward: it reads the column `accuracy`, the sum of the
    judges.
    """

    limit: Count = 20480
    """Tokens above which the whole penalty applies."""
    buffer: NonNegativeInt = 4096
    """Tokens before the limit over which the penalty grows."""
    weight: NotNegative = 1.0
    """The whole penalty."""

    @model_validator(mode="after")
    def _fits(self) -> OverlongReward:
        if self.buffer > self.limit:
            raise ValueError(f"buffer is {self.buffer}, but at most the limit, {self.limit}")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        free, paid = self.limit - self.buffer, []
        for length in (len(step.response_ids) for step in trajectory.steps):
            beyond = (free - length) / self.buffer if free < length <= self.limit else -1.0
            paid.append(self.weight * (beyond if length > free else 0.0))
        return tuple(paid)


class LengthReward(Part, slot="reward"):
    """The same amount for every sampled token beyond a free number; a negative one asks for short responses.

        r = each * max(L - free, 0)

    Source: ours; the linear form of common length penalties.
    """

    each: Finite = -0.001
    """Reward of each counted token."""
    free: NonNegativeInt = 0
    """Tokens of a response that are not counted."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.each * max(len(step.response_ids) - self.free, 0) for step in trajectory.steps)


class BrevityReward(Part, slot="reward"):
    """The shorter a right answer is, the higher the reward, by L sampled tokens of the rollout; a wrong answer gets 0.

        r_last = weight * max(0, 1 - L / limit)   if solved, else 0

    Source: R^3 (2026, arXiv:2601.19620), with limit 32768. Choice: it is added to the outcome, so a right answer gets c
    * (1 + r). Whether a group is all right or all wrong is decided by the final score alone.
    """

    limit: Count = 32768
    """Tokens from which on nothing is added."""
    weight: NotNegative = 1.0
    """Reward of a right answer of length 0."""
    solved_at: float = 0.5
    """The smallest score of a right answer."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        length = sum(len(step.response_ids) for step in trajectory.steps)
        is_right = score_of(trajectory) >= self.solved_at
        return pay_last(trajectory, self.weight * max(0.0, 1 - length / self.limit) if is_right else 0.0)


class LadderReward(Part, slot="reward"):
    """Reward the number of levels of an answer that match, counted from the first; an exact answer gets 1.

        r_last = 1 if exact, else rungs[levels that matched]

    Source: RSVR of SRPO (GREAM, 2025, arXiv:2510.20815) and its release: an answer is a path of codes. 0, 1, 2, 3 and 4
    or more right codes from the first on get 0, 0.5, 0.707, 0.866, 0.95. Choices: the environment reports how many
    levels matched, and whether all did, as step info of the step with the answer; the last such step counts. If its
    response is malformed, or if there is no answer, the reward is 0.
    """

    judges: ClassVar[bool] = True
    levels: Annotated[str, Field(min_length=1)] = "matched"
    """The step info with the number of matched levels, from 0."""
    exact: Annotated[str, Field(min_length=1)] = "exact"
    """The step info that says whether the whole answer matched."""
    rungs: Annotated[tuple[float, ...], Field(min_length=1)] = (0.0, 0.5, 0.707, 0.866, 0.95)
    """Rewards of 0, 1, ... levels; the last one also counts for all further levels."""

    @model_validator(mode="after")
    def _rises(self) -> LadderReward:
        if list(self.rungs) != sorted(self.rungs):
            raise ValueError(f"rungs {list(self.rungs)} fall; a better match must not pay less")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        answered = [step for step in trajectory.steps if self.levels in step.info]
        if trajectory.stop in FAULTS or not answered or answered[-1].well_formed is False:
            return pay_last(trajectory, 0.0)
        info = answered[-1].info
        levels = info[self.levels]
        if not is_count(levels):
            raise RecordError(
                f"{trajectory.describe()}: the step info {self.levels!r} is {levels!r}, "
                "but reward 'ladder' needs the number of matched levels; let the environment give a number from 0"
            )
        return pay_last(trajectory, 1.0 if info.get(self.exact) else self.rungs[min(levels, len(self.rungs) - 1)])
