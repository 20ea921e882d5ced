"""A frozen lake in words: walk over ice to the goal and around the holes, slippery or not."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.cells import MOVES, Cell, describe_cell, is_inside, list_cells, shift
from groupwise.envs.kit.draws import Draws, draw_uniform
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part

ENV = "gridworld"
SIZES = TaskSetSizes(train=1000, validation=100, test=200)
MAX_SIZE = 10
SIDEWAYS = {"up": ("left", "right"), "down": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}
"""Where a move may slip to."""
PATIENCE_FACTOR = 0.99
"""The expert's discount per step: it prefers the shorter of two equally safe ways."""
CLOSE_ENOUGH = 1e-4
"""A sweep that improves no value by more than this ends the expert's value iteration."""
Lake = tuple[str, ...]
"""The rows of a lake: S start, G goal, H hole, and dots for ice."""


class Gridworld(Part, slot="env", self_contained=True):
    """A lake of ice and holes; reach the goal. Falling into a hole ends the rollout without a reward.

    With probability `slip`, a move goes to one of its two sides instead, half to each. A slip depends on the task's
    seed and the step number, so all rollouts of a task have the same slips, and forks and replays are exact.

    Choices: every move is admissible everywhere. A move over the edge has no effect, as in Gymnasium's FrozenLake. On
    slippery lakes the expert takes the way that most likely reaches the goal, without knowing the next slips. The task
    sets contain only tasks that it solves. `state_key` is the cell.
    """

    size: Annotated[int, Field(ge=3, le=MAX_SIZE)] = 4
    """Rows and columns of the lake."""
    num_holes: Annotated[int, Field(ge=0)] = 3
    """Holes in the ice."""
    slip: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a move goes sideways."""
    max_steps: Annotated[int, Field(ge=1)] = 20
    """Steps before a rollout is truncated."""
    success_reward: float = 1.0
    """Reward of the step that reaches the goal."""
    goal_in_text: bool = False
    """Whether each text begins with the task; for prompts that do not say `Observation.goal` themselves."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        settings = self.size, self.num_holes, self.slip, self.max_steps
        return choose_split(draw_task_sets(ENV, _draw, *settings, sizes=SIZES), split)

    def open(self, task: Task) -> GridworldEnvironment:
        check_env(task, ENV)
        return GridworldEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        sentences = "Task: reach. You are at row, column. You fall into a hole. up: ice. edge. goal. Nothing happens."
        return vocabulary_of((self.instruction(), sentences, *MOVES, *(str(n) for n in range(MAX_SIZE))))

    def instruction(self) -> str:
        return "Cross the ice to the goal and avoid the holes: up, down, left or right."


class GridworldEnvironment(SteppedEnvironment):
    """One rollout to cross a lake."""

    def __init__(self, task: Task, part: Gridworld) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._seed, self._slip = part, task.seed, float(task.payload["slip"])
        self._lake: Lake = tuple(task.payload["rows"])
        self._at = find_symbol(self._lake, "S")
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        step = self._progress.step()
        if action not in MOVES:
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), accepted=False)
        move = slip_move(action, self._slip, draw_uniform(ENV, self._seed, step)) if self._slip else action
        self._at = move_over(self._lake, self._at, move)
        surface = surface_at(self._lake, self._at)
        if surface == "ice":
            return self._progress.outcome(self._observe())
        reward = self._part.success_reward if surface == "goal" else 0.0
        return self._progress.outcome(self._observe(), success=surface == "goal", reward=reward)

    def expert(self) -> str | None:
        return None if self._progress.ended else find_best_moves(self._lake, self._slip)[self._at]

    def _observe(self, notice: str = "") -> Observation:
        goal = tell_goal(self._lake)
        text = tell_text(self._lake, self._at)
        text = f"{notice} {text}" if notice else text
        return Observation(
            text=prepend_goal(goal, text) if self._part.goal_in_text else text,
            state_key=describe_cell(self._at),
            admissible=tuple(MOVES),
            goal=goal,
        )


def tell_goal(lake: Lake) -> str:
    return f"reach {describe_cell(find_symbol(lake, 'G'))}."


