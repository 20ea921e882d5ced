"""Scoring a rollout: the parts' sum, their scores by name, and rewards that are not finite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import Part, RecordError, StepTable, Task, Trajectory
from groupwise.credit import (
    EnvironmentReward,
    FormatReward,
    MalformedResponseReward,
    OutcomeReward,
    OverlongReward,
    StepReward,
    ZeroSpread,
    score_trajectory,
)
from tests.unit.credit.rollouts import rollout, rollouts


class Spoilt(Part, slot="reward"):
    """Pays something odd at the second step."""

    amount: float
    """What it pays there."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.amount if step.index == 1 else 0.0 for step in trajectory.steps)


class Short(Part, slot="reward"):
    """Forgets a step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return (1.0,) * (len(trajectory.steps) - 1)


class Tip:
    """A reward that is a plain class, from a caller that needs no run file."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return (0.5,) * len(trajectory.steps)


def test_a_reward_that_is_no_part_scores_under_the_name_of_its_class() -> None:
    assert score_trajectory(rollout({}, {}), [Tip()]).scores == {"Tip": 1.0, "return": 1.0}


def test_step_rewards_are_the_sum_and_scores_tell_the_parts() -> None:
    played = rollout({"reward": 1.0, "well_formed": False}, {"reward": 2.0}, solved=True)
    scored = score_trajectory(
        played, [EnvironmentReward(weight=0.5), OutcomeReward(), MalformedResponseReward(penalty=0.25)]
    )
    assert [step.reward for step in scored.steps] == [0.25, 11.0]
    assert scored.scores == {
        "success": 1.0,
        "environment": 1.5,
        "outcome": 10.0,
        "malformed_response": -0.25,
        "accuracy": 11.5,
        "return": 11.25,
    }
    assert StepTable.from_trajectories([scored]).episode_return.tolist() == [11.25, 11.25]


def test_two_parts_of_one_kind_share_a_score() -> None:
    scored = score_trajectory(rollout({}, {}), [StepReward(each=1.0), StepReward(each=0.5)])
    assert scored.scores == {"step": 3.0, "return": 3.0}


def test_the_environment_alone_changes_nothing_but_tells_its_score() -> None:
    played = rollout({"reward": 0.1, "tokens": 2}, {"reward": 0.2}, solved=False)
    scored = score_trajectory(played, [EnvironmentReward()])
    assert scored.steps == played.steps
    assert scored.scores == {"success": 0.0, "environment": pytest.approx(0.3), "return": pytest.approx(0.3)}


def test_an_rollout_without_steps_is_paid_nothing() -> None:
    assert score_trajectory(rollout(), [EnvironmentReward(), StepReward()]).scores["return"] == 0.0


def test_no_reward_at_all_is_a_return_of_nothing() -> None:
    assert [step.reward for step in score_trajectory(rollout({"reward": 5.0}), []).steps] == [0.0]


def test_judges_and_shaping_are_told_apart_only_where_there_are_both() -> None:
    played = rollout({"reward": 1.0}, solved=True)
    assert "accuracy" not in score_trajectory(played, [EnvironmentReward(), OutcomeReward()]).scores
    assert "accuracy" not in score_trajectory(played, [StepReward(), FormatReward()]).scores
    assert score_trajectory(played, [EnvironmentReward(), StepReward()]).scores["accuracy"] == 1.0


def test_a_length_penalty_does_not_make_equal_answers_worth_comparing() -> None:
    """Both rollouts are right, one rambles: the returns differ, and the filter still drops the task."""
    rewards = [EnvironmentReward(), OverlongReward(limit=4, buffer=2)]
    answers = [rollout({"reward": 1.0, "tokens": tokens}, rollout=tokens) for tokens in (1, 4)]
    table = StepTable.from_trajectories([score_trajectory(answer, rewards) for answer in answers])
    assert table.episode_return.tolist() == [1.0, 0.0]
    assert ZeroSpread()(table).tolist() == [False, False]


@pytest.mark.parametrize("amount", [math.nan, math.inf, -math.inf, -1e300])
def test_a_part_that_pays_no_finite_number_is_named(amount: float) -> None:
    with pytest.raises(RecordError) as caught:
        score_trajectory(rollout({}, {}, {}), [StepReward(), Spoilt(amount=amount)])
    assert str(caught.value) == (
        f"task 't', rollout 3, step 1: reward 'tests.unit.credit.test_scoring:Spoilt' is {amount}; rewards are "
        "finite and at most 1e+100: fix what computes it (a missing reward is not a zero)"
    )


@pytest.mark.parametrize("amount", [1e100, -1e100])
def test_the_largest_reward_may_be_paid(amount: float) -> None:
    assert score_trajectory(rollout({}, {}), [Spoilt(amount=amount)]).scores["return"] == amount


def test_a_part_must_pay_every_step() -> None:
    with pytest.raises(RecordError) as caught:
        score_trajectory(rollout({}, {}), [Short()])
    assert str(caught.value) == (
        "task 't', rollout 3: reward 'tests.unit.credit.test_scoring:Short' gave 1 numbers for 2 steps; give one per "
        "step"
    )


def test_an_rollout_with_an_outcome_of_its_own_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        score_trajectory(rollout({"reward": 1.0}, outcome=0.5), [EnvironmentReward()])
    assert str(caught.value) == (
        "task 't', rollout 3: it has an outcome of its own, 0.5, which would replace the rewards of its steps; leave "
        "the outcome out, or the rewards"
    )


REWARDS = st.lists(
    st.sampled_from(
        [
            EnvironmentReward(weight=0.5),
            OutcomeReward(),
            StepReward(),
            MalformedResponseReward(),
            FormatReward(),
            OverlongReward(limit=9, buffer=5),
        ]
    ),
    min_size=1,
    max_size=5,
)


@given(rollouts(), REWARDS, st.randoms(use_true_random=False))
def test_the_order_of_the_parts_changes_no_bit(played: Trajectory, rewards: list[Any], rng: Any) -> None:
    shuffled = rng.sample(rewards, len(rewards))
    assert [step.reward for step in score_trajectory(played, rewards).steps] == [
        step.reward for step in score_trajectory(played, shuffled).steps
    ]


@given(rollouts(), REWARDS)
def test_the_return_is_what_the_steps_and_what_the_parts_earn(played: Trajectory, rewards: list[Any]) -> None:
    scored = score_trajectory(played, rewards)
    kinds = {part.config()["kind"] for part in rewards}
    assert scored.scores["return"] == pytest.approx(sum(step.reward for step in scored.steps), abs=1e-9)
    assert scored.scores["return"] == pytest.approx(sum(scored.scores[kind] for kind in kinds), abs=1e-9)


@given(rollouts(), REWARDS)
def test_only_rewards_and_scores_change(played: Trajectory, rewards: list[Any]) -> None:
    scored = score_trajectory(played, rewards)
    back = replace(
        scored,
        steps=tuple(replace(new, reward=old.reward) for new, old in zip(scored.steps, played.steps, strict=True)),
        scores=played.scores,
    )
    assert back == played
    assert scored.scores["success"] == played.scores["success"]


@given(rollouts(), REWARDS)
def test_an_rollout_is_paid_by_itself(played: Trajectory, rewards: list[Any]) -> None:
    other = replace(played, task=Task(id="other"), rollout=0)
    assert score_trajectory(other, rewards).scores == score_trajectory(played, rewards).scores
