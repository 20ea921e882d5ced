"""Every way in which a column can be wrong, with the message in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from groupwise import RecordError
from groupwise.data import column_checks as check

LARGEST = check.LARGEST_REWARD


def reward(column: Any) -> np.ndarray:
    return check.to_numbers("reward", column, largest=LARGEST)


def index(column: Any) -> np.ndarray:
    return check.to_integers("step", column)


def valid(column: Any) -> np.ndarray:
    return check.to_flags("valid", column)


def ids(column: Any) -> object:
    return check.code_ids("task", column)


def states(column: Any) -> object:
    return check.code_keys("state", column)


NOT_SCORED = "drop the rollout or score it before you compute advantages (a missing score is not 0)"
SENTINEL = "this looks like a placeholder, not a reward: replace or rescale it"
HASHABLE = "use text, a number, a tuple of these, or None for 'not comparable'"

WRONG: list[tuple[Callable[[Any], object], Any, int | None, str]] = [
    (reward, [1.0, float("nan")], 1, f"column 'reward', row 1: found nan; {NOT_SCORED}"),
    (reward, [float("inf"), 1.0], 0, f"column 'reward', row 0: found inf; {NOT_SCORED}"),
    (reward, np.array([0.0, 0.0, -np.inf]), 2, f"column 'reward', row 2: found -inf; {NOT_SCORED}"),
    (reward, [1.0, None], 1, "column 'reward', row 1: None is not a number; give every row a number"),
    (reward, ["1.0"], 0, "column 'reward', row 0: '1.0' is not a number; give every row a number"),
    (reward, [0, 1, "x", None], 2, "column 'reward', row 2: 'x' is not a number; give every row a number"),
    (reward, [0.0, -1e300], 1, f"column 'reward', row 1: found -1e+300, beyond 1e+100; {SENTINEL}"),
    (reward, [1.1e100], 0, f"column 'reward', row 0: found 1.1e+100, beyond 1e+100; {SENTINEL}"),
    (index, [0, -1, -2], 1, "column 'step', row 1: found -1; count from 0 upwards"),
    (index, [0, 0.5], 1, "column 'step', row 1: 0.5 is not an integer; count from 0"),
    (index, [0, 1, None], 2, "column 'step', row 2: None is not an integer; count from 0"),
    (index, ["0"], 0, "column 'step', row 0: '0' is not an integer; count from 0"),
    (index, [True, False], 0, "column 'step', row 0: True is not an integer; count from 0"),
    (valid, [True, None], 1, "column 'valid', row 1: None is neither true nor false"),
    (valid, ["yes"], 0, "column 'valid', row 0: 'yes' is neither true nor false"),
    (valid, [1, 2], 1, "column 'valid', row 1: 2 is neither true nor false"),
    (valid, [0.5], 0, "column 'valid', row 0: 0.5 is neither true nor false"),
    (valid, np.array(["yes", "no"]), 0, "column 'valid', row 0: 'yes' is neither true nor false"),
    (valid, np.array([1.0, np.nan]), 1, "column 'valid', row 1: nan is neither true nor false"),
    (valid, np.array([1, -1]), 1, "column 'valid', row 1: -1 is neither true nor false"),
    (valid, np.array([True, None], dtype=object), 1, "column 'valid', row 1: None is neither true nor false"),
    (ids, ["a", None], 1, "column 'task', row 1: None is not an id; use text or integers"),
    (ids, [0, 1.5], 1, "column 'task', row 1: 1.5 is not an id; use text or integers"),
    (ids, np.array([0.0, 1.0]), 0, "column 'task', row 0: 0.0 is not an id; use text or integers"),
    (ids, [False, True], 0, "column 'task', row 0: False is not an id; use text or integers"),
    (
        ids,
        [1, "1"],
        None,
        "column 'task' mixes text and integer ids; use one of the two (1 and '1' would be two ids)",
    ),
    (states, ["a", ["b"]], 1, f"column 'state', row 1: a list cannot be compared by equality; {HASHABLE}"),
    (states, [None, {"b": 1}], 1, f"column 'state', row 1: a dict cannot be compared by equality; {HASHABLE}"),
]


@pytest.mark.parametrize(("read", "column", "row", "message"), WRONG)
def test_a_wrong_column_is_an_error_that_names_the_row(
    read: Callable[[Any], object], column: Any, row: int | None, message: str
) -> None:
    with pytest.raises(RecordError) as caught:
        read(column)
    assert str(caught.value) == message
    assert caught.value.row == row


def test_numbers_of_every_kind_become_float64() -> None:
    for column in ([1, 2], [1.0, 2.0], np.array([1, 2], dtype=np.int8), [np.float32(1), 2], [True, 2]):
        values = reward(column)
        assert values.tolist() == [1.0, 2.0]
        assert values.dtype == np.float64


def test_numbers_in_an_object_column_are_taken_one_by_one() -> None:
    assert reward(np.array([1, 2.5], dtype=object)).tolist() == [1.0, 2.5]


def test_the_largest_reward_itself_is_still_a_reward() -> None:
    assert reward([1e100, -1e100]).tolist() == [1e100, -1e100]


def test_a_column_without_a_limit_takes_any_finite_number() -> None:
    assert check.to_numbers("advantage", [-1e300]).tolist() == [-1e300]


def test_integers_come_back_as_int64() -> None:
    for column in ([0, 3], np.array([0, 3], dtype=np.uint8), [np.int64(0), 3]):
        values = index(column)
        assert values.tolist() == [0, 3]
        assert values.dtype == np.int64


def test_zero_and_one_are_truth_values() -> None:
    assert valid([0, 1, True, np.bool_(False)]).tolist() == [False, True, True, False]
    assert valid(np.array([0, 1])).tolist() == [False, True]


def test_text_ids_are_coded_by_their_sorted_order() -> None:
    codes, keys = check.code_ids("task", ["b", "a", "b", "c"])
    assert (codes.tolist(), keys) == ([1, 0, 1, 2], ["a", "b", "c"])


@pytest.mark.parametrize("column", [[10, 9, 10], np.array([10, 9, 10]), np.array([10, 9, 10], dtype=object)])
def test_integer_ids_are_coded_by_value_not_as_text(column: Any) -> None:
    codes, keys = check.code_ids("task", column)
    assert (codes.tolist(), keys) == ([1, 0, 1], [9, 10])


def test_text_ids_in_an_array_come_back_as_plain_text() -> None:
    codes, keys = check.code_ids("task", np.array(["b", "a"]))
    assert (codes.tolist(), keys) == ([1, 0], ["a", "b"])
    assert type(keys[0]) is str


def test_no_ids_have_no_codes() -> None:
    codes, keys = check.code_ids("task", [])
    assert (codes.tolist(), keys) == ([], [])


def test_keys_are_coded_by_first_appearance_and_none_is_minus_one() -> None:
    codes, keys = check.code_keys("state", ["b", None, "a", "b", ("a", 1), None])
    assert (codes.tolist(), keys) == ([0, -1, 1, 0, 2, -1], ["b", "a", ("a", 1)])


def test_integer_keys_are_coded_in_their_order() -> None:
    codes, keys = check.code_keys("state", np.array([3, 1, 3]))
    assert (codes.tolist(), keys) == ([1, 0, 1], [1, 3])
    codes, keys = check.code_keys("state", np.array([3, -1, 3]))
    assert (codes.tolist(), keys) == ([1, 0, 1], [-1, 3])


def test_a_key_that_comes_before_none_keeps_its_code() -> None:
    codes, _ = check.code_keys("state", ["x", "y", None, "z"])
    assert codes.tolist() == [0, 1, -1, 2]


def test_columns_of_one_length_have_that_length() -> None:
    assert check.check_lengths({"task": ["a", "b"], "reward": np.zeros(2)}) == 2


def test_a_column_of_another_length_is_named_with_both_lengths() -> None:
    with pytest.raises(RecordError) as caught:
        check.check_lengths({"task": ["a", "b"], "step": [0, 1], "reward": [1.0]})
    assert str(caught.value) == (
        "column 'reward' has 1 rows, but column 'task' has 2; every column needs one entry per row"
    )