def tell_text(lake: Lake, cell: Cell) -> str:
    if surface_at(lake, cell) == "hole":
        return "You fall into a hole."
    around = ". ".join(f"{move}: {surface_at(lake, shift(cell, move))}" for move in MOVES)
    return f"You are at {describe_cell(cell)}. {around}."


def slip_move(move: str, slip: float, drawn: float) -> str:
    """Where a move goes: to one side for the lowest draws, to the other for the next, straight on for the rest."""
    if drawn >= slip:
        return move
    return SIDEWAYS[move][drawn >= slip / 2]


@lru_cache(maxsize=4096)
def find_best_moves(lake: Lake, slip: float) -> dict[Cell, str]:
    """The move that most likely leads to the goal, from each cell; without slips, a shortest way.

    Value iteration: value(cell) = PATIENCE_FACTOR * max over moves of the mean value of where the move may end.
    """
    value = {cell: float(surface_at(lake, cell) == "goal") for cell in list_cells(len(lake))}
    goal = find_symbol(lake, "G")
    # From the goal outwards: each sweep then carries the goal's value all the way.
    outwards = sorted(value, key=lambda cell: abs(cell[0] - goal[0]) + abs(cell[1] - goal[1]))
    ice = [cell for cell in outwards if surface_at(lake, cell) == "ice"]
    ends = {cell: [list_ends(lake, cell, move) for move in MOVES] for cell in ice}
    straight, aside = 1 - slip, slip / 2
    change, worth = 1.0, {cell: [0.0] for cell in ice}
    while change > CLOSE_ENOUGH:
        change = 0.0
        for cell in ice:
            worth[cell] = [
                straight * value[on] + aside * (value[left] + value[right]) for on, left, right in ends[cell]
            ]
            better = PATIENCE_FACTOR * max(worth[cell])
            change = max(change, better - value[cell])
            value[cell] = better
    return {cell: tuple(MOVES)[worth[cell].index(max(worth[cell]))] for cell in ice}


def list_ends(lake: Lake, cell: Cell, move: str) -> tuple[Cell, Cell, Cell]:
    left, right = SIDEWAYS[move]
    return move_over(lake, cell, move), move_over(lake, cell, left), move_over(lake, cell, right)


def _draw(size: int, num_holes: int, slip: float, max_steps: int, index: int) -> Proposal | None:
    """A lake with start, goal and holes anywhere, that the expert crosses in time."""
    draws = Draws(ENV, size, num_holes, index)
    if num_holes + 2 > size * size:
        return None
    start, goal, *holes = draws.sample(list_cells(size), num_holes + 2)
    symbols = {start: "S", goal: "G"} | dict.fromkeys(holes, "H")
    lake = tuple("".join(symbols.get((row, column), ".") for column in range(size)) for row in range(size))
    seed = draws.below(2**31) if slip else 0
    proposal = Proposal(payload={"rows": list(lake), "slip": slip}, seed=seed)
    return proposal if _arrives(lake, slip, seed, max_steps) else None


def _arrives(lake: Lake, slip: float, seed: int, max_steps: int) -> bool:
    at, best = find_symbol(lake, "S"), find_best_moves(lake, slip)
    for step in range(max_steps):
        at = move_over(lake, at, slip_move(best[at], slip, draw_uniform(ENV, seed, step)))
        if surface_at(lake, at) != "ice":
            return surface_at(lake, at) == "goal"
    return False


def move_over(lake: Lake, at: Cell, move: str) -> Cell:
    """The cell that a move leads to; one over the edge stays."""
    there = shift(at, move)
    return there if is_inside(there, len(lake)) else at


def surface_at(lake: Lake, cell: Cell) -> str:
    if not is_inside(cell, len(lake)):
        return "edge"
    return {"H": "hole", "G": "goal"}.get(lake[cell[0]][cell[1]], "ice")


def find_symbol(lake: Lake, symbol: str) -> Cell:
    row = next(row for row, line in enumerate(lake) if symbol in line)
    return row, lake[row].index(symbol)
