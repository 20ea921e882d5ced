"""Several environments as one: tasks in turns by weight, each opened by its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Countdown, DataSet, Environment, Household, Identity, Mixture, check_environment
from groupwise.envs.mixture import choose_first_tasks, find_environment, list_environments, mean_max_steps
from groupwise.parts.outside import only_reading
from groupwise.parts.part import Part, Slot, check_may_open, name_of
from tests.unit.envs.row_sets import write_rows

HOME = Household(num_receptacles=3, num_objects=2, max_steps=10)


class World(Part, slot="env"):
    """A task in each split, by its position; none of it is played."""

    content: Any
    shift: int = 0
    max_steps: int = 1

    def task_set(self, split: str) -> tuple[Task, ...]:
        seed = (SPLITS.index(split) - self.shift) % len(SPLITS)
        return (Task(id=f"{split}-{self.shift}", seed=seed, payload={"content": self.content}),)

    def open(self, task: Task) -> Environment:
        raise NotImplementedError

    def vocabulary(self) -> tuple[str, ...]:
        return ()

    def instruction(self) -> str:
        return ""


def mix(*members: dict[str, Any]) -> Mixture:
    return Mixture(members=members)


def make_three_to_one() -> Mixture:
    return mix({"name": "home", "weight": 3, "env": HOME}, {"name": "sums", "env": {"kind": "countdown"}})


def test_any_beginning_of_a_task_set_is_mixed_by_weight_and_nothing_is_lost() -> None:
    part = make_three_to_one()
    for split in SPLITS:
        task_set = part.task_set(split)
        for num in (4, 8, 40):
            assert [task.tags[0] for task in task_set[:num]].count("home") == 3 * num // 4
        own = [[task.id for task in env.task_set(split)] for env in (HOME, Countdown())]
        for name, ids in zip(("home", "sums"), own, strict=True):
            assert [task.id for task in task_set if task.tags[0] == name] == ids


def test_tasks_say_whose_they_are_in_their_tags_and_are_opened_by_that_one_with_their_own() -> None:
    part = make_three_to_one()
    [task] = [
        task
        for task in part.task_set("train")[:4]
        if task.tags[0] == "home" and task.id == HOME.task_set("train")[0].id
    ]
    original = HOME.task_set("train")[0]
    assert task.tags == ("home", *(f"home/{tag}" for tag in original.tags))
    assert replace(task, tags=original.tags) == original
    assert part.open(task).observe() == HOME.open(original).observe()
    assert find_environment(part, task) == HOME
    assert find_environment(HOME, original) == HOME


def test_it_keeps_every_rule() -> None:
    results = check_environment(make_three_to_one())
    assert [result.rule for result in results if result.status == "broken"] == []


def test_what_a_run_asks_of_it() -> None:
    part = make_three_to_one()
    assert (part.max_steps, mean_max_steps(part), mean_max_steps(HOME)) == (10, 7.75, 10)
    assert part.instruction() == f"{HOME.instruction()} {Countdown().instruction()}"
    assert set(part.vocabulary()) == {*HOME.vocabulary(), *Countdown().vocabulary()}
    assert list(list_environments(part)) == ["home", "sums"]
    assert list_environments(HOME) == {"": HOME}
    first = choose_first_tasks(part, part.task_set("train"))
    assert {name: task.id for name, task in first.items()} == {
        "home": HOME.task_set("train")[0].id,
        "sums": Countdown().task_set("train")[0].id,
    }
    assert Slot("env").fill(part.config()) == part
    assert "MixtureMember(name='sums', env=Countdown)" in name_of(part)


def test_it_is_ours_and_stays_inside_only_where_all_do() -> None:
    inside = make_three_to_one()
    reaching = mix({"name": "a", "env": HOME}, {"name": "b", "env": {"kind": "data_set", "path": "a.jsonl"}})
    foreign = mix({"name": "a", "env": HOME}, {"name": "b", "env": {"kind": "tests.unit.envs.corridor:CorridorPart"}})
    assert [part.names_module for part in (inside, reaching, foreign)] == [False, False, True]
    with only_reading():
        check_may_open(inside)
        with pytest.raises(ConfigError, match="the environment 'data_set' is not loaded without --trust"):
            check_may_open(reaching)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([{"name": "a", "env": "identity"}], "members: "),
        (
            [{"name": "a", "env": "identity"}, {"name": "a", "env": "countdown"}],
            "members: two environments share a name (a, a); give each its own name",
        ),
        (
            [{"name": "a", "env": "identity"}, {"name": "b", "env": make_three_to_one()}],
            "members: a mixture within a mixture; list all environments in one",
        ),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(members: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        mix(*members)
    assert str(raised.value).startswith(f"Mixture: {message}")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("action_parser", "choice", "action_parser: a run has one action parser; set rollout.action_parser for all "),
        ("weight", 0, "members.0.weight: expected a number greater than 0, found 0"),
        ("name", "a, b", "name: string should match pattern"),
    ],
)
def test_members_that_make_no_sense_are_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        mix({"name": "a", "env": "identity", field: value}, {"name": "b", "env": "countdown"})
    assert message in str(raised.value)


def test_a_task_of_two_environments_is_refused() -> None:
    part = mix({"name": "a", "env": Identity()}, {"name": "b", "env": Identity(max_steps=9)})
    with pytest.raises(ConfigError) as raised:
        part.task_set("train")
    assert str(raised.value) == (
        f"mixture: 'a' and 'b' both have the task {Identity().task_set('train')[0].id}; mix environments whose tasks "
        "differ"
    )


def make_data_set(folder: Path, **words: list[str]) -> DataSet:
    """A data set with one question for each word, by split."""
    for split, of_split in words.items():
        write_rows(folder / f"{split}.jsonl", [{"prompt": f"Say {word}", "answer": word} for word in of_split])
    return DataSet(path=str(folder))


def test_what_one_trains_on_no_other_tests(tmp_path: Path) -> None:
    first = make_data_set(tmp_path / "a", train=["one", "two", "three"], validation=["four"], test=["five"])
    second = make_data_set(tmp_path / "b", train=["six"], validation=["seven"], test=["two", "three", "eight"])
    part = mix({"name": "a", "env": first}, {"name": "b", "env": second})
    for split in SPLITS:
        with pytest.raises(ConfigError) as raised:
            part.task_set(split)
        assert str(raised.value) == (
            "mixture: the train split of 'a' and the test split of 'b' share 2 tasks; remove them from one of "
            "the two, or evaluations use trained tasks"
        )
    apart = make_data_set(tmp_path / "c", train=["six"], validation=["seven"], test=["eight"])
    assert len(mix({"name": "a", "env": first}, {"name": "c", "env": apart}).task_set("test")) == 2


def test_prompts_that_two_data_sets_share_are_found_under_any_column(tmp_path: Path) -> None:
    first = make_data_set(tmp_path / "a", train=["one", "two"], validation=["four"], test=["five"])
    rows = [{"question": " say  ONE", "answer": "1", "split": "test"}]
    second = DataSet(
        path=write_rows(tmp_path / "b.jsonl", rows), columns={"prompt": "question", "split": "split"}
    )  # has no other split, which is nobody's fault while nobody asks for it
    with pytest.raises(ConfigError, match="the train split of 'a' and the test split of 'b' share 1 task; remove"):
        mix({"name": "a", "env": first}, {"name": "b", "env": second}).task_set("test")


def test_a_member_without_a_split_stops_only_who_asks_for_it(tmp_path: Path) -> None:
    only_tests = make_data_set(tmp_path, test=["one"])
    part = mix({"name": "a", "env": only_tests}, {"name": "b", "env": HOME})
    assert {task.tags[0] for task in part.task_set("test")} == {"a", "b"}
    with pytest.raises(ConfigError, match="has no row for the split 'train'"):
        part.task_set("train")


def test_worlds_are_compared_by_content_also_where_json_cannot_write_it() -> None:
    part = mix({"name": "a", "env": World(content=1)}, {"name": "b", "env": World(content=1, shift=1)})
    with pytest.raises(
        ConfigError, match=r"the train split of 'a' and the validation split of 'b' share 1 task; remove"
    ):
        part.task_set("train")
    opaque = mix({"name": "a", "env": World(content=b"1")}, {"name": "b", "env": World(content=b"1", shift=1)})
    assert len(opaque.task_set("train")) == 2


def test_a_strange_task_is_refused() -> None:
    with pytest.raises(RecordError, match=r"task t belongs to none of the mixture's environments \(home, sums\)"):
        make_three_to_one().open(Task(id="t", tags=("elsewhere",)))
