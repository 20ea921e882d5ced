"""Each reward: worked values, and what a loop from its source pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Part, RecordError, StopReason, Trajectory
from groupwise.credit import (
    BrevityReward,
    EnvironmentReward,
    FormatReward,
    FunctionReward,
    GradedReward,
    LadderReward,
    LengthReward,
    MalformedResponseReward,
    OutcomeReward,
    OverlongReward,
    RefusedActionReward,
    StepReward,
)
from groupwise.parts.part import Slot, load_catalogue
from tests.oracles import rewards as oracle
from tests.unit.credit.rollouts import AMOUNTS, rollout, rollouts


def test_the_environments_own_rewards_are_weighed() -> None:
    assert EnvironmentReward(weight=2.0)(rollout({"reward": 0.5}, {"reward": -1.0})) == (1.0, -2.0)
    assert EnvironmentReward()(rollout({"reward": 0.1})) == (0.1,)


@pytest.mark.parametrize(("solved", "paid"), [(True, (0.0, 0.0, 10.0)), (False, (0.0, 0.0, -1.0))])
def test_an_outcome_is_paid_on_the_last_step(solved: bool, paid: tuple[float, ...]) -> None:
    played = rollout({"reward": 3.0}, {"reward": 3.0}, {"reward": 3.0}, solved=solved)
    assert OutcomeReward(failed=-1.0)(played) == paid


def test_an_rollout_that_a_fault_ended_is_paid_no_outcome() -> None:
    for stop in (StopReason.ERROR, StopReason.TIMEOUT):
        assert OutcomeReward(failed=-1.0)(rollout({}, {}, stop=stop)) == (0.0, 0.0)


def test_an_outcome_that_the_environment_did_not_tell_is_asked_for() -> None:
    with pytest.raises(RecordError) as caught:
        OutcomeReward()(rollout({}))
    assert str(caught.value) == (
        "task 't', rollout 3: the environment did not report whether the task was solved, which reward 'outcome' "
        "reads; set `Outcome.success` when a rollout ends, or use reward 'environment'"
    )


def test_every_step_costs_the_same() -> None:
    assert StepReward(each=-0.25)(rollout({"accepted": False}, {"reward": 9.0})) == (-0.25, -0.25)


CONDUCT = rollout({"well_formed": False}, {}, {"accepted": False}, {"well_formed": False, "accepted": False})


def test_a_malformed_response_is_punished_whatever_became_of_it_and_a_refused_action_is_not() -> None:
    assert MalformedResponseReward()(CONDUCT) == (-0.1, 0.0, 0.0, -0.1)


def test_refused_actions_have_a_penalty_of_their_own() -> None:
    assert RefusedActionReward(penalty=0.25)(CONDUCT) == (0.0, 0.0, -0.25, 0.0)


def test_what_a_recording_does_not_say_is_not_punished() -> None:
    unsaid = rollout({"well_formed": None, "accepted": None, "recorded_valid": False})
    assert MalformedResponseReward()(unsaid) == RefusedActionReward()(unsaid) == (0.0,)


def test_the_form_is_paid_for_whatever_the_environment_made_of_it() -> None:
    played = rollout({"accepted": False}, {"well_formed": False})
    assert FormatReward(kept=1.0, broken=-0.5)(played) == (0.5, -0.25)
    assert FormatReward(kept=1.0, broken=-0.5, per="step")(played) == (1.0, -0.5)


def test_one_malformed_response_breaks_the_whole_form() -> None:
    part = FormatReward(kept=1.0, broken=-1.0, per="whole")
    assert part(rollout({}, {"accepted": False}, {})) == (0.0, 0.0, 1.0)
    assert part(rollout({}, {"well_formed": False}, {})) == (0.0, 0.0, -1.0)
    assert part(rollout()) == ()


def test_an_answer_is_paid_from_a_grade_on() -> None:
    """numbers, ProRAG: F1 of 1, .5, .1 and 0, the last malformed, earn 3, 2, 1 and -1."""
    form, earned = FormatReward(kept=1.0, broken=-1.0, per="whole"), []
    for grade, is_formed in ((1.0, True), (0.5, True), (0.1, True), (0.0, False)):
        played = rollout({}, {"reward": grade, "well_formed": is_formed})
        earned.append(sum(GradedReward()(played)) + sum(form(played)))
    assert earned == [3.0, 2.0, 1.0, -1.0]
    assert GradedReward()(rollout({"reward": 0.1}, {"reward": 0.1})) == (0.0, 0.4), "enough is enough"


def test_long_rollouts_earn_no_more_by_their_form() -> None:
    for length in (1, 2, 8):
        assert sum(FormatReward(kept=1.0)(rollout(*({},) * length))) == 1.0


@pytest.mark.parametrize(
    ("length", "paid"), [(0, 0.0), (80, 0.0), (85, -0.25), (90, -0.5), (100, -1.0), (101, -1.0), (500, -1.0)]
)
def test_the_overlong_penalty_is_that_of_equation_13(length: int, paid: float) -> None:
    """numbers, DAPO: limit 100, buffer 20; from 80 tokens on each costs a twentieth."""
    part = OverlongReward(limit=100, buffer=20)
    assert part(rollout({"tokens": length})) == (pytest.approx(paid, abs=1e-12),)
    assert OverlongReward(limit=100, buffer=20, weight=4.0)(rollout({"tokens": length})) == (pytest.approx(4 * paid),)


def test_without_a_buffer_the_limit_is_hard() -> None:
    part = OverlongReward(limit=4, buffer=0)
    assert part(rollout({"tokens": 4}, {"tokens": 5})) == (0.0, -1.0)


def test_the_published_limits_are_the_defaults() -> None:
    assert (OverlongReward().limit, OverlongReward().buffer, OverlongReward().weight) == (20480, 4096, 1.0)


def test_a_buffer_wider_than_the_limit_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        OverlongReward(limit=10, buffer=11)
    assert str(caught.value) == "OverlongReward: buffer is 11, but at most the limit, 10"


def test_tokens_beyond_the_free_ones_are_paid_for() -> None:
    assert LengthReward(each=-0.5, free=2)(rollout({"tokens": 5}, {"tokens": 2}, {})) == (-1.5, 0.0, 0.0)


@pytest.mark.parametrize(("length", "paid"), [(8192, 0.75), (4096, 0.875), (0, 1.0), (32768, 0.0), (40000, 0.0)])
def test_a_right_answer_is_paid_for_its_brevity(length: int, paid: float) -> None:
    """numbers, R^3: 1 - 8192 / 32768 = 0.75."""
    assert BrevityReward()(rollout({}, {"tokens": length}, solved=True)) == (0.0, paid)
    assert BrevityReward()(rollout({}, {"tokens": length}, solved=False)) == (0.0, 0.0)


def test_an_answer_at_the_threshold_is_right() -> None:
    """Two tokens of four leave a half; the environment says what was earned, and not whether the task was solved."""
    for earned, paid in ((0.5, 0.5), (0.49, 0.0)):
        assert BrevityReward(limit=4)(rollout({"reward": earned, "tokens": 2})) == (paid,)


@pytest.mark.parametrize("amount", ["nan", "inf"])
def test_no_part_can_be_set_to_pay_what_is_not_finite(amount: str) -> None:
    for part in (EnvironmentReward, OutcomeReward, StepReward, FormatReward, LengthReward):
        field = next(name for name, info in part.model_fields.items() if info.annotation is float)
        with pytest.raises(ConfigError, match="finite number"):
            part(**{field: float(amount)})


def as_rows(played: Trajectory) -> list[dict[str, Any]]:
    return [
        {
            "reward": step.reward,
            "well_formed": step.well_formed,
            "accepted": step.accepted,
            "length": len(step.response_ids),
            "info": dict(step.info),
        }
        for step in played.steps
    ]


COUNTS = st.integers(0, 12)
CASES: dict[str, tuple[Callable[..., Part], Callable[..., list[float]], dict[str, st.SearchStrategy[Any]]]] = {
    "environment": (EnvironmentReward, oracle.environment, {"weight": AMOUNTS}),
    "outcome": (
        lambda solved_pays, failed_pays: OutcomeReward(solved=solved_pays, failed=failed_pays),
        oracle.outcome,
        {"solved_pays": AMOUNTS, "failed_pays": AMOUNTS},
    ),
    "graded": (
        lambda weight, min_grade: GradedReward(weight=weight, min_grade=min_grade),
        oracle.grade,
        {"weight": AMOUNTS, "min_grade": AMOUNTS},
    ),
    "step": (StepReward, oracle.step, {"each": AMOUNTS}),
    "malformed_response": (MalformedResponseReward, oracle.malformed_response, {"penalty": st.floats(0, 10)}),
    "refused_action": (RefusedActionReward, oracle.refused_action, {"penalty": st.floats(0, 10)}),
    "format": (
        lambda kept, broken, per: FormatReward(kept=kept, broken=broken, per=per),
        oracle.form,
        {"kept": AMOUNTS, "broken": AMOUNTS, "per": st.sampled_from(["rollout", "step", "whole"])},
    ),
    "overlong": (
        lambda limit, buffer, weight: OverlongReward(limit=limit, buffer=buffer, weight=weight),
        oracle.overlong,
        {"limit": st.just(9), "buffer": st.integers(0, 9), "weight": st.floats(0, 10)},
    ),
    "length": (LengthReward, oracle.length, {"each": AMOUNTS, "free": COUNTS}),
    "brevity": (
        lambda limit, weight: BrevityReward(limit=limit, weight=weight),
        oracle.brevity,
        {"limit": st.integers(1, 20), "weight": st.floats(0, 10)},
    ),
    "function": (
        lambda weight: FunctionReward(function="tests.unit.credit.own_functions:count_tokens", weight=weight),
        oracle.tokens,
        {"weight": AMOUNTS},
    ),
    "ladder": (
        lambda rungs: LadderReward(rungs=rungs),
        oracle.ladder,
        {"rungs": st.lists(AMOUNTS, min_size=1, max_size=5).map(sorted)},
    ),
}


def test_every_reward_has_an_oracle() -> None:
    assert CASES.keys() == load_catalogue("reward").keys() == load_catalogue("reward").keys()


@pytest.mark.parametrize("kind", CASES)
@given(data=st.data(), played=rollouts())
def test_a_reward_pays_what_the_loop_pays(kind: str, data: st.DataObject, played: Trajectory) -> None:
    make, expected, settings = CASES[kind]
    chosen = {name: data.draw(strategy, label=name) for name, strategy in settings.items()}
    paid = make(**chosen)(played)  # type: ignore[operator]
    solved = bool(played.scores["success"])
    assert paid == pytest.approx(expected(as_rows(played), solved, **chosen), rel=1e-9, abs=1e-12)


NEEDED = {"function": {"function": "tests.unit.credit.own_functions:count_tokens"}}
"""Fields that have no default."""


@pytest.mark.parametrize("kind", load_catalogue("reward"))
def test_a_reward_is_named_for_its_class_and_comes_back_from_its_configuration(kind: str) -> None:
    part = load_catalogue("reward")[kind](**NEEDED.get(kind, {}))
    assert type(part).__name__ == "".join(word.title() for word in kind.split("_")) + "Reward"
    assert part.config()["kind"] == kind
    assert Slot("reward").fill(part.config()) == part
