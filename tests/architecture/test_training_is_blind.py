"""Training executes numbers that parts put on tokens; it knows no method by name."""

from __future__ import annotations

import re
from pathlib import Path

import groupwise
from groupwise import recipes

TRAINING = Path(groupwise.__file__).parent / "training"


def test_no_recipe_is_named_in_training() -> None:
    names = re.compile(rf"\b({'|'.join(recipes.names())})\b", re.IGNORECASE)
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(TRAINING.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if names.search(line)
    ]
    assert found == []


def test_the_loop_fits_on_a_screen_or_two() -> None:
    assert len((TRAINING / "loop.py").read_text().splitlines()) <= 150
