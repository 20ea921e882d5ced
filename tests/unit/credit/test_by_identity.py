"""Groupers that go by a column alone: task, rollout, role, branch."""

from __future__ import annotations

import pytest

from groupwise import RecordError
from groupwise.credit import ByBranch, ByRollout, ByTask
from groupwise.methods.mars import ByPlayer, ByRole
from tests.unit.tables import number_groups, table

FIVE_ROWS = table(
    "task rollout step reward role branch",
    ("a", 0, 0, 0.0, "planner", None),
    ("a", 0, 1, 0.0, "solver", "b1"),
    ("a", 1, 0, 0.0, "planner", "b1"),
    ("b", 0, 0, 0.0, "planner", "b1"),
    ("b", 0, 1, 0.0, None, "b2"),
)


def test_by_task_groups_all_steps_of_a_task() -> None:
    assert number_groups(ByTask(), FIVE_ROWS) == [0, 0, 0, 1, 1]


def test_by_rollout_groups_the_steps_of_one_rollout_and_never_of_two_tasks() -> None:
    assert number_groups(ByRollout(), FIVE_ROWS) == [0, 0, 1, 2, 2]


def test_by_role_groups_one_players_steps_within_the_task() -> None:
    assert number_groups(ByRole(), FIVE_ROWS) == [0, 1, 0, 2, -1]


def test_by_role_without_the_column_has_one_player() -> None:
    rows = table("task rollout step reward", ("a", 0, 0, 0.0), ("b", 0, 0, 0.0), ("a", 1, 0, 0.0))
    assert number_groups(ByRole(), rows) == [0, 0, 1]


def test_by_role_takes_integer_players() -> None:
    rows = table("task rollout step reward role", ("a", 0, 0, 0.0, 1), ("a", 0, 1, 0.0, 0), ("a", 1, 0, 0.0, 1))
    assert number_groups(ByRole(), rows) == [0, 1, 0]


def test_by_player_groups_one_players_steps_over_all_tasks() -> None:
    assert number_groups(ByPlayer(), FIVE_ROWS) == [0, 1, 0, 0, -1]
    assert ByPlayer.mixes_tasks
    assert not ByRole.mixes_tasks


def test_by_player_without_the_column_has_one_player() -> None:
    rows = table("task rollout step reward", ("a", 0, 0, 0.0), ("b", 0, 0, 0.0), ("a", 1, 0, 0.0))
    assert number_groups(ByPlayer(), rows) == [0, 0, 0]


def test_by_branch_groups_steps_of_one_branch_point_within_the_task() -> None:
    assert number_groups(ByBranch(), FIVE_ROWS) == [-1, 0, 0, 1, 2]


def test_by_branch_needs_the_column() -> None:
    rows = table("task rollout step reward role", ("a", 0, 0, 0.0, "x"))
    with pytest.raises(RecordError) as caught:
        ByBranch()(rows)
    assert str(caught.value) == (
        "the table has no column 'branch', which this method reads; from_trajectories makes it of `Step.branch`, or "
        "pass it to from_columns(branch=...). Valid: role"
    )
