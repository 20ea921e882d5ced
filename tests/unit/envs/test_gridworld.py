"""Lakes: moves, holes, slips that belong to the task, and the expert against a search."""

from __future__ import annotations

from collections import Counter, deque

import pytest

from groupwise import Task
from groupwise.envs import Gridworld
from groupwise.envs.kit.cells import MOVES
from groupwise.envs.small.gridworld import GridworldEnvironment, find_best_moves, slip_move

PLAIN = Gridworld()


def lake(*rows: str, slip: float = 0.0, seed: int = 0) -> Task:
    return Task.create(env="gridworld", seed=seed, payload={"rows": list(rows), "slip": slip})


def test_a_crossing_by_hand() -> None:
    environment = PLAIN.open(lake("S.H", "...", "H.G"))
    first = environment.observe()
    assert first.goal == "reach row 2 column 2."
    assert first.text == "You are at row 0 column 0. up: edge. down: ice. left: edge. right: ice."
    assert first.admissible == ("up", "down", "left", "right")
    assert environment.act("up").observation.text == first.text, "over the edge it stays"
    assert environment.act("down").observation.text == (
        "You are at row 1 column 0. up: ice. down: hole. left: edge. right: ice."
    )
    assert not environment.act("jump").accepted
    assert environment.observe().text.startswith("Nothing happens. You are at row 1 column 0.")
    environment.act("right")
    environment.act("right")
    last = environment.act("down")
    assert (last.reward, last.terminated, last.success) == (1.0, True, True)


def test_a_hole_ends_the_rollout_without_reward() -> None:
    environment = PLAIN.open(lake("SH.", "...", "..G"))
    last = environment.act("right")
    assert last.observation.text == "You fall into a hole."
    assert (last.reward, last.terminated, last.truncated, last.success) == (0.0, True, False, False)


@pytest.mark.parametrize(
    ("drawn", "way"), [(0.0, "left"), (0.0999, "left"), (0.1, "right"), (0.1999, "right"), (0.2, "up"), (0.9, "up")]
)
def test_a_slip_goes_to_either_side(drawn: float, way: str) -> None:
    assert slip_move("up", 0.2, drawn) == way


def test_slips_come_as_often_as_they_should_and_belong_to_seed_and_step() -> None:
    rows = ("." * 9,) * 4 + ("....S....",) + ("." * 9,) * 3 + ("........G",)
    ends: Counter[object] = Counter()
    for seed in range(3000):
        task = lake(*rows, slip=0.3, seed=seed)
        one, other = PLAIN.open(task).act("up"), PLAIN.open(task).act("up")
        assert one == other
        ends[one.observation.state_key] += 1
    # 70 % straight, 15 % to each side; a standard deviation of the counts is 25 and 20
    assert abs(ends["row 3 column 4"] - 2100) < 125
    assert abs(ends["row 4 column 3"] - 450) < 100
    assert abs(ends["row 4 column 5"] - 450) < 100


def test_forks_meet_the_same_slips() -> None:
    rows = ("....", ".S..", "..H.", "...G")
    for seed in range(50):
        environment = PLAIN.open(lake(*rows, slip=0.5, seed=seed))
        environment.act("up")
        fork = environment.fork()
        for action in ("left", "down", "right", "up", "down"):
            one, other = environment.act(action), fork.act(action)
            assert one == other
            if one.ended:
                break


def fewest_steps(environment: GridworldEnvironment) -> int:
    queue, seen = deque([(environment, 0)]), {environment.observe().state_key}
    while queue:
        current, steps = queue.popleft()
        for move in MOVES:
            fork = current.fork()
            outcome = fork.act(move)
            if outcome.success:
                return steps + 1
            if not outcome.ended and outcome.observation.state_key not in seen:
                seen.add(outcome.observation.state_key)
                queue.append((fork, steps + 1))
    raise AssertionError("the goal cannot be reached")


def test_without_slips_the_expert_takes_a_shortest_way() -> None:
    part = Gridworld(size=5, num_holes=6, max_steps=30)
    for task in part.task_set("test")[:60]:
        environment, steps = part.open(task), 1
        shortest = fewest_steps(environment.fork())
        while not environment.act(environment.expert() or "").ended:
            steps += 1
        assert steps == shortest


def test_on_slippery_ice_the_expert_keeps_away_from_holes() -> None:
    # The straight way passes between two holes; with slips, the way around is safer.
    rows = ("HHH..", "S...G", "HHH..", ".....", ".....")
    assert find_best_moves(rows, 0.0)[1, 0] == "right"
    rows = (".....", "HSH.G", ".....", ".....", "HHHHH")
    straight, careful = find_best_moves(rows, 0.0), find_best_moves(rows, 0.5)
    assert straight[0, 1] == "right"
    assert careful[0, 1] == "up", "along the edge it can slip sideways only, never into the holes"


def test_slippery_task_sets_hold_what_the_expert_can_win() -> None:
    part = Gridworld(slip=0.2)
    for task in part.task_set("test"):
        environment = part.open(task)
        while not (outcome := environment.act(environment.expert() or "")).ended:
            pass
        assert outcome.success
