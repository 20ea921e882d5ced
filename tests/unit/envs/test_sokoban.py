"""Sokoban: rooms in signs, the package's moves and rewards, and task sets by content."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Household, Sokoban, sokoban
from groupwise.envs.kit import packages
from groupwise.envs.kit.task_set import draw_task_sets
from groupwise.envs.small.boxes import BoxLevel, Position
from groupwise.envs.sokoban import read_room, write_room

SMALL = {"num_train": 6, "num_validation": 1, "num_test": 2}
ROOM = (
    "######",
    "#@$_.#",
    "#____#",
    "#____#",
    "#____#",
    "######",
)


def open_room(*rows: str, **fields: Any) -> Any:
    part = Sokoban(**fields)
    return part.open(Task.create(env="sokoban", split="train", payload={"room": list(rows)}))


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    sokoban._import_module.cache_clear()
    monkeypatch.setattr(packages, "import_module", raise_missing)
    with pytest.raises(ConfigError) as raised:
        Sokoban(num_train=3).task_set("train")
    assert str(raised.value) == (
        "the environment 'sokoban' needs a package that is not installed; pip install 'groupwise[sokoban]'"
    )


def test_a_task_of_another_environment() -> None:
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        Sokoban().open(Household().task_set("test")[0])


def test_rooms_that_could_not_be_solved_in_time_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_moves is 20, more than max_steps \(10\), so"):
        Sokoban(max_steps=10)


def test_a_room_in_signs() -> None:
    level, position = read_room(ROOM)
    assert (position.at, position.boxes, level.targets) == ((1, 1), {(1, 2)}, {(1, 4)})
    assert len(level.walls) == 20


@given(st.data())
def test_signs_say_all_of_a_room(data: st.DataObject) -> None:
    size = data.draw(st.integers(5, 8))
    free = [(row, column) for row in range(1, size - 1) for column in range(1, size - 1)]
    drawn = data.draw(st.permutations(free))
    number = data.draw(st.integers(1, 3))
    boxes, rest = frozenset(drawn[:number]), drawn[number:]
    targets = frozenset(data.draw(st.permutations(free))[:number])
    edge = {(row, column) for row in range(size) for column in range(size)} - set(free)
    level, position = BoxLevel(size, frozenset(edge), targets), Position(rest[0], boxes)
    assert read_room(write_room(level, position)) == (level, position)


PUSH = {"up": 1, "down": 2, "left": 3, "right": 4}
"""The package's numbers of the moves that also push."""


def open_in_package(rows: tuple[str, ...]) -> Any:
    """The package's world, set to a room."""
    level, position = read_room(rows)
    package = sokoban._import_module("sokoban_env")
    world = package.SokobanEnv(
        dim_room=(level.size, level.size), max_steps=-1, num_boxes=len(position.boxes), reset=False
    )
    world.room_fixed, world.room_state = (np.ones((level.size, level.size), dtype=int) for _ in range(2))
    for cell in level.walls:
        world.room_fixed[cell] = world.room_state[cell] = 0
    for cell in level.targets:
        world.room_fixed[cell] = world.room_state[cell] = 2
    for cell in position.boxes:
        world.room_state[cell] = 3 if cell in level.targets else 4
    world.room_state[position.at] = 5
    world.player_position = np.array(position.at)
    world.num_env_steps = world.reward_last = 0
    world.boxes_on_target = len(position.boxes & level.targets)
    return world


@pytest.mark.filterwarnings("ignore")
class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def _gym_sokoban(self) -> None:
        pytest.importorskip("gym_sokoban", reason="pip install 'groupwise[sokoban]' to push its boxes")
        sokoban._import_module.cache_clear()

    def test_pushing_a_box_home(self) -> None:
        environment = open_room(*ROOM)
        first = environment.observe()
        assert first.text.splitlines()[1] == "# @ $ _ . #"
        assert first.admissible == ("down", "right")
        assert first.state_key == "row 1 column 1; row 1 column 2"
        assert environment.expert() == "right"
        pushed = environment.act("right")
        assert (pushed.reward, pushed.success) == (pytest.approx(-0.1), None)
        assert pushed.observation.text.splitlines()[1] == "# _ @ $ . #"
        last = environment.act("right")
        assert (last.reward, last.success) == (pytest.approx(10.9), True)
        assert last.observation.text.splitlines()[1] == "# _ _ @ * #"

    def test_off_a_target_and_against_a_wall(self) -> None:
        environment = open_room("######", "#@*_.#", "#_$__#", "#____#", "#____#", "######", num_boxes=2)
        assert environment.act("right").reward == pytest.approx(-1.1)
        assert environment.observe().text.splitlines()[1] == "# _ + $ . #"
        wall = environment.act("up")
        assert (wall.accepted, wall.reward) == (False, pytest.approx(-0.1))
        assert environment.act("sing").reward == pytest.approx(-0.1), "nothing is cheaper than a move"
        assert wall.observation.text.splitlines()[0] == "Nothing happens."

    def test_what_is_shown_is_what_the_package_holds(self) -> None:
        part = Sokoban(**SMALL, num_boxes=2, size=7, max_moves=30, max_steps=40)
        for task in part.task_set("train"):
            environment = part.open(task)
            world = open_in_package(tuple(task.payload["room"]))
            while (action := environment.expert()) is not None:
                outcome = environment.act(action)
                _, reward, is_done, _ = world.step(PUSH[action], observation_mode="tiny_rgb_array")
                assert (outcome.reward, bool(outcome.success)) == (reward, is_done)
                state = world.room_state
                assert tuple(np.argwhere(state == 5)[0]) == environment._position.at
                boxes = {(int(r), int(c)) for r, c in np.argwhere((state == 3) | (state == 4))}
                assert boxes == environment._position.boxes
            assert outcome.success is True

    def test_drawing_rooms_leaves_the_process_wide_generators_alone(self) -> None:
        draw_task_sets.cache_clear()
        random.seed(3)
        np.random.seed(3)
        expected = random.random(), np.random.random()
        random.seed(3)
        np.random.seed(3)
        Sokoban(**SMALL).task_set("train")
        assert (random.random(), np.random.random()) == expected

    def test_no_room_is_in_two_task_sets(self) -> None:
        part = Sokoban(**SMALL)
        rooms = {split: {tuple(task.payload["room"]) for task in part.task_set(split)} for split in SPLITS}
        assert {split: len(rooms_there) for split, rooms_there in rooms.items()} == {
            "train": 6,
            "validation": 1,
            "test": 2,
        }
        assert len(set().union(*rooms.values())) == 9
        assert all(len(room) == 6 for rooms_there in rooms.values() for room in rooms_there)
