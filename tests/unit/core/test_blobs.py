"""Blobs give back what was put in, to the last digit."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from groupwise.core.blobs import pack, unpack

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


@given(value=VALUES)
def test_a_value_comes_back(value: object) -> None:
    assert unpack(pack(value)) == value


def test_what_is_no_number_comes_back_too() -> None:
    lost, most = unpack(pack([math.nan, -math.inf]))
    assert math.isnan(lost)
    assert most == -math.inf
