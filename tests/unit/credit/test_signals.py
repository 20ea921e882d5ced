"""Signals on rollouts of a few steps."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import ConfigError, RecordError
from groupwise.credit import (
    ByTask,
    Centred,
    ColumnSignal,
    EpisodeReturn,
    Penalised,
    PenalisedRefusals,
    ReturnToGo,
    StepRewardSignal,
)
from groupwise.methods.mars import ByRole
from tests.unit.tables import single_steps, table, walks

RAGGED = walks("abc", "a", "ab", "abc", rewards=[[1, 2, 4], [8], [1, 3], [0, 0, 2]])


def test_the_episode_return_is_the_sum_of_an_rollouts_rewards() -> None:
    assert EpisodeReturn()(RAGGED).tolist() == [7, 7, 7, 8, 4, 4, 2, 2, 2]


def test_the_step_reward_is_the_steps_own() -> None:
    assert StepRewardSignal()(RAGGED).tolist() == [1, 2, 4, 8, 1, 3, 0, 0, 2]


def test_the_return_to_go_discounts_later_rewards_within_the_rollout() -> None:
    # Rollout 0: 4; 2 + 4/2 = 4; 1 + 4/2 = 3. Rollout 1: 8. Rollout 2: 3; 1 + 3/2 = 2.5. Rollout 3: 2; 1; 0.5.
    assert ReturnToGo(gamma=0.5)(RAGGED).tolist() == [3, 4, 4, 8, 2.5, 3, 0.5, 1, 2]


def test_without_a_discount_the_return_to_go_is_the_sum_of_what_follows() -> None:
    assert ReturnToGo(gamma=1)(RAGGED).tolist() == [7, 6, 4, 8, 4, 3, 2, 2, 2]


def test_with_a_discount_of_0_only_the_steps_own_reward_counts() -> None:
    assert ReturnToGo(gamma=0)(RAGGED).tolist() == StepRewardSignal()(RAGGED).tolist()


def test_the_return_to_go_goes_by_index_not_by_row() -> None:
    rows = table("task rollout step reward", ("q", 0, 2, 4.0), ("q", 0, 0, 1.0), ("q", 0, 1, 2.0))
    assert ReturnToGo(gamma=0.5)(rows).tolist() == [3, 4, 4]


def test_a_missing_row_is_skipped_without_a_discount_of_its_own() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 1.0), ("q", 0, 5, 2.0))
    assert ReturnToGo(gamma=0.5)(rows).tolist() == [2, 2]


def test_rollouts_of_two_tasks_are_summed_apart() -> None:
    rows = table("task rollout step reward", ("p", 0, 0, 1.0), ("q", 0, 1, 2.0))
    assert ReturnToGo(gamma=1)(rows).tolist() == [1, 2]


ROLES = table(
    "task rollout step reward role",
    ("q", 0, 0, 1.0, "a"),
    ("q", 0, 1, 2.0, "b"),
    ("q", 0, 2, 4.0, "a"),
    ("q", 0, 3, 8.0, None),
    ("q", 0, 4, 16.0, None),
    ("q", 1, 0, 32.0, "a"),
    ("q", 1, 1, 64.0, None),
)


def test_a_players_return_to_go_counts_the_players_own_later_steps() -> None:
    # a: 4, and 1 + 4/2 = 3. b: 2. Steps of no player: 16, and 8 + 16/2 = 16. The other rollout: 32, and 64.
    assert ReturnToGo(gamma=0.5, within="role")(ROLES).tolist() == [3, 2, 4, 16, 16, 32, 64]


def test_within_the_rollout_players_are_not_told_apart() -> None:
    assert ReturnToGo(gamma=1)(ROLES).tolist() == [31, 30, 28, 24, 16, 96, 64]


def test_without_roles_a_players_return_is_the_rollouts() -> None:
    assert ReturnToGo(gamma=0.5, within="role")(RAGGED).tolist() == [3, 4, 4, 8, 2.5, 3, 0.5, 1, 2]


def test_another_signal_can_be_summed() -> None:
    # Rewards 1, 3, 5 have the mean 3: -2, 0, 2; summed from the end 0, 2, 2.
    rows = walks("abc", rewards=[[1, 3, 5]])
    assert ReturnToGo(gamma=1, of=Centred(of=StepRewardSignal(), by=ByTask()))(rows).tolist() == [0, 2, 2]


def test_a_table_without_rows_has_no_returns() -> None:
    empty = table("task rollout step reward", ("q", 0, 0, 0.0))
    empty = type(empty).from_columns(**{name: np.zeros(0, dtype=int) for name in ("task", "rollout", "step", "reward")})
    assert ReturnToGo(gamma=0.5)(empty).tolist() == []


@pytest.mark.parametrize(
    ("gamma", "message"),
    [(-0.1, "greater than or equal to 0, found -0.1"), (1.1, "less than or equal to 1, found 1.1")],
)
def test_the_discount_lies_between_0_and_1(gamma: float, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReturnToGo(gamma=gamma)
    assert str(caught.value) == f"ReturnToGo: gamma: expected a number {message}"


VALIDITY = table(
    "task rollout step reward well_formed accepted",
    ("q", 0, 0, 1.0, False, True),
    ("q", 0, 1, 2.0, True, False),
    ("q", 0, 2, 4.0, False, False),
)


def test_a_malformed_step_loses_the_penalty_and_passes_none_of_it_back_and_a_refused_one_loses_nothing() -> None:
    # Returns to go 3, 4, 4; a quarter off the first and the last, after discounting.
    assert Penalised(of=ReturnToGo(gamma=0.5), penalty=0.25)(VALIDITY).tolist() == [2.75, 4, 3.75]


def test_the_form_alone_is_enough_for_the_penalty_on_malformed_steps() -> None:
    rows = table("task rollout step reward well_formed", ("q", 0, 0, 1.0, False), ("q", 0, 1, 2.0, True))
    assert Penalised(of=StepRewardSignal(), penalty=0.25)(rows).tolist() == [0.75, 2]


def test_a_penalty_of_0_changes_nothing() -> None:
    assert Penalised(of=StepRewardSignal(), penalty=0)(VALIDITY).tolist() == [1, 2, 4]


def test_a_table_that_says_nothing_of_forms_has_no_malformed_steps() -> None:
    assert Penalised(of=StepRewardSignal(), penalty=0.25)(RAGGED).tolist() == StepRewardSignal()(RAGGED).tolist()


RECORDED_BEFORE = table("task rollout step reward valid", ("q", 0, 0, 1.0, False), ("q", 0, 1, 2.0, True))


def test_valid_alone_does_not_say_which_steps_are_malformed_and_the_penalty_refuses_it_by_name() -> None:
    with pytest.raises(RecordError) as caught:
        Penalised(of=StepRewardSignal(), penalty=0.25)(RECORDED_BEFORE)
    assert str(caught.value) == (
        "the table has a column 'valid' but no 'well_formed', which the penalty of 0.25 on malformed responses "
        "reads. `valid` is also false for actions that the environment rejected. Record 'well_formed' and 'accepted', "
        "or set the penalty to 0 (on the command line: `--method hgpo:invalid_penalty=0`)"
    )
    assert Penalised(of=StepRewardSignal(), penalty=0)(RECORDED_BEFORE).tolist() == [1, 2]


def test_a_penalty_on_refusals_leaves_malformed_steps_alone() -> None:
    # Of the three, the second alone is well formed and refused.
    assert PenalisedRefusals(of=ReturnToGo(gamma=0.5), penalty=0.25)(VALIDITY).tolist() == [3, 3.75, 4]
    assert PenalisedRefusals(of=StepRewardSignal(), penalty=0)(RAGGED).tolist() == StepRewardSignal()(RAGGED).tolist()


def test_a_well_formed_step_that_was_accepted_loses_nothing() -> None:
    rows = table(
        "task rollout step reward well_formed accepted", ("q", 0, 0, 1.0, True, True), ("q", 0, 1, 2.0, True, False)
    )
    assert PenalisedRefusals(of=StepRewardSignal(), penalty=0.25)(rows).tolist() == [1, 1.75]


def test_without_a_word_on_forms_every_refusal_counts() -> None:
    said = table("task rollout step reward accepted", ("q", 0, 0, 1.0, False), ("q", 0, 1, 2.0, True))
    assert PenalisedRefusals(of=StepRewardSignal(), penalty=0.25)(said).tolist() == [0.75, 2]


def test_a_penalty_on_refusals_asks_for_the_column_that_says_what_was_refused() -> None:
    with pytest.raises(RecordError) as caught:
        PenalisedRefusals(of=StepRewardSignal(), penalty=0.25)(RECORDED_BEFORE)
    assert str(caught.value) == (
        "the table has no column 'accepted', which this method reads; from_trajectories makes it of `Step.accepted`, "
        "where every step says so, or pass it to from_columns(accepted=...). Valid: valid"
    )


def test_a_negative_penalty_would_be_a_reward() -> None:
    with pytest.raises(ConfigError) as caught:
        Penalised(of=StepRewardSignal(), penalty=-0.1)
    assert str(caught.value) == "Penalised: penalty: expected a number greater than or equal to 0, found -0.1"


def test_centring_takes_the_groups_mean_off_and_leaves_steps_of_no_group_alone() -> None:
    # Player a: 1, 4, 32, mean 37/3. Player b: one step, mean 2.
    centred = Centred(of=StepRewardSignal(), by=ByRole())(ROLES)
    assert centred.tolist() == pytest.approx([1 - 37 / 3, 0, 4 - 37 / 3, 8, 16, 32 - 37 / 3, 64], rel=1e-15)


def test_a_column_is_read_by_name_in_the_order_of_the_table() -> None:
    rows = table("task rollout step reward surprise", ("q", 1, 0, 0.0, 7), ("q", 0, 0, 0.0, 0.5))
    assert ColumnSignal(name="surprise")(rows).tolist() == [0.5, 7]


def test_a_column_of_no_numbers_is_refused_with_its_name() -> None:
    rows = table("task rollout step reward surprise", ("q", 0, 0, 0.0, "high"))
    with pytest.raises(RecordError) as caught:
        ColumnSignal(name="surprise")(rows)
    assert str(caught.value) == "column 'surprise', row 0: 'high' is not a number; give every row a number"


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        ColumnSignal(name="surprise")(single_steps([1]))
    assert str(caught.value) == (
        "the table has no column 'surprise', which this method reads; pass it to from_columns(surprise=...). "
        "Valid: (none)"
    )
