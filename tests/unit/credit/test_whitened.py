"""Whitening over all tokens of the table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise import ConfigError, StepTable
from groupwise.credit import ByTask, EpisodeReturn, NoBaseline, NoScale, OverlongMask, Relative, Whitened
from groupwise.data.credit import Comparison
from groupwise.parts.algorithm import Algorithm
from tests.unit.tables import single_steps, table

# Credit that is the return itself.
RETURN = Relative(by=ByTask(), of=EpisodeReturn(), baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw")


def whiten(rows: StepTable, eps: float = 0.0) -> Comparison:
    trace = Whitened(of=RETURN, eps=eps)(rows).trace
    assert isinstance(trace, Comparison)
    return trace


def with_tokens(*pairs: tuple[float, int]) -> StepTable:
    return table("task rollout step reward tokens", *(("q", i, 0, v, n) for i, (v, n) in enumerate(pairs)))


def test_every_step_counts_once_without_the_column_and_tasks_mix() -> None:
    # 1, 3, 5 over two tasks: mean 3, variance 8/2 = 4.
    trace = whiten(single_steps([1, 5], [3]))
    assert trace.values.tolist() == [-1, 1, 0]
    assert trace.compared.tolist() == [True] * 3


def test_every_step_counts_as_often_as_it_has_tokens() -> None:
    # 0 three times and 4 once: mean 1, squares 3 + 9 = 12, over 4 - 1: deviation 2.
    assert whiten(with_tokens((0, 3), (4, 1))).values.tolist() == [-0.5, 1.5]


def test_eps_is_added_to_the_variance_not_to_the_deviation() -> None:
    # Variance 4 plus 5: deviation 3.
    assert whiten(single_steps([1, 5], [3]), eps=5).values.tolist() == pytest.approx([-2 / 3, 2 / 3, 0], rel=1e-15)


def test_eps_is_a_hundred_millionth_by_default() -> None:
    assert Whitened(of=RETURN).eps == 1e-8
    # Values 0 and 2e-4: variance 2e-8, plus 1e-8.
    values = Whitened(of=RETURN)(single_steps([0, 2e-4])).values
    assert values.tolist() == pytest.approx([-1e-4 / math.sqrt(3e-8), 1e-4 / math.sqrt(3e-8)], rel=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, 0.7, -1e100])
def test_equal_values_give_exactly_0(eps: float, constant: float) -> None:
    for num in range(1, 20):
        trace = whiten(single_steps([constant] * num, [constant]), eps)
        assert trace.values.tolist() == [0.0] * (num + 1)
        assert trace.compared.tolist() == [True] * (num + 1)


def test_a_deviation_of_0_divides_by_1() -> None:
    assert whiten(single_steps([2, 2])).scale.tolist() == [1, 1]


def test_fewer_than_two_tokens_give_0_and_no_comparison() -> None:
    lone = whiten(single_steps([7]))
    assert (lone.values.tolist(), lone.compared.tolist()) == ([0], [False])
    one_of_two = whiten(with_tokens((7, 1), (3, 0)))
    assert (one_of_two.values.tolist(), one_of_two.compared.tolist()) == ([0, 0], [False, False])
    none = whiten(with_tokens((7, 0), (3, 0)))
    assert (none.values.tolist(), none.compared.tolist()) == ([0, 0], [False, False])


def test_two_tokens_are_enough() -> None:
    # One step of two tokens: its own mean, so 0, and a comparison.
    trace = whiten(with_tokens((7, 2)))
    assert (trace.values.tolist(), trace.compared.tolist()) == ([0], [True])
    # Two steps of one token: mean 2, variance 2.
    half = 1 / math.sqrt(2)
    assert whiten(single_steps([1, 3])).values.tolist() == pytest.approx([-half, half], rel=1e-15)


def test_a_step_without_tokens_is_measured_and_does_not_count() -> None:
    # 0 and 2 with a token each: mean 1, variance 2; the 5 has none.
    values = whiten(with_tokens((0, 1), (2, 1), (5, 0))).values
    assert values.tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 4 / math.sqrt(2)], rel=1e-15)


def test_only_tokens_that_train_count() -> None:
    """Three answers of one token, right, right and wrong, beside a wrong one of 100 tokens that was cut off.

    Over the three: mean 2/3, squares 1/9 + 1/9 + 4/9 = 2/3, over 3 - 1: variance 1/3, so (1/3) / 0.57735 = 0.57735 and
    -(2/3) / 0.57735 = -1.1547. Over all 103 tokens the mean would be 2/103, and they would get +7.07 and -0.14.
    """
    rows = [("q", i, 0, reward, tokens, cut) for i, (reward, tokens, cut) in enumerate(ANSWERS)]
    answers = table("task rollout step reward tokens cut", *rows)
    third = 1 / math.sqrt(3)
    algorithm = Algorithm(advantage=Whitened(of=RETURN, eps=0.0), filters=(OverlongMask(),))
    assert algorithm.credit(answers).values.tolist() == pytest.approx([third, third, -2 * third, -2 * third], rel=1e-15)
    everything = algorithm.advantage(answers).values.tolist()
    assert everything == pytest.approx([7.071, 7.071, -0.140, -0.140], abs=1e-3)
    marked = table("task rollout step reward tokens trains", *((*row[:5], not row[5]) for row in rows))
    assert algorithm.advantage(marked).values.tolist() == algorithm.credit(answers).values.tolist()


ANSWERS = [(1.0, 1, False), (1.0, 1, False), (0.0, 1, False), (0.0, 100, True)]
"""Reward, tokens, and whether the response was cut off."""


def test_where_all_that_trains_is_equal_everybody_gets_exactly_0() -> None:
    """Less 1000, which does not train, three times 0.7 would have a mean that misses each of them by a last digit."""
    steps = [(1000.0, False), (0.7, True), (0.7, True), (0.7, True)]
    rows = [("q", i, 0, value, trains) for i, (value, trains) in enumerate(steps)]
    trace = whiten(table("task rollout step reward trains", *rows), eps=1e-8)
    assert trace.values.tolist() == [0.0] * 4
    assert trace.compared.tolist() == [True] * 4


def test_fewer_than_two_tokens_that_train_are_no_comparison() -> None:
    rows = [("q", i, 0, float(i), trains) for i, trains in enumerate([True, False, False])]
    trace = whiten(table("task rollout step reward trains", *rows))
    assert (trace.values.tolist(), trace.compared.tolist()) == ([0.0] * 3, [False] * 3)


def test_a_large_common_offset_costs_no_digits() -> None:
    assert whiten(single_steps([1e15, 1e15 + 2, 1e15 + 4])).values.tolist() == [-1, 0, 1]


def test_the_trace_shows_what_was_whitened_and_by_what() -> None:
    trace = whiten(single_steps([1, 5], [3]), eps=5)
    assert trace.signal.tolist() == [1, 5, 3]
    assert trace.label.tolist() == [0, 0, 0]
    assert trace.baseline.tolist() == [3, 3, 3]
    assert trace.scale.tolist() == [3, 3, 3]
    assert trace.of is not None
    assert trace.of.values.tolist() == [1, 5, 3]
    assert trace.part == Whitened(of=RETURN, eps=5)


def test_an_empty_table_has_no_credit() -> None:
    empty = StepTable.from_columns(**{name: np.zeros(0, dtype=int) for name in ("task", "rollout", "step", "reward")})
    assert whiten(empty).values.tolist() == []


def test_whitening_says_that_it_mixes_tasks() -> None:
    assert Whitened.mixes_tasks
    assert not Relative.mixes_tasks


def test_eps_is_not_negative() -> None:
    with pytest.raises(ConfigError) as caught:
        Whitened(of=RETURN, eps=-1)
    assert str(caught.value) == "Whitened: eps: expected a number greater than or equal to 0, found -1"
