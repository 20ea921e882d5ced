"""The truth about lines: exact values against brute force over all slips, and against sampling."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.line_credit.slipping_policy import SlippingPolicy

POLICY = SlippingPolicy(slip=0.1, slip_at_carry=0.3, slip_in_copying=0.05, slip_in_head=0.4)


def chance_by_hand(terms: list[int], results: list[int]) -> float:
    """Every way to slip from here on, one after the other, with its probability."""
    rest, whole = terms[1 + len(results) :], 0.0
    for slips in product((-1, 0, 1), repeat=len(rest) + 1):
        value, chance = (results[-1] if results else terms[0]), 1.0
        for term, slip in zip(rest, slips, strict=False):
            rate = 0.3 if value % 10 + term % 10 >= 10 else 0.1
            chance *= 1 - rate if slip == 0 else rate / 2
            value += term + slip
        chance *= 0.95 if slips[-1] == 0 else 0.025
        whole += chance * (value + slips[-1] == sum(terms))
    return whole


@given(terms=st.lists(st.integers(1, 9), min_size=4, max_size=6), data=st.data())
def test_chances_are_those_of_all_ways_to_slip(terms: list[int], data: st.DataObject) -> None:
    results: list[int] = []
    for term in terms[1 : data.draw(st.integers(1, len(terms)))]:
        results.append((results[-1] if results else terms[0]) + term + data.draw(st.sampled_from((-1, 0, 0, 1))))
    assert POLICY.chance_of_right(terms, results) == pytest.approx(chance_by_hand(terms, results), abs=1e-12)


def test_line_values_worked_by_hand() -> None:
    # 1 + 1 + 1 + 1 has no carry: V after k right lines sums over slips that cancel out.
    policy = SlippingPolicy(slip=0.1, slip_at_carry=0.1, slip_in_copying=0.0)
    values = policy.line_values((1, 1, 1, 1), (2, 3, 4), 4)
    last_two = 0.9**2 + 2 * 0.05**2
    first = 0.9**3 + 3 * 0.9 * 2 * 0.05**2
    assert values == pytest.approx([last_two - first, 0.9 - last_two, 0.1, 0.0])
    off = policy.line_values((1, 1, 1, 1), (2, 4, 4), 4)
    assert off[1] == pytest.approx(0.05 - last_two), "a slip costs nearly all"
    assert off[2] == pytest.approx(1 - 0.05), "and mending it brings it back"


@given(terms=st.lists(st.integers(1, 9), min_size=4, max_size=8), seed=st.integers(0, 99))
def test_line_values_add_up_to_the_outcome_less_the_first_chance(terms: list[int], seed: int) -> None:
    results, total = POLICY.work(terms, (), np.random.default_rng(seed))
    values = POLICY.line_values(terms, results, total)
    assert len(values) == len(terms)
    assert sum(values) == pytest.approx((total == sum(terms)) - POLICY.chance_of_right(terms, ()))


@given(terms=st.lists(st.integers(1, 9), min_size=4, max_size=8))
def test_the_expected_value_of_a_line_is_0(terms: list[int]) -> None:
    """V is a martingale: before a line is written, nothing is gained by it on average."""
    start = POLICY.chance_of_right(terms, ())
    after = sum(
        chance * POLICY.chance_of_right(terms, (result,))
        for result, chance in POLICY.result_chances(terms[0], terms[1]).items()
    )
    assert after == pytest.approx(start)


def test_sampling_agrees_with_the_exact_chances() -> None:
    rng, num = np.random.default_rng(0), 4000
    terms = (8, 7, 6, 5, 9)
    for results in ((), (15,), (16, 22)):
        share = np.mean([POLICY.work(terms, results, rng)[1] == sum(terms) for _ in range(num)])
        exact = POLICY.chance_of_right(terms, results)
        assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / num)
        said = POLICY.answer_chances(terms, results)
        assert sum(said.values()) == pytest.approx(1.0)


def test_an_early_answer_is_worked_out_in_the_head() -> None:
    chances = POLICY.answer_chances((1, 1, 1, 1), (2, 3))
    assert chances[4] == pytest.approx(0.95 * 0.6 + 2 * 0.025 * 0.2)
    assert POLICY.answer_chances((1, 1, 1, 1), (2, 3, 4))[4] == 0.95
