"""Box pushing in words, after Sokoban: levels made by playing backwards, so that each can be solved."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.cells import MOVES, Cell, describe_cell, describe_cells, is_inside, list_cells, shift
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part

ENV = "boxes"
SIZES = TaskSetSizes(train=1000, validation=100, test=200)
MAX_SIZE = 8


class BoxLevel(NamedTuple):
    """What never moves: the size of the square, its inner walls, and the cells the boxes belong on."""

    size: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]

    def is_free(self, cell: Cell) -> bool:
        return is_inside(cell, self.size) and cell not in self.walls


class Position(NamedTuple):
    """What moves: the agent and the boxes."""

    at: Cell
    boxes: frozenset[Cell]


class Boxes(Part, slot="env", self_contained=True):
    """Push every box onto a target; boxes can be pushed, not pulled, and one at a time.

    A level is made from its end: the boxes stand on their targets, and the agent walks and pulls at random for
    `num_moves` moves. Played forwards, that is a solution, so every level can be solved in so many moves.

    Choices: everything is visible, as coordinates. A move against a wall or a blocked box is invalid: "Nothing
    happens." A box that is stuck in a corner is not detected; the rollout then runs to its limit. `state_key` is the
    position of the agent and the boxes.
    """

    size: Annotated[int, Field(ge=3, le=MAX_SIZE)] = 5
    """Rows and columns of the square."""
    num_boxes: Annotated[int, Field(ge=1, le=3)] = 1
    """Boxes, and targets; the expert's search takes a second or more with three on a large square."""
    num_walls: Annotated[int, Field(ge=0, le=8)] = 0
    """Cells of wall within the square."""
    num_moves: Annotated[int, Field(ge=2)] = 14
    """Moves of the backward play that makes a level: the most that a solution needs."""
    max_steps: Annotated[int, Field(ge=1)] = 20
    """Steps before a rollout is truncated."""
    success_reward: float = 1.0
    """Reward of the step that puts the last box in its place."""
    goal_in_text: bool = False
    """Whether each text begins with the task; for prompts that do not say `Observation.goal` themselves."""

    @model_validator(mode="after")
    def _solvable_in_time(self) -> Boxes:
        if self.num_moves > self.max_steps:
            raise ValueError(
                f"num_moves is {self.num_moves}, more than max_steps ({self.max_steps}), "
                "so some levels cannot be solved; increase max_steps"
            )
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        settings = self.size, self.num_boxes, self.num_walls, self.num_moves
        return choose_split(draw_task_sets(ENV, _draw, *settings, sizes=SIZES), split)

    def open(self, task: Task) -> BoxesEnvironment:
        check_env(task, ENV)
        return BoxesEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        sentences = "Task: push the box to row, column. You are at. Box at. Wall at. Nothing happens."
        return vocabulary_of((self.instruction(), sentences, *MOVES, *(str(n) for n in range(MAX_SIZE))))

    def instruction(self) -> str:
        return "Push every box onto a target: up, down, left or right."


class BoxesEnvironment(SteppedEnvironment):
    """One rollout of a level."""

    def __init__(self, task: Task, part: Boxes) -> None:
        super().__init__(task, part.max_steps)
        self._part, payload = part, task.payload
        self._level = BoxLevel(payload["size"], _read_cells(payload["walls"]), _read_cells(payload["targets"]))
        self._position = Position((payload["start"][0], payload["start"][1]), _read_cells(payload["boxes"]))
        self._plan: dict[Position, str] = {}  # info about the level, true in every fork
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        self._progress.step()
        after = push(self._level, self._position, action) if action in MOVES else None
        if after is None:
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), accepted=False)
        self._position = after
        if after.boxes == self._level.targets:
            return self._progress.outcome(self._observe(), success=True, reward=self._part.success_reward)
        return self._progress.outcome(self._observe())

    def expert(self) -> str | None:
        return None if self._progress.ended else find_next_move(self._level, self._position, self._plan)

    def _observe(self, notice: str = "") -> Observation:
        level, position = self._level, self._position
        goal = f"push the box to {describe_cells(level.targets)}."
        text = f"You are at {describe_cell(position.at)}. Box at {describe_cells(position.boxes)}."
        text += f" Wall at {describe_cells(level.walls)}." if level.walls else ""
        text = f"{notice} {text}" if notice else text
        return Observation(
            text=prepend_goal(goal, text) if self._part.goal_in_text else text,
            state_key=f"{describe_cell(position.at)}; {describe_cells(position.boxes)}",
            admissible=tuple(move for move in MOVES if push(level, position, move) is not None),
            goal=goal,
        )


def find_next_move(level: BoxLevel, position: Position, plan: dict[Position, str]) -> str | None:
    if position not in plan:
        plan |= find_shortest_solution(level, position)
    return plan.get(position)


def push(level: BoxLevel, position: Position, move: str) -> Position | None:
    there = shift(position.at, move)
    if not level.is_free(there):
        return None
    if there not in position.boxes:
        return Position(there, position.boxes)
    beyond = shift(there, move)
    if not level.is_free(beyond) or beyond in position.boxes:
        return None
    return Position(there, position.boxes - {there} | {beyond})


def find_shortest_solution(level: BoxLevel, start: Position) -> dict[Position, str]:
    """The move in each position of a shortest solution (breadth first); empty if there is none."""
    came: dict[Position, tuple[Position, str]] = {}
    queue = deque([start])
    while queue:
        position = queue.popleft()
        if position.boxes == level.targets:
            solution: dict[Position, str] = {}
            while position != start:
                position, move = came[position]
                solution[position] = move
            return solution
        for move in MOVES:
            after = push(level, position, move)
            if after is not None and after not in came and after != start:
                came[after] = (position, move)
                queue.append(after)
    return {}


def _draw(size: int, num_boxes: int, num_walls: int, num_moves: int, index: int) -> Proposal | None:
    """Put boxes on targets, walk and pull backwards; None if every box is on a target again."""
    draws = Draws(ENV, size, num_boxes, num_walls, num_moves, index)
    if 2 * num_boxes + num_walls + 1 > size * size:
        return None
    at, *drawn = draws.sample(list_cells(size), 1 + num_boxes + num_walls)
    level = BoxLevel(size, frozenset(drawn[num_boxes:]), frozenset(drawn[:num_boxes]))
    position = Position(at, level.targets)
    for _ in range(num_moves):
        positions = list(_list_positions_before(level, position))
        # Pulls are rare among walks: draw among them first, or most levels would leave their boxes where they were.
        pulls = [earlier for earlier in positions if earlier.boxes != position.boxes]
        position = draws.pick(pulls) if pulls and draws.below(2) else draws.pick(positions or [position])
    if position.boxes == level.targets:
        return None
    payload = {
        "size": size,
        "walls": sorted(map(list, level.walls)),
        "targets": sorted(map(list, level.targets)),
        "boxes": sorted(map(list, position.boxes)),
        "start": list(position.at),
    }
    return Proposal(payload=payload)


def _list_positions_before(level: BoxLevel, position: Position) -> Iterator[Position]:
    """The positions from which one move leads here: the agent stepped back, and may have pulled a box with it."""
    for move in MOVES:
        rows, columns = MOVES[move]
        ahead, behind = shift(position.at, move), (position.at[0] - rows, position.at[1] - columns)
        if not level.is_free(behind) or behind in position.boxes:
            continue
        yield Position(behind, position.boxes)
        if ahead in position.boxes:
            yield Position(behind, position.boxes - {ahead} | {position.at})


def _read_cells(pairs: list[list[int]]) -> frozenset[Cell]:
    return frozenset((row, column) for row, column in pairs)
