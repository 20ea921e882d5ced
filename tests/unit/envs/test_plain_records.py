"""What an environment says of a step beside its reward is made plain where it enters, or is a fault that names it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from groupwise.data.step_fields import STEP_FIELDS
from groupwise.envs import Observation, Outcome
from groupwise.envs.plain_records import MAX_INFO, MAX_RECORD_CHARACTERS, to_plain_outcome
from groupwise.system.errors import EnvironmentFault

SEEN = Observation(text="a hall")


def plain(info: Any) -> Any:
    return to_plain_outcome(Outcome(observation=SEEN, info=info)).info


def nest(depth: int) -> Any:
    return [nest(depth - 1)] if depth else 1


def test_info_become_json_values_that_are_the_environments_no_more() -> None:
    said = {"seen": ["mug"], "at": (np.int64(2), np.float32(0.5)), "map": MappingProxyType({"x": np.True_}), "no": None}
    info = plain(MappingProxyType(said))
    assert info == {"seen": ["mug"], "at": [2, 0.5], "map": {"x": True}, "no": None}
    assert [type(entry) for entry in info["at"]] == [int, float]
    said["seen"].append("shelf")  # type: ignore[union-attr]
    assert info["seen"] == ["mug"]


def test_an_outcome_without_info_is_the_same_object() -> None:
    outcome = Outcome(observation=SEEN)
    assert to_plain_outcome(outcome) is outcome


LONG = "x" * (MAX_RECORD_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (None, "Outcome.info is None (NoneType); give a dict of JSON values by their names"),
        ([("a", 1)], "Outcome.info is [('a', 1)] (list); give a dict of JSON values by their names"),
        ({3: 1}, "a name in Outcome.info is 3 (int); give text that is not empty"),
        ({"": 1}, "a name in Outcome.info is '' (str); give text that is not empty"),
        ({"a\ud83d": 1}, "a name in Outcome.info is 'a\\ud83d' (str); give text without halves of characters"),
        ({"d": float("nan")}, "Outcome.info['d'] is nan (float); give text, a finite number, True, False, None, or a"),
        ({"d": {"e": {1, 2}}}, "Outcome.info['d'] is {1, 2} (set); give text, a finite number"),
        ({"d": {1: 2}}, "Outcome.info['d'] is {1: 2} (dict); give text, a finite number"),
        ({"d": nest(40)}, "Outcome.info['d'] is "),
        ({"d": 10**301}, "Outcome.info['d'] is "),
        ({"d": "\udc00"}, "Outcome.info['d'] is '\\udc00' (str); give text without halves of characters"),
        ({"d": LONG}, f"Outcome.info has 1 names, and {MAX_RECORD_CHARACTERS + 3:,} characters and entries; give"),
        ({f"f{i}": i for i in range(MAX_INFO + 1)}, f"Outcome.info has {MAX_INFO + 1} names, and "),
    ],
)
def test_info_that_no_record_can_hold_are_named(info: Any, said: str) -> None:
    with pytest.raises(EnvironmentFault) as raised:
        plain(info)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize("name", [*(field.name for field in STEP_FIELDS), "first_observation", "cls"])
def test_names_that_rows_or_the_table_have_are_taken(name: str) -> None:
    with pytest.raises(EnvironmentFault) as raised:
        plain({name: 1})
    assert str(raised.value) == f"Outcome.info['{name}'] has a reserved name; choose another name"
