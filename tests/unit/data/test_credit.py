"""Credit as it is handed back: in row order, and readable."""

from __future__ import annotations

from groupwise import methods
from tests.unit.tables import single_steps, table


def test_credit_comes_back_in_the_order_of_the_rows() -> None:
    # Returns 0 and 1, mean 0.5; the rows are handed in last rollout first.
    rows = table("task rollout step reward", ("q", 1, 0, 1.0), ("q", 0, 0, 0.0))
    credit = methods.dr_grpo().advantage(rows)
    assert credit.values.tolist() == [0.5, -0.5]
    assert credit.trace.values.tolist() == [-0.5, 0.5]
    assert credit.compared.tolist() == [True, True]
    assert len(credit) == 2


def test_every_segment_of_a_step_gets_the_steps_credit() -> None:
    rows = table(
        "task rollout step segment reward",
        ("q", 0, 0, 1, 0.0),
        ("q", 1, 0, 0, 3.0),
        ("q", 0, 0, 0, 1.0),
    )
    # Returns 1 and 3, mean 2.
    assert methods.dr_grpo().advantage(rows).values.tolist() == [-1, 1, -1]


def test_credit_says_in_words_how_many_rows_were_compared() -> None:
    credit = methods.dr_grpo().advantage(single_steps([1, 0], [5]))
    assert repr(credit) == "Credit(3 rows, 2 compared, values [ 0.5 -0.5  0. ])"


def test_long_credit_is_shortened_where_it_is_shown() -> None:
    credit = methods.dr_grpo().advantage(single_steps([1, 0] * 5))
    assert repr(credit) == "Credit(10 rows, 10 compared, values [ 0.5 -0.5  0.5 ... -0.5  0.5 -0.5])"
