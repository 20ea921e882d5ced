"""Box pushing: rules by hand, levels that can be solved, and the expert against another search."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import ConfigError, Task
from groupwise.envs import Boxes
from groupwise.envs.small.boxes import BoxesEnvironment

PLAIN = Boxes()


def level(**changes: Any) -> Task:
    payload = {"size": 4, "walls": [], "targets": [[0, 3]], "boxes": [[1, 1]], "start": [1, 0]} | changes
    return Task.create(env="boxes", payload=payload)


def test_a_solution_by_hand() -> None:
    environment = PLAIN.open(level())
    first = environment.observe()
    assert first.goal == "push the box to row 0 column 3."
    assert first.text == "You are at row 1 column 0. Box at row 1 column 1."
    assert first.admissible == ("up", "down", "right")
    assert environment.act("right").observation.text == "You are at row 1 column 1. Box at row 1 column 2."
    environment.act("right")
    assert environment.observe().state_key == "row 1 column 2; row 1 column 3"
    blocked = environment.act("right")
    assert (blocked.accepted, blocked.observation.text.startswith("Nothing happens. You are at row 1 column 2")) == (
        False,
        True,
    )
    environment.act("down")
    environment.act("right")
    last = environment.act("up")
    assert (last.reward, last.terminated, last.success) == (1.0, True, True)


def test_a_box_does_not_move_against_a_box_or_a_wall() -> None:
    two = PLAIN.open(level(boxes=[[1, 1], [1, 2]], targets=[[0, 3], [0, 0]]))
    assert two.observe().admissible == ("up", "down")
    walled = PLAIN.open(level(walls=[[1, 2], [0, 0]]))
    assert walled.observe().admissible == ("down",)
    assert walled.observe().text.endswith("Wall at row 0 column 0, row 1 column 2.")


def fewest_steps(environment: BoxesEnvironment, max_depth: int) -> int:
    """Iterative deepening over forks: another search than the expert's."""

    def can_solve(current: BoxesEnvironment, depth: int, seen: dict[object, int]) -> bool:
        key = current.observe().state_key
        if seen.get(key, -1) >= depth:
            return False
        seen[key] = depth
        for move in current.observe().admissible or ():
            fork = current.fork()
            if fork.act(move).success or (depth > 1 and can_solve(fork, depth - 1, seen)):
                return True
        return False

    return next(depth for depth in range(1, max_depth + 1) if can_solve(environment, depth, {}))


@pytest.mark.parametrize("part", [Boxes(size=4), Boxes(size=4, num_boxes=2, num_walls=1, num_moves=10)], ids=str)
def test_every_level_can_be_solved_in_time_and_the_expert_does_it_fastest(part: Boxes) -> None:
    for task in part.task_set("test")[:12]:
        environment, steps = part.open(task), 1
        shortest = fewest_steps(environment.fork(), part.num_moves)
        while not environment.act(environment.expert() or "").ended:
            steps += 1
        assert steps == shortest <= part.num_moves


def test_the_expert_finds_its_way_back_and_gives_up_a_dead_end() -> None:
    environment = PLAIN.open(level())
    for move in ("down", "down"):
        environment.act(move)
    assert environment.expert() is not None
    stuck = PLAIN.open(level(boxes=[[2, 1]], start=[1, 1], targets=[[0, 3]]))
    stuck.act("down")
    assert stuck.expert() is None, "the box lies at the lower wall and can never leave it"


def test_levels_that_might_take_too_long_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        Boxes(num_moves=30)
    assert "num_moves is 30, more than max_steps (20), so some levels cannot be solved; increase max_steps" in str(
        raised.value
    )
