"""Blobs give back what was put in, to the last digit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.records import Origin
from groupwise.store.journal_file import pack_blob, unpack_blob

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=20)


@given(value=VALUES)
def test_a_value_comes_back(value: object) -> None:
    assert unpack_blob(pack_blob(value)) == value


def test_what_is_no_number_comes_back_too() -> None:
    lost, low = unpack_blob(pack_blob([math.nan, -math.inf]))
    assert math.isnan(lost)
    assert low == -math.inf


def test_a_name_among_several_is_written_as_its_text() -> None:
    assert unpack_blob(pack_blob({"origin": Origin.REPLAYED, "ids": (1, 2)})) == {"origin": "replayed", "ids": [1, 2]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "a builtins.set has no form in JSON"),
        (frozenset("a"), "a builtins.frozenset has no form in JSON"),
        (b"bytes", "a builtins.bytes has no form in JSON"),
        (Path("here"), r"a pathlib.* has no form in JSON"),
        ([1, {2}], "a builtins.set has no form in JSON"),
        ({"a": [b""]}, "a builtins.bytes has no form in JSON"),
        ({"a": 1, 5: 2}, "JSON names are text, but an object has 5"),
        ("\ud800", "no form in JSON: "),
    ],
)
def test_what_json_has_no_form_for_is_refused(value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pack_blob(value)
