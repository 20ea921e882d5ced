"""What ADR 6 says of a penalty for invalid commands is what the recorded attempts show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.invalid_penalty import RECIPES, ROLLOUTS, attempts, measured

WRITTEN = json.loads((ROLLOUTS.parent / "invalid_penalty.json").read_text())


@pytest.mark.parametrize("name", RECIPES)
def test_the_written_numbers_are_those_of_the_recorded_attempts(name: str) -> None:
    found, written = measured(*attempts(), *RECIPES[name]), WRITTEN["credit"][name]
    assert found.pop("by_verb") == pytest.approx(written.pop("by_verb"))
    assert found == pytest.approx(written)


def test_the_decision_quotes_them() -> None:
    told = " ".join((Path(__file__).parents[2] / "docs" / "adr" / "0006-invalid-penalty.md").read_text().split())
    shares = [WRITTEN["credit"][f"{name}, penalty 0.1"]["in_groups_without_success"] for name in ("gigpo", "hgpo")]
    assert f"{shares[0]:.0%} (GiGPO) and {shares[1]:.0%} (HGPO)".replace("%", " %") in told
