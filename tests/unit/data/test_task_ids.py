"""Which task a user means: its id, the beginning of it, and what an error says of several."""

from __future__ import annotations

import pytest

from groupwise import RecordError
from groupwise.data.task_ids import find_task, match_tasks, rank_match


def test_a_task_is_found_by_the_beginning_of_its_id_or_of_its_digest() -> None:
    tasks = ["home-train-12ab", "home-train-12cd", "home-train-9f00", "home-train"]
    assert find_task(tasks, "home-train", where="x") == "home-train"
    assert find_task(tasks, "home-train-9", where="x") == "home-train-9f00"
    assert find_task(tasks, "12c", where="x") == "home-train-12cd"
    with pytest.raises(RecordError) as caught:
        find_task(tasks, "12", where="runs/a, update 3")
    assert str(caught.value) == (
        "runs/a, update 3: 2 task ids begin with '12'; give more of the id: home-train-12ab, home-train-12cd"
    )
    with pytest.raises(RecordError) as caught:
        find_task(tasks[:2], "home-train-12xb", where="runs/a, update 3")
    assert str(caught.value) == (
        "runs/a, update 3: there is no task 'home-train-12xb'; did you mean 'home-train-12ab'? "
        "Valid: home-train-12ab, home-train-12cd"
    )


@pytest.mark.parametrize(
    ("wanted", "rank"),
    [
        (None, 0),
        ("home-train-12ab@3", 0),
        ("home-train-12ab", 1),
        ("home-train-12", 2),
        ("12a", 2),
        ("home@3", 2),
        ("12ab@3", 2),
        ("12ab@", 2),
        ("@3", 2),
        ("12ab@30", None),
        ("12@33", None),
        ("train", None),
        ("ab@3", None),
    ],
)
def test_a_group_of_a_task_fits_by_its_id_by_that_of_its_task_or_by_a_beginning(
    wanted: str | None, rank: int | None
) -> None:
    assert rank_match(wanted, "home-train-12ab@3", "home-train-12ab") == rank


def test_an_id_comes_before_the_longer_ids_that_begin_with_it() -> None:
    assert match_tasks(["t2", "t", "t3"], "t") == ["t"]
    assert match_tasks(["t2", "u", "t3"], "t") == ["t2", "t3"]
    assert match_tasks(["t2"], "x") == []


def test_an_error_suggests_five_tasks() -> None:
    tasks = [f"home-train-{number:02d}" for number in range(40)]
    with pytest.raises(RecordError) as caught:
        find_task(tasks, "home", where="runs/a")
    five = "home-train-00, home-train-01, home-train-02, home-train-03, home-train-04, ... (40 in all)"
    assert str(caught.value) == f"runs/a: 40 task ids begin with 'home'; give more of the id: {five}"
    with pytest.raises(RecordError) as caught:
        find_task(tasks, "x", where="runs/a")
    assert str(caught.value) == f"runs/a: there is no task 'x'; Valid: {five}"
