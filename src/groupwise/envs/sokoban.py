"""Sokoban's rooms as gym-sokoban makes them, shown as signs on a grid."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.cells import MOVES, Cell, describe_cell, describe_cells
from groupwise.envs.kit.draws import PrivateRandom
from groupwise.envs.kit.packages import import_package
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, check_env, choose_split, draw_task_sets, task_set_sizes_of
from groupwise.envs.kit.words import NOTHING_HAPPENS, vocabulary_of
from groupwise.envs.small.boxes import BoxLevel, Position, find_next_move, find_shortest_solution, push
from groupwise.parts.part import Part

ENV = "sokoban"
WALL, FLOOR, TARGET, BOX, PLACED, PLAYER, STANDING = "#", "_", ".", "$", "*", "@", "+"
"""The signs in which Sokoban's levels are usually written, with `_` for floor."""
SIGNS = "# wall, _ floor, . target, $ box, * box on target, @ you, + you on target"
GOAL = "push every box onto a target."
STEP_REWARD, LAST_BOX_REWARD = -0.1, 10.0
MAX_TASKS = 10_000


class Sokoban(Part, slot="env"):
    """Sokoban (Schrader 2018, gym-sokoban): push every box onto a target; boxes cannot be pulled.

    The package draws the rooms as in Racanière et al. 2017 (arXiv:1707.06203), by playing backwards. Moves and rewards
    are the package's: -0.1 per step, 1 for a box onto a target, -1 off it, 10 for the last one. A fork is a copy. The
    expert searches a shortest solution; the package has none.

    Choices: four actions, the package's pushes; they walk if there is nothing to push. A move that changes nothing is
    not listed; it is invalid and costs a step, like any other text. A room's content decides its split. Rooms whose
    shortest solution has more than `max_moves` moves are left out. The `state_key` is the position of the agent and the
    boxes. A box that is stuck in a corner is not detected.
    """

    size: Annotated[int, Field(ge=5, le=10)] = 6
    """Rows and columns of a room, outer walls included."""
    num_boxes: Annotated[int, Field(ge=1, le=3)] = 1
    """Boxes, and targets."""
    max_moves: Annotated[int, Field(ge=2)] = 20
    """Moves that a shortest solution may have."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 500
    """Tasks in the train set, if there are so many different rooms."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 50
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 30
    """Steps before a rollout is truncated."""

    @model_validator(mode="after")
    def _solvable_in_time(self) -> Sokoban:
        if self.max_moves > self.max_steps:
            raise ValueError(
                f"max_moves is {self.max_moves}, more than max_steps ({self.max_steps}), "
                "so some rooms cannot be solved; increase max_steps"
            )
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        settings = self.size, self.num_boxes, self.max_moves
        return choose_split(draw_task_sets(ENV, _draw, *settings, sizes=task_set_sizes_of(self)), split)

    def open(self, task: Task) -> SokobanEnvironment:
        check_env(task, ENV)
        return SokobanEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary_of((self.instruction(), SIGNS, NOTHING_HAPPENS, GOAL, *MOVES))

    def instruction(self) -> str:
        return f"Push every box onto a target: up, down, left or right. {SIGNS}."


class SokobanEnvironment(SteppedEnvironment):
    """One rollout of a room."""

    def __init__(self, task: Task, part: Sokoban) -> None:
        super().__init__(task, part.max_steps)
        self._level, self._position = read_room(tuple(task.payload["room"]))
        self._plan: dict[Position, str] = {}  # info about the room, true in every fork
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        self._progress.step()
        after = push(self._level, self._position, action) if action in MOVES else None
        if after is None:
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), reward=STEP_REWARD, accepted=False)
        gained = len(after.boxes & self._level.targets) - len(self._position.boxes & self._level.targets)
        self._position = after
        reward = STEP_REWARD + gained  # one box is pushed at a time
        if after.boxes == self._level.targets:
            return self._progress.outcome(self._observe(), success=True, reward=reward + LAST_BOX_REWARD)
        return self._progress.outcome(self._observe(), reward=reward)

    def expert(self) -> str | None:
        return None if self._progress.ended else find_next_move(self._level, self._position, self._plan)

    def _observe(self, notice: str = "") -> Observation:
        level, position = self._level, self._position
        picture = "\n".join(" ".join(row) for row in write_room(level, position))
        return Observation(
            text=f"{notice}\n{picture}".strip(),
            state_key=f"{describe_cell(position.at)}; {describe_cells(position.boxes)}",
            admissible=tuple(move for move in MOVES if push(level, position, move) is not None),
            goal=GOAL,
        )


def read_room(rows: tuple[str, ...]) -> tuple[BoxLevel, Position]:
    def where(signs: str) -> frozenset[Cell]:
        return frozenset((r, c) for r, row in enumerate(rows) for c, sign in enumerate(row) if sign in signs)

    (player,) = where(PLAYER + STANDING)
    level = BoxLevel(len(rows), where(WALL), where(TARGET + PLACED + STANDING))
    return level, Position(player, where(BOX + PLACED))


def write_room(level: BoxLevel, position: Position) -> tuple[str, ...]:
    """A room in signs: `read_room` gives it back."""

    def sign(cell: Cell) -> str:
        is_target = cell in level.targets
        if cell in level.walls:
            return WALL
        if cell == position.at:
            return STANDING if is_target else PLAYER
        if cell in position.boxes:
            return PLACED if is_target else BOX
        return TARGET if is_target else FLOOR

    return tuple("".join(sign((row, column)) for column in range(level.size)) for row in range(level.size))


def _draw(size: int, num_boxes: int, max_moves: int, seed: int) -> Proposal | None:
    """A room of the package; None if it found none, or if the room needs too many moves."""
    generate = _import_module("room_utils").generate_room
    with PrivateRandom(seed).in_place():
        try:
            fixed, state, _ = generate(dim=(size, size), num_steps=int(1.7 * 2 * size), num_boxes=num_boxes)
        except (RuntimeError, RuntimeWarning):  # it raises both
            return None
    level = BoxLevel(size, _find_cells(fixed == 0), _find_cells(fixed == 2))
    position = Position(next(iter(_find_cells(state == 5))), _find_cells((state == 3) | (state == 4)))
    if not 0 < len(find_shortest_solution(level, position)) <= max_moves:
        return None
    return Proposal(payload={"room": list(write_room(level, position))})


def _find_cells(mask: Any) -> frozenset[Cell]:
    return frozenset((int(row), int(column)) for row, column in np.argwhere(mask))


@cache
def _import_module(module: str) -> Any:
    with redirect_stderr(StringIO()), redirect_stdout(StringIO()):  # gym prints a long deprecation warning
        return import_package(ENV, f"gym_sokoban.envs.{module}")
