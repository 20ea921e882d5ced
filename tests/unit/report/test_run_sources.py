"""Where a guided attempt comes from, read out of the id of its parent."""

from __future__ import annotations

import pytest

from groupwise.report.derived_credit import ParentAttempt, find_parent


@pytest.mark.parametrize(
    ("origin", "parent", "source"),
    [
        ("reflected", "3/t/1", ParentAttempt(number=3, task="t", attempt=1, why="shown in the prompt")),
        ("reflected", "3/a/b/1", ParentAttempt(number=3, task="a/b", attempt=1, why="shown in the prompt")),
        ("reflected", "t/1", ParentAttempt(number=7, task="t", attempt=1, why="shown in the prompt")),
        (
            "guided",
            "t~5f/1",
            ParentAttempt(number=7, task="t~5f", attempt=1, why="solved with a hint, recorded without it"),
        ),
        ("guided", "3/t/1", ParentAttempt(number=3, task="t", attempt=1, why="the source of its hint")),
        ("guided", "t/0", ParentAttempt(number=7, task="t", attempt=0, why="the source of its hint")),
        ("guided", "a book", None),
        ("guided", None, None),
        ("fresh", "3/t/1", None),
    ],
)
def test_the_parent_is_read_for_what_it_is(origin: str, parent: str | None, source: ParentAttempt | None) -> None:
    assert find_parent({"task": "t", "origin": origin, "parent": parent}, 7) == source
