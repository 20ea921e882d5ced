"""What ADR 6 says of a penalty for refused commands is what the recorded rollouts show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.refused_penalty import METHODS, ROLLOUTS, measure_credit, rollouts

WRITTEN = json.loads((ROLLOUTS.parent / "refused_penalty.json").read_text())


@pytest.mark.parametrize("name", METHODS)
def test_the_written_numbers_are_those_of_the_recorded_rollouts(name: str) -> None:
    measured, written = measure_credit(*rollouts(), *METHODS[name]), WRITTEN["credit"][name]
    assert measured.pop("by_verb") == pytest.approx(written.pop("by_verb"))
    assert measured == pytest.approx(written)


def test_the_decision_quotes_them() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "adr" / "0006-invalid-penalty.md").read_text().split())
    assert f"({WRITTEN['refused']:,} of {WRITTEN['steps']:,} steps; {WRITTEN['malformed']} responses" in page
    for which, digits in (("refused", 0), ("released", 1)):
        shares = [WRITTEN["credit"][f"{name}, {which}"]["in_groups_without_success"] for name in ("gigpo", "hgpo")]
        gigpo, hgpo = (f"{100 * share:.{digits}f} %" for share in shares)
        assert f"{gigpo} (GiGPO) and {hgpo} (HGPO)" in page
