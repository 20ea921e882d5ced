"""The record of rooms and words gives figures that still hold, and names places that are there."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest

from docs.measure_tree import AFTER, BEFORE, SourceTree, fill_page, measure, read_figures
from tests.architecture.sources import PACKAGE, ROOT, tree_of

RECORD = ROOT / "docs" / "adr" / "0023-rooms-and-words.md"
REVISION_BEFORE = "a3bb3bf"
RUN_AGAIN = "python docs/measure_tree.py --write docs/adr/0023-rooms-and-words.md"

BOUNDS = {"small_single_importers": "--list single-importers"}
"""Figures that may not grow beyond those recorded, with what lists the culprits. Lines and files may; `test_words`
bounds the participles."""


def test_the_tree_has_no_more_of_what_there_should_be_less_of() -> None:
    recorded = read_figures(RECORD.read_text(encoding="utf-8"), AFTER)
    present = SourceTree(ROOT).measure()
    for figure, how in BOUNDS.items():
        now, then = getattr(present, figure), getattr(recorded, figure)
        assert now <= then, f"{figure}: {now}, {then} recorded; see `python docs/measure_tree.py {how}`"


def test_the_table_says_what_the_figures_beside_it_say() -> None:
    page = RECORD.read_text(encoding="utf-8")
    before, after = read_figures(page, BEFORE), read_figures(page, AFTER)
    assert fill_page(page, before, after) == page, f"run `{RUN_AGAIN}`"


@pytest.mark.slow
def test_the_column_before_is_that_of_its_revision() -> None:
    known = subprocess.run(["git", "cat-file", "-e", f"{REVISION_BEFORE}^{{tree}}"], cwd=ROOT, check=False)
    if known.returncode:
        pytest.skip(f"this clone does not hold revision {REVISION_BEFORE}")
    assert read_figures(RECORD.read_text(encoding="utf-8"), BEFORE) == measure(REVISION_BEFORE)


def places_after() -> list[tuple[str, str]]:
    """The file and the name of each place in the last column of the way of one attempt."""
    section = RECORD.read_text(encoding="utf-8").partition("## The way of one attempt")[2]
    cells = re.findall(r"^\| \d+ \|.*\| ([^|]+) \|$", section, re.MULTILINE)
    return [place for cell in cells for place in re.findall(r"`([\w/]+\.py): ([\w.]+)`", cell)]


def has_name(tree: ast.AST, name: str) -> bool:
    """Whether something of a dotted name is defined in a file: a function, a class, a method."""
    first, _, rest = name.partition(".")
    defined = [node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == first]
    return any(has_name(node, rest) if rest else True for node in defined)


def test_the_way_of_one_attempt_names_what_is_there() -> None:
    places = places_after()
    assert len(places) > 40
    gone = [
        f"{file}: {name}"
        for file, name in places
        if not (PACKAGE / file).exists() or not has_name(tree_of(PACKAGE / file), name)
    ]
    assert gone == [], f"give what took their place in the last column of {RECORD.name}"
