"""The token table: tokens in the order of the sorted steps, whatever order their rows came in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise import RecordError, Step, StepTable, Task, Trajectory
from groupwise.data.token_table import TokenTable
from tests.unit.tables import table

ROWS = table("task rollout step reward", ("q", 1, 0, 0.0), ("q", 0, 1, 0.0), ("q", 0, 0, 0.0))
TOKENS = [
    {"response_ids": [7], "logp_behaviour": [-0.7], "entropy": [0.1]},
    {"response_ids": []},
    {"response_ids": [5, 9], "logp_behaviour": [-0.5, -0.9]},
]


def test_tokens_lie_as_the_sorted_steps_do() -> None:
    tokens = TokenTable.from_rows(ROWS, TOKENS)
    # Sorted: rollout 0 step 0 (5, 9), rollout 0 step 1 (none), rollout 1 step 0 (7).
    assert tokens.token.tolist() == [5, 9, 7]
    assert tokens.row.tolist() == [0, 0, 2]
    assert tokens.position.tolist() == [0, 1, 0]
    assert tokens.step_length.tolist() == [2, 2, 1]
    assert tokens.logp.tolist() == [-0.5, -0.9, -0.7]
    assert [math.isnan(value) for value in tokens.entropy] == [True, True, False]


def test_the_tokens_of_a_row_are_found_again() -> None:
    tokens = TokenTable.from_rows(ROWS, TOKENS)
    assert [tokens.token[tokens.find_tokens(number)].tolist() for number in range(3)] == [[7], [], [5, 9]]


def test_trajectories_give_what_their_rows_give() -> None:
    steps = tuple(
        Step(index=n, response_ids=ids, logp_behaviour=(-1.0,) * len(ids)) for n, ids in enumerate([(4,), (5, 6)])
    )
    trajectories = [Trajectory(id=str(rollout), task=Task(id="q"), rollout=rollout, steps=steps) for rollout in (1, 0)]
    made = StepTable.from_trajectories(trajectories)
    tokens = TokenTable.from_trajectories(made, trajectories)
    rows = [{"response_ids": s.response_ids, "logp_behaviour": s.logp_behaviour} for t in trajectories for s in t.steps]
    same = TokenTable.from_rows(made, rows)
    for name in ("row", "position", "token", "logp", "first_of_row", "num_of_row"):
        assert np.array_equal(getattr(tokens, name), getattr(same, name)), name
    assert tokens.token.tolist() == [4, 5, 6, 4, 5, 6]


def test_segments_of_a_step_follow_each_other_in_their_order() -> None:
    cut = table("task rollout step reward segment", ("q", 0, 0, 0.0, 1), ("q", 0, 0, 0.0, 0))
    tokens = TokenTable.from_rows(cut, [{"response_ids": [3], "segment": 1}, {"response_ids": [1, 2], "segment": 0}])
    assert tokens.token.tolist() == [1, 2, 3]
    assert tokens.row.tolist() == [0, 0, 0]
    assert tokens.position.tolist() == [0, 1, 2]
    assert tokens.token[tokens.find_tokens(0)].tolist() == [3]


def test_a_table_without_tokens_has_none() -> None:
    tokens = TokenTable.from_rows(ROWS, [{}, {}, {}])
    assert len(tokens) == 0
    assert tokens.step_length.tolist() == []


def test_what_was_not_recorded_is_told_by_its_step() -> None:
    tokens = TokenTable.from_rows(ROWS, TOKENS)
    assert tokens.column("logp", ROWS).tolist() == [-0.5, -0.9, -0.7]
    with pytest.raises(RecordError) as raised:
        tokens.column("entropy", ROWS)
    assert str(raised.value) == (
        "task 'q', rollout 0, step 0: this method reads the entropies of sampled tokens (entropy), but they were not "
        "recorded; use an engine that reports them"
    )


def test_rows_of_another_table_are_refused() -> None:
    with pytest.raises(RecordError) as raised:
        TokenTable.from_rows(ROWS, TOKENS[:2])
    assert str(raised.value) == (
        "the tokens have 2 rows, but the step table has 3; give one row of tokens per row of the table"
    )


def test_a_token_is_found_by_step_and_position() -> None:
    tokens = TokenTable.from_rows(ROWS, TOKENS)
    assert tokens.find(2, 0, ROWS) == 2
    with pytest.raises(RecordError) as raised:
        tokens.find(0, 2, ROWS)
    assert str(raised.value) == "task 'q', rollout 0, step 0 has no token 2; its tokens run from 0 to 1"
    with pytest.raises(RecordError) as raised:
        tokens.find(1, 0, ROWS)
    assert str(raised.value) == "task 'q', rollout 0, step 1 has no token 0; no sampled token of it was recorded"


def test_forced_tokens_are_none_of_the_sampled_ones() -> None:
    steps = (
        Step(index=0, response_ids=(4, 5, 6), logp_behaviour=(-4.0, -5.0, -6.0), forced=2),
        Step(index=1, response_ids=(7, 8)),
        Step(index=2, response_ids=(9,), forced=1),
    )
    trajectory = Trajectory(id="0", task=Task(id="q"), rollout=0, steps=steps)
    made = StepTable.from_trajectories([trajectory])
    rows = [
        {"response_ids": list(s.response_ids), "logp_behaviour": s.logp_behaviour, "forced": s.forced} for s in steps
    ]
    for tokens in (TokenTable.from_trajectories(made, [trajectory]), TokenTable.from_rows(made, rows)):
        assert tokens.token.tolist() == [6, 7, 8]
        assert tokens.position.tolist() == [0, 0, 1]
        assert tokens.step_length.tolist() == [1, 2, 2]
        assert tokens.logp.tolist()[:1] == [-6.0]
        assert tokens.num_of_row.tolist() == [1, 2, 0]
        assert [tokens.num_forced(step) for step in range(3)] == [2, 0, 1]
        assert tokens.find(0, 2, made) == 0
        with pytest.raises(
            RecordError,
            match="has no token 3; its tokens run from 0 to 2, the first 2 of them given, not sampled",
        ):
            tokens.find(0, 3, made)
