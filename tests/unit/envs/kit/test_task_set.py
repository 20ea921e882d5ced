"""TaskSets: fixed, disjoint by content, and split by content, whatever the settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Countdown, Gridworld, Household, check_disjoint, task_set_hash
from groupwise.envs.kit.task_set import Proposal, build_task_sets, divide_task_sets, interleave

SIZES = {"train": 30, "validation": 4, "test": 6}


def number(index: int) -> Proposal:
    return Proposal(payload={"n": index}, tags=("even" if index % 2 == 0 else "odd",))


def task(split: str, n: int, seed: int = 0) -> Task:
    return Task.create(env="numbers", split=split, seed=seed, payload={"n": n})


def test_the_hash_is_over_ids_in_any_order() -> None:
    tasks = [task("test", 1), task("test", 2)]
    # sha256 of the two ids, sorted, with a line break between them; computed with hashlib alone.
    assert task_set_hash(tasks) == task_set_hash(tasks[::-1]) == _sha256("\n".join(sorted(each.id for each in tasks)))
    assert task_set_hash(tasks[:1]) != task_set_hash(tasks)


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_a_task_in_two_splits_is_an_error_even_under_two_ids() -> None:
    one, other = task("train", 1), task("test", 1)
    with pytest.raises(RecordError) as raised:
        check_disjoint({"train": [one, task("train", 2)], "test": [other]})
    assert str(raised.value) == (
        f"task {other.id} of split 'test' is task {one.id} of split 'train'; "
        "an instance may be in one split only, or the test set measures memorization"
    )


def test_equal_payloads_with_other_seeds_are_other_tasks() -> None:
    check_disjoint({"train": [task("train", 1, seed=1)], "test": [task("test", 1, seed=2)]})


def test_a_task_listed_twice_is_an_error() -> None:
    with pytest.raises(RecordError, match="split 'train' lists 1 of its tasks twice; list each task once"):
        check_disjoint({"train": [task("train", 1), task("train", 1)]})


def test_task_sets_have_the_sizes_asked_for_and_are_disjoint() -> None:
    task_sets = build_task_sets("numbers", number, sizes=SIZES)
    assert {split: len(task_sets[split]) for split in SPLITS} == SIZES
    numbers = [each.payload["n"] for split in SPLITS for each in task_sets[split]]
    assert len(set(numbers)) == len(numbers)
    assert task_sets["test"][0].tags in (("even",), ("odd",))


def test_proposals_that_repeat_or_fail_are_passed_over() -> None:
    stuttering = build_task_sets("numbers", lambda i: None if i % 3 == 0 else number(i // 3), sizes=SIZES)
    plain = build_task_sets("numbers", number, sizes=SIZES)
    assert {s: task_set_hash(stuttering[s]) for s in SPLITS} == {s: task_set_hash(plain[s]) for s in SPLITS}


def test_where_instances_run_out_task_sets_are_smaller() -> None:
    task_sets = build_task_sets("numbers", lambda index: number(index % 50), sizes=dict.fromkeys(SPLITS, 1000))
    assert sum(len(task_sets[split]) for split in SPLITS) == 50


def test_an_empty_task_set_is_an_error() -> None:
    with pytest.raises(ConfigError) as raised:
        build_task_sets("numbers", lambda index: number(0), sizes=SIZES)
    assert "the train task set is empty because too few instances exist; make the instances larger" in str(raised.value)


def test_small_environments_are_divided_whole() -> None:
    task_sets = divide_task_sets("numbers", [number(index) for index in range(20)])
    assert {split: len(task_sets[split]) for split in SPLITS} == {"train": 15, "validation": 2, "test": 3}
    assert sorted(each.payload["n"] for split in SPLITS for each in task_sets[split]) == list(range(20))


def test_interleaved_task_sets_are_balanced_from_the_start() -> None:
    evens = build_task_sets("numbers", lambda i: number(2 * i), sizes={"train": 3, "validation": 1, "test": 1})
    odds = build_task_sets("numbers", lambda i: number(2 * i + 1), sizes={"train": 2, "validation": 1, "test": 1})
    assert [each.tags[0] for each in interleave([evens, odds])["train"]] == ["even", "odd", "even", "odd", "even"]


def test_an_unknown_split_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as raised:
        Household().task_set("valid")
    assert str(raised.value) == ("there is no split 'valid'; did you mean 'validation'? Valid: test, train, validation")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Household(), Household(categories=("pick",))),
        (Household(), Household(categories=("heat", "cool"), max_steps=30)),
        (Gridworld(), Gridworld(max_steps=5)),
        (Countdown(), Countdown(largest_target=50)),
    ],
)
def test_no_setting_moves_an_instance_from_test_to_training(one: Household, other: Household) -> None:
    def contents(part: Household, split: str) -> set[str]:
        return {repr(sorted(each.payload.items())) for each in part.task_set(split)}

    for first, second in ((one, other), (other, one)):
        for split, rival in (("test", "train"), ("validation", "train"), ("test", "validation")):
            assert not contents(first, split) & contents(second, rival)
    assert contents(one, "test") & contents(other, "test"), "the settings overlap, or this test says nothing"


def test_household_task_sets_are_balanced_over_families() -> None:
    task_set = Household().task_set("test")
    assert [each.tags[0] for each in task_set[:6]] == ["pick", "two", "clean", "heat", "cool", "examine"]
    counts: Mapping[str, int] = {
        family: sum(each.tags == (family,) for each in task_set) for family in ("pick", "two", "clean", "heat")
    }
    assert set(counts.values()) == {80}


def test_a_task_of_another_environment_is_refused() -> None:
    foreign = task("train", 1)
    with pytest.raises(RecordError) as raised:
        Household().open(foreign)
    assert str(raised.value) == (
        f"task {foreign.id} belongs to the environment 'numbers', not 'household'; open it with that one"
    )


def test_household_rooms_limit_the_homes_and_the_words() -> None:
    bedroom = Household(rooms=("bedroom",), categories=("pick", "examine"), num_receptacles=3)
    assert {task.payload["lamp"] for task in bedroom.task_set("test") if "lamp" in task.payload} <= {
        "desk 1",
        "sidetable 1",
    }
    assert "microwave" not in bedroom.vocabulary()
    assert "pillow" in bedroom.vocabulary()
    assert len(bedroom.vocabulary()) < len(Household().vocabulary())


def test_a_household_family_without_its_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="the family 'heat' needs a kitchen; add that room"):
        Household(rooms=("bedroom",), categories=("pick", "heat"))
