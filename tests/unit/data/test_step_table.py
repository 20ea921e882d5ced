"""The step table: order, identity, segments, and what parts may ask it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise import RecordError, StepTable, methods
from tests.unit.tables import columns, table, walks

BASIC = {"task": ["t", "t"], "rollout": [0, 1], "step": [0, 0], "reward": [1.0, 0.0]}


def refusal(**changes: object) -> str:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(**(BASIC | changes))
    return str(caught.value)


def make_shuffled_table() -> StepTable:
    return table(
        "task rollout step state reward",
        ("b", "y", 0, "s1", 5.0),
        ("a", "y", 1, "s2", 4.0),
        ("a", "x", 0, "s1", 1.0),
        ("a", "y", 0, None, 3.0),
        ("a", "x", 2, "s1", 2.0),
    )


def test_steps_are_sorted_by_task_rollout_and_index_whatever_the_row_order() -> None:
    rows = make_shuffled_table()
    assert rows.task.tolist() == [0, 0, 0, 0, 1]
    assert rows.rollout.tolist() == [0, 0, 1, 1, 2]
    assert rows.step.tolist() == [0, 2, 0, 1, 0]
    assert rows.reward.tolist() == [1, 2, 3, 4, 5]
    assert len(rows) == 5


def test_each_row_knows_its_step() -> None:
    assert make_shuffled_table().step_of_row.tolist() == [4, 3, 0, 2, 1]


def test_ids_are_kept_for_tasks_and_for_each_rollout_within_its_task() -> None:
    rows = make_shuffled_table()
    assert rows.task_ids == ["a", "b"]
    assert rows.rollout_ids == ["x", "y", "y"]


def test_states_are_coded_by_first_appearance_in_the_table_not_in_the_rows() -> None:
    rows = make_shuffled_table()
    assert rows.state_keys == ["s1", "s2"]
    assert rows.state.tolist() == [0, 0, -1, 1, 0]


def test_tuples_are_states_and_differ_from_text() -> None:
    rows = walks([("a", 1), "a", ("a", 1), ("a", 2), None])
    assert rows.state_keys == [("a", 1), "a", ("a", 2)]
    assert rows.state.tolist() == [0, 1, 0, 2, -1]


def test_a_table_without_states_compares_nothing_by_state() -> None:
    rows = StepTable.from_columns(**BASIC)
    assert rows.state.tolist() == [-1, -1]
    assert rows.state_keys == []


def test_numpy_columns_and_lists_give_the_same_table() -> None:
    lists = columns("task rollout step state reward", ("t", 1, 0, "b", 1.0), ("t", 0, 0, "a", 2.0))
    arrays = {name: np.array(column) for name, column in lists.items()}
    for rows in (StepTable.from_columns(**lists), StepTable.from_columns(**arrays)):
        assert rows.reward.tolist() == [2, 1]
        assert rows.state_keys == ["a", "b"]
        assert rows.task_ids == ["t"]
        assert rows.rollout_ids == [0, 1]


def test_segments_of_a_step_are_one_step_whose_rewards_and_tokens_are_summed() -> None:
    rows = table(
        "task rollout step segment state reward tokens action",
        ("t", 0, 1, 0, "s", 4.0, 7, "stop"),
        ("t", 0, 0, 1, "later", 2.0, 3, "cut"),
        ("t", 0, 0, 0, "first", 1.0, 5, "go"),
    )
    assert rows.reward.tolist() == [3, 4]
    assert rows.tokens.tolist() == [8, 7]
    assert rows.step_of_row.tolist() == [1, 0, 0]
    assert rows.state_keys == ["first", "s"]
    assert rows.extra["action"].tolist() == ["go", "stop"]
    assert "segment" not in rows.extra


def test_segments_are_added_up_in_their_own_order_so_shuffled_rows_give_the_same_bits() -> None:
    amounts = [(0, 0.1), (1, 0.2), (2, 0.3), (3, 1e16), (4, -1e16)]
    sums = {
        table("task rollout step segment reward", *(("t", 0, 0, number, amount) for number, amount in order))
        .reward[0]
        .item()
        for order in (amounts, amounts[::-1], amounts[2:] + amounts[:2])
    }
    # In the order of the segments 0.6 is lost against 1e16 up to its spacing of 2, then 1e16 is taken away.
    assert sums == {0.1 + 0.2 + 0.3 + 1e16 - 1e16}


def test_a_missing_column_is_named_with_what_was_found() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(task=["t"], rollout=[0], reward=[1.0], valid=[True])
    assert str(caught.value) == (
        "column 'step' is missing; a table needs task, rollout, step, reward; found task, rollout, reward, valid"
    )


def test_a_table_of_nothing_says_so() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns()
    assert str(caught.value) == ("column 'task' is missing; a table needs task, rollout, step, reward; found nothing")


def test_ragged_columns_are_named_with_both_lengths() -> None:
    assert refusal(state=["s"]) == (
        "column 'state' has 1 rows, but column 'task' has 2; every column needs one entry per row"
    )


def test_two_rows_with_one_identity_are_named() -> None:
    with pytest.raises(RecordError) as caught:
        table(
            "task rollout step reward",
            ("t", 0, 1, 1.0),
            ("t", 0, 0, 1.0),
            ("u", 0, 1, 1.0),
            ("t", 0, 1, 2.0),
        )
    assert str(caught.value) == (
        "rows 0 and 3 have the same identity (task 't', rollout 0, step 1); remove the copy, or number the parts of a "
        "step with `segment`"
    )
    assert caught.value.row == 3


def test_two_segments_with_one_number_are_named_with_it() -> None:
    message = refusal(rollout=[0, 0], segment=[2, 2])
    assert message == (
        "rows 0 and 1 have the same identity (task 't', rollout 0, step 0, segment 2); remove the copy, or number the "
        "parts of a step with `segment`"
    )


def test_rows_that_differ_only_by_segment_are_not_copies() -> None:
    assert len(StepTable.from_columns(**(BASIC | {"rollout": [0, 0], "segment": [1, 0]}))) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [1.0, 1e101]}, "column 'reward', row 1: found 1e+101, beyond 1e+100; "),
        ({"outcome": [1.0, -1e101]}, "column 'outcome', row 1: found -1e+101, beyond 1e+100; "),
        ({"accuracy": [1e101, 0.0]}, "column 'accuracy', row 0: found 1e+101, beyond 1e+100; "),
    ],
)
def test_scores_beyond_any_reward_are_taken_for_sentinels(changes: dict[str, object], message: str) -> None:
    assert refusal(**changes) == f"{message}this looks like a placeholder, not a reward: replace or rescale it"


def test_extra_columns_are_checked_by_their_kind() -> None:
    assert refusal(tokens=[3, -1]) == "column 'tokens', row 1: found -1; count from 0 upwards"
    assert refusal(segment=[0, -2]) == "column 'segment', row 1: found -2; count from 0 upwards"
    assert refusal(valid=[True, "no"]) == "column 'valid', row 1: 'no' is neither true nor false"


def test_an_rollout_with_two_outcomes_is_named_by_its_first_step() -> None:
    with pytest.raises(RecordError) as caught:
        table(
            "task rollout step reward outcome",
            ("t", "a", 0, 0.0, 1.0),
            ("t", "b", 4, 0.0, 0.0),
            ("t", "b", 3, 0.0, 1.0),
        )
    assert str(caught.value) == (
        "task 't', rollout 'b', step 3: the rows of this rollout have different outcomes; give them all the same "
        "outcome, and put rewards of single steps into `reward`"
    )


def test_the_episode_return_is_the_sum_of_rewards_on_every_step() -> None:
    rows = walks(["s", "s"], ["s"], rewards=[[1, 2], [5]])
    assert rows.episode_return.tolist() == [3, 3, 5]


def test_an_outcome_takes_the_place_of_the_summed_rewards() -> None:
    rows = table("task rollout step reward outcome", ("t", 0, 0, 9.0, 0.5), ("t", 0, 1, 9.0, 0.5))
    assert rows.episode_return.tolist() == [0.5, 0.5]


def test_steps_count_one_token_each_without_the_column() -> None:
    assert StepTable.from_columns(**BASIC).tokens.tolist() == [1, 1]


def test_a_step_before_is_there_only_within_the_rollout_and_without_a_gap() -> None:
    # Rollout 0 has the indices 0, 1, 2; rollout 1 has 0, 2, 3.
    rows = table(
        "task rollout step reward", *(("t", a, i, 0.0) for a, i in [(0, 0), (0, 1), (0, 2)]), *_rows_with_a_gap()
    )
    assert rows.has_step_before(0).tolist() == [True] * 6
    assert rows.has_step_before(1).tolist() == [False, True, True, False, False, True]
    assert rows.has_step_before(2).tolist() == [False, False, True, False, False, False]
    assert rows.has_step_before(6).tolist() == [False] * 6


def _rows_with_a_gap() -> list[tuple[object, ...]]:
    return [("t", 1, 0, 0.0), ("t", 1, 2, 0.0), ("t", 1, 3, 0.0)]


def test_equal_parts_are_asked_once_and_their_answer_cannot_be_changed() -> None:
    calls = []

    class Asked:
        def __call__(self, rows: StepTable) -> np.ndarray:
            calls.append(self)
            return np.arange(len(rows))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Asked)

        def __hash__(self) -> int:
            return 1

    rows = StepTable.from_columns(**BASIC)
    first, second = rows.ask_once(Asked()), rows.ask_once(Asked())
    assert len(calls) == 1
    assert first is second
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 7


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    rows = StepTable.from_columns(**BASIC, role=["a", "b"], actions=["x", "y"])
    with pytest.raises(RecordError) as caught:
        rows.column("action")
    assert str(caught.value) == (
        "the table has no column 'action', which this method reads; from_trajectories makes it of `Step.action`, or "
        "pass it to from_columns(action=...). did you mean 'actions'? Valid: actions, role"
    )


def test_a_column_as_codes_is_equal_where_entries_are_equal() -> None:
    rows = StepTable.from_columns(**(BASIC | {"rollout": [1, 0]}), role=["a", None])
    assert rows.codes("role").tolist() == [-1, 0]


def test_a_step_is_named_in_words_by_its_ids() -> None:
    assert make_shuffled_table().describe_step(3) == "task 'a', rollout 'y', step 1"


def test_tasks_and_rollouts_are_segments_of_the_steps() -> None:
    rows = make_shuffled_table()
    assert rows.tasks.size.tolist() == [4, 1]
    assert rows.rollouts.size.tolist() == [2, 2, 1]
    assert rows.rollouts.first.tolist() == [0, 2, 4]


def test_a_table_may_be_empty() -> None:
    for empty in (StepTable.from_columns(task=[], rollout=[], step=[], reward=[]), StepTable.from_trajectories([])):
        assert len(empty) == 0
        assert methods.hgpo().advantage(empty).values.tolist() == []


def test_a_column_of_none_is_an_absent_column() -> None:
    table = StepTable.from_columns(task=["t"], rollout=[0], step=[0], reward=[1.0], valid=None, outcome=None)
    assert table.extra == {}


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.zeros((1, 2)), "column 'reward' holds rows of several entries; give one entry per row"),
        ([[1.0, 2.0]], "column 'reward' holds rows of several entries; give one entry per row"),
        ([10**400], f"column 'reward', row 0: 1{'0' * 118}… is not a number; give every row a number"),
        ([1j], "column 'reward', row 0: 1j is not a number; give every row a number"),
    ],
)
def test_rewards_that_are_no_column_of_numbers_are_refused(reward: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(task=["t"], rollout=[0], step=[0], reward=reward)
    assert str(caught.value) == message


@pytest.mark.parametrize("step", [[0, 2**70], np.array([0, 2**63], dtype=np.uint64)])
def test_an_index_beyond_all_reason_is_refused_by_its_row(step: Any) -> None:
    with pytest.raises(RecordError, match="column 'step', row 1: "):
        StepTable.from_columns(task=["t", "t"], rollout=[0, 0], step=step, reward=[0.0, 0.0])


def test_ids_may_be_numpy_scalars() -> None:
    ids = list(np.array(["a", "b"]))
    table = StepTable.from_columns(task=ids, rollout=list(np.array([1, 2])), step=[0, 0], reward=[0.0, 0.0])
    assert list(table.task_ids) == ["a", "b"]


class Labelled:
    """A column read by label, as a pandas Series is: its labels are not its positions."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return iter(self.values)

    def __getitem__(self, label: int) -> Any:
        return self.values[-1 - label]


