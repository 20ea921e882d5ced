"""Where a hinted rollout comes from, read out of the id of its parent."""

from __future__ import annotations

import pytest

from groupwise.report.derived_credit import ParentRollout, find_parent


@pytest.mark.parametrize(
    ("origin", "parent", "source"),
    [
        ("reflected", "3/t/1", ParentRollout(number=3, task="t", rollout=1, why="shown in the prompt")),
        ("reflected", "3/a/b/1", ParentRollout(number=3, task="a/b", rollout=1, why="shown in the prompt")),
        ("reflected", "t/1", ParentRollout(number=7, task="t", rollout=1, why="shown in the prompt")),
        (
            "hinted",
            "t~5f/1",
            ParentRollout(number=7, task="t~5f", rollout=1, why="solved with a hint, recorded without it"),
        ),
        ("hinted", "3/t/1", ParentRollout(number=3, task="t", rollout=1, why="the source of its hint")),
        ("hinted", "t/0", ParentRollout(number=7, task="t", rollout=0, why="the source of its hint")),
        ("hinted", "a book", None),
        ("hinted", None, None),
        ("fresh", "3/t/1", None),
    ],
)
def test_the_parent_is_read_for_what_it_is(origin: str, parent: str | None, source: ParentRollout | None) -> None:
    assert find_parent({"task": "t", "origin": origin, "parent": parent}, 7) == source
