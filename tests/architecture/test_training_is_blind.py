"""Training executes numbers that parts put on tokens; it knows no method by name, nor does what it works with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groupwise import methods
from tests.architecture.sources import PACKAGE, name_of, python_files

BLIND = ("training", "learner", "models", "engines")
"""Packages, with all their folders, in which no method is named, not even in a comment."""


def find_method_names(files: list[Path]) -> list[str]:
    """Every line that names a method, as a word by itself or as one of a longer name."""
    names = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(methods.names())})(?![A-Za-z0-9])", re.IGNORECASE)
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if names.search(line)
    ]


@pytest.mark.parametrize("package", BLIND)
def test_no_method_is_named(package: str) -> None:
    files = python_files(PACKAGE / package)
    assert files
    assert find_method_names(files) == []


def test_a_name_would_be_seen_where_methods_are_defined() -> None:
    lines = find_method_names([PACKAGE / "methods" / "hgpo.py"])
    assert any("def hgpo(" in line for line in lines)