def test_columns_are_read_by_position_never_by_label() -> None:
    plain = {"task": ["t"] * 4, "rollout": [0, 0, 1, 1], "step": [0, 1, 0, 1], "reward": [0.0, 1.0, 0.0, 0.0]}
    states = ["a", "b", "a", "c"]
    expected = methods.hgpo().advantage(StepTable.from_columns(**plain, state=states)).values.tolist()
    labelled = {name: Labelled(*column) for name, column in plain.items()}
    labelled_table = StepTable.from_columns(**labelled, state=Labelled(*states))  # type: ignore[arg-type]
    assert methods.hgpo().advantage(labelled_table).values.tolist() == expected


def test_nan_in_place_of_a_state_is_not_comparable() -> None:
    table = StepTable.from_columns(
        task=["t"] * 3, rollout=[0, 1, 2], step=[0] * 3, reward=[0.0] * 3, state=["a", float("nan"), None]
    )
    assert table.state.tolist() == [0, -1, -1]


@pytest.mark.parametrize(("column", "shown"), [("tt", "'tt'"), (3, "3"), (True, "True")])
def test_what_is_no_column_is_refused(column: Any, shown: str) -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(task=column, rollout=[0], step=[0], reward=[0.0])
    assert str(caught.value) == f"column 'task' is {shown}; give a list or an array with one entry per row"


def test_a_column_called_states_is_taken_for_a_slip() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(task=["t"], rollout=[0], step=[0], reward=[0.0], states=["a"])
    assert str(caught.value) == "there is a column 'states' but no column 'state'; pass it as state=..."


def test_segments_of_a_step_must_agree_on_what_became_of_it() -> None:
    with pytest.raises(RecordError) as caught:
        StepTable.from_columns(
            task=["t"] * 2, rollout=[0] * 2, step=[0] * 2, segment=[0, 1], reward=[0.0] * 2, outcome=[1.0, 5.0]
        )
    assert str(caught.value) == (
        "rows 0 and 1 are segments of one step, but differ in 'outcome' (1.0 and 5.0); give both the same"
    )
