"""Answers compared as numbers: what is the same number in another writing, and what is none."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs.kit.answers import is_same_number, is_same_text, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", Fraction(72)),
        (" -1,200.50 ", Fraction(-2401, 2)),
        ("$18", Fraction(18)),
        ("-$3", Fraction(-3)),
        ("50%", Fraction(50)),
        ("3/4", Fraction(3, 4)),
        (".5", Fraction(1, 2)),
        ("10.", Fraction(10)),
        ("1/0", None),
        ("about 3", None),
        ("1e9", None),
        ("", None),
        ("--3", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, number: Fraction | None) -> None:
    assert read_number(text) == number


@given(st.integers(-(10**9), 10**9))
def test_a_number_is_itself_with_commas_and_without(number: int) -> None:
    assert is_same_number(f"{number:,}", str(number))
    assert not is_same_number(str(number + 1), str(number))


def test_what_is_no_number_equals_nothing_not_even_itself() -> None:
    assert not is_same_number("many", "many")
    assert is_same_text(" Oslo ", "Oslo")
    assert not is_same_text("oslo", "Oslo")
