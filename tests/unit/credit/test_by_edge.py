"""Grouping by edge: the last states, the action and the state that followed."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import ConfigError, RecordError, StepTable
from groupwise.methods.salt import ByEdge
from tests.unit.tables import columns, number_groups, table, walks


def moves(*rollouts: list[tuple[Any, Any]], **extra: list[Any]) -> StepTable:
    """One task; each rollout is a list of (state, action)."""
    rows = [
        ("q", number, index, state, action, 0.0)
        for number, rollout in enumerate(rollouts)
        for index, (state, action) in enumerate(rollout)
    ]
    return StepTable.from_columns(**columns("task rollout step state action reward", *rows), **extra)


def labels(rows: StepTable, **fields: Any) -> list[int]:
    return number_groups(ByEdge(**fields), rows)


def test_equal_state_action_and_next_state_are_one_edge() -> None:
    # Edges (START,a,go,b) (a,b,go,END) in both rollouts.
    rows = moves([("a", "go"), ("b", "go")], [("a", "go"), ("b", "go")])
    assert labels(rows) == [0, 1, 0, 1]


def test_another_action_is_another_edge() -> None:
    rows = moves([("a", "go"), ("b", "x")], [("a", "stay"), ("b", "x")])
    assert labels(rows) == [0, 1, 2, 1]


def test_another_next_state_is_another_edge_unless_it_is_not_asked_for() -> None:
    rows = moves([("a", "go"), ("b", "x")], [("a", "go"), ("c", "x")])
    assert labels(rows) == [0, 1, 2, 3]
    assert labels(rows, next_state=False) == [0, 1, 0, 2]


def test_the_end_of_an_rollout_is_a_next_state_of_its_own() -> None:
    rows = moves([("a", "go"), ("a", "go")], [("a", "go")])
    # Without history: (a,go,a), (a,go,END), (a,go,END).
    assert labels(rows, history=0) == [0, 1, 1]
    assert labels(rows, history=0, next_state=False) == [0, 0, 0]


def test_the_start_of_an_rollout_is_a_state_before_of_its_own() -> None:
    rows = moves([("a", "go"), ("a", "go"), ("a", "go")], [("a", "go")])
    # History 1: (START,a) (a,a) (a,a) | (START,a)
    assert labels(rows, history=1, next_state=False) == [0, 1, 1, 0]
    # History 2: (START,START,a) (START,a,a) (a,a,a) | (START,START,a)
    assert labels(rows, history=2, next_state=False) == [0, 1, 2, 0]
    # History 0 forgets where it came from.
    assert labels(rows, history=0, next_state=False) == [0, 0, 0, 0]


def test_history_reaches_as_far_back_as_it_says() -> None:
    # The last steps share the state and the one before, and differ two before.
    rows = moves([("x", "g"), ("m", "g"), ("e", "g")], [("y", "g"), ("m", "g"), ("e", "g")])
    # Edges at history 1: (START,x,m) (x,m,e) (m,e,END) | (START,y,m) (y,m,e) (m,e,END).
    assert labels(rows, history=1) == [0, 1, 2, 3, 4, 2]
    assert labels(rows, history=2) == [0, 1, 2, 3, 4, 5]


def test_a_boundary_is_not_the_first_state_of_the_table() -> None:
    # "a" is the first state: its code must differ from the boundary's. Second rollout: b after a, not after START.
    rows = moves([("a", "go"), ("b", "go")], [("b", "go")])
    assert labels(rows, next_state=False) == [0, 1, 2]
    # As a next state: (a,go,a) and (a,go,END) differ.
    assert labels(moves([("a", "go"), ("a", "stop")], [("a", "go")])) == [0, 1, 2]


def test_text_is_compared_without_case_and_white_space() -> None:
    rows = moves([("Red  Room", "Go\tLeft ")], [(" red room", "go left")], [("redroom", "go left")])
    assert labels(rows) == [0, 0, 1]


def test_states_that_are_not_text_are_compared_as_they_are() -> None:
    rows = moves([(("A", 1), "go")], [(("a", 1), "go")], [(("A", 1), "go")])
    assert labels(rows) == [0, 1, 0]


def test_a_state_or_action_of_none_leaves_the_step_unmerged() -> None:
    rows = moves([(None, "go")], [("a", None)], [("a", "go")], [("a", "go")])
    assert labels(rows) == [-1, -1, 0, 0]


def test_a_state_of_none_before_or_after_leaves_the_step_unmerged() -> None:
    rows = moves([("a", "go"), (None, "go"), ("b", "go"), ("c", "go")])
    # After a stands None; b comes after None; c comes after b and ends.
    assert labels(rows) == [-1, -1, -1, 0]
    assert labels(rows, next_state=False) == [0, -1, -1, 1]
    assert labels(rows, history=0) == [-1, -1, 0, 1]


def test_a_missing_row_in_the_window_leaves_the_step_unmerged() -> None:
    rows = table(
        "task rollout step state action reward",
        *(("q", 0, index, "s", "go", 0.0) for index in (0, 1, 3, 4, 5)),
    )
    # 1 has no next row, 3 has no row before.
    assert labels(rows) == [0, -1, -1, 1, 2]
    # Two states back: 4 reaches over the gap too.
    assert labels(rows, history=2, next_state=False) == [0, 1, -1, -1, 2]


def test_an_rollout_recorded_from_the_middle_starts_at_the_boundary() -> None:
    rows = table(
        "task rollout step state action reward",
        ("q", 0, 0, "s", "go", 0.0),
        ("q", 1, 7, "s", "go", 0.0),
    )
    assert labels(rows) == [0, 0]


def test_a_recorded_next_state_takes_the_place_of_the_following_row() -> None:
    paths = ([("a", "go"), ("b", "x")], [("a", "go"), ("c", "x")], [("a", "go")])
    rows = moves(*paths, next_state=["B ", None, None, "end", "b"])
    # (a,go,b) from the record | (b,x,END) | (a,go,c) from the row | (c,x,end) new | (a,go,b) from the record.
    assert labels(rows) == [0, 1, 2, 3, 0]
    assert labels(rows, next_state=False) == [0, 1, 0, 2, 0]


def test_a_recorded_next_state_nobody_stood_in_is_told_apart_from_all_states() -> None:
    rows = moves([("a", "go")], [("a", "go")], [("a", "go")], [("a", "go")], next_state=["x", "y", "x", "a"])
    assert labels(rows) == [0, 1, 0, 2]


def test_a_recorded_next_state_fills_a_gap() -> None:
    rows = table(
        "task rollout step state action reward next_state",
        ("q", 0, 0, "s", "go", 0.0, "s"),
        ("q", 0, 2, "s", "go", 0.0, None),
    )
    assert labels(rows, history=0) == [0, 1]


def test_states_that_are_equal_after_normalising_have_one_code_in_the_record_too() -> None:
    # "S" and "s" are two states of the table and one normalised state.
    rows = moves([("S", "go"), ("s", "go"), ("t", "go")], [("s", "go")], next_state=[None, None, None, "S"])
    # (S,go,s) (s,go,t) (t,go,END) | (s,go,S): the first and the last are one edge.
    assert labels(rows, history=0) == [0, 1, 2, 0]


def test_edges_of_two_tasks_stay_apart() -> None:
    rows = table("task rollout step state action reward", ("p", 0, 0, "s", "go", 0.0), ("q", 0, 0, "s", "go", 0.0))
    assert labels(rows) == [0, 1]


def test_edges_need_the_actions() -> None:
    with pytest.raises(RecordError) as caught:
        ByEdge()(walks(["a"]))
    assert str(caught.value) == (
        "the table has no column 'action', which this method reads; from_trajectories makes it of `Step.action`, or "
        "pass it to from_columns(action=...). Valid: (none)"
    )


def test_history_counts_from_0() -> None:
    with pytest.raises(ConfigError) as caught:
        ByEdge(history=-1)
    assert str(caught.value) == "ByEdge: history: expected a number greater than or equal to 0, found -1"


def test_an_action_that_cannot_be_compared_is_named_by_its_column() -> None:
    with pytest.raises(RecordError) as caught:
        ByEdge()(moves([("a", ["go"])]))
    assert str(caught.value) == (
        "column 'action', row 0: a list cannot be compared by equality; "
        "use text, a number, a tuple of these, or None for 'not comparable'"
    )


def test_recorded_next_states_that_differ_stay_apart_also_among_known_states() -> None:
    # Both rollouts go from a; the records say that one came to b and the other to c, which are states of the task.
    rows = moves([("a", "go"), ("b", "x")], [("a", "go"), ("c", "x")], next_state=["b", None, "c", None])
    assert labels(rows, history=0) == [0, 1, 2, 3]
