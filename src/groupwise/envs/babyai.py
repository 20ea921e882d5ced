"""BabyAI's levels through MiniGrid, in words: missions in rooms with doors, keys, balls and boxes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from io import StringIO
from typing import Annotated, Any, Self

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.packages import import_package
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, check_env, choose_split, draw_task_sets, task_set_sizes_of
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, RecordError, nearest

ENV = "babyai"
PREFIX = "BabyAI-"
SENTENCES = (
    "Task: Nothing happens. You see nothing, a wall step steps forward and left right. You carry nothing an open a",
    "locked a closed. go to the a object in front of you behind you on your left right pick up put next to open,",
    "then and after you.",
)
MAX_TASKS = 100_000


class Babyai(Part, slot="env"):
    """A level of BabyAI (Chevalier-Boisvert et al. 2019, arXiv:1810.08272), from MiniGrid, as text.

    The view is described as in BabyAI-Text (Carta et al. 2023, arXiv:2302.02662): things and walls with their distance.
    The reward is the package's: 1 - 0.9 * steps / its own limit for a completed mission, else 0. A fork is a deep copy.
    The expert is BabyAI's bot. It recovers from a detour, but not from an opened box.

    Choices: all seven actions of the package are accepted; actions that change nothing are not listed. A task is a
    seed, and the generated world decides its split. So no world is in two splits, and a level with few worlds has small
    task sets. The `state_key` is the whole situation: position, direction, what is carried, everything else in the
    world, and the completed parts of the mission.
    """

    level: str = "BabyAI-GoToLocal-v0"
    """Name in the package's registry; an unknown one gives the names."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 500
    """Tasks in the train set, if the level has so many different ones."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 50
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 64
    """Steps before a rollout is truncated; the level's own limit holds too."""
    goal_in_text: bool = False
    """Whether each text begins with the mission; for prompts that do not say `Observation.goal` themselves."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(draw_task_sets(ENV, _propose, self.level, sizes=task_set_sizes_of(self)), split)

    def open(self, task: Task) -> BabyaiEnvironment:
        check_env(task, ENV)
        world = start_world(task.payload["level"], task.seed)
        if _identify_world(world) != (task.payload["mission"], task.payload["start"]):
            raise RecordError(
                f"task {task.id}: seed {task.seed} now makes another level; use the minigrid version of its task set, "
                "or make the task set again"
            )
        return BabyaiEnvironment(task, self, world)

    def vocabulary(self) -> tuple[str, ...]:
        numbers = map(str, range(MAX_NUMBER + 1))
        return vocabulary_of((self.instruction(), *SENTENCES, *ACTIONS, *COLOURS, *KINDS, *FACING, *numbers))

    def instruction(self) -> str:
        return f"Do the mission, one action at a time: {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}."


class BabyaiEnvironment(SteppedEnvironment):
    """One rollout of a mission."""

    def __init__(self, task: Task, part: Babyai, world: Any) -> None:
        super().__init__(task, part.max_steps)
        self._task, self._part, self._world = task, part, world
        self._taken: tuple[int, ...] = ()
        self._guide: Guide | None = None
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if action not in ACTIONS:
            return self._progress.outcome(self._observe(NOTHING_HAPPENS), accepted=False)
        notice = "" if action in list_actions(self._world) else NOTHING_HAPPENS
        number = ACTIONS.index(action)
        _, reward, terminated, truncated, _ = self._world.step(number)
        self._taken = (*self._taken, number)
        success = bool(reward > 0) if terminated else None
        seen = self._observe(notice)
        return self._progress.outcome(seen, success=success, reward=float(reward), cut_off=bool(truncated))

    def fork(self) -> Self:
        twin = super().fork()
        twin._world, twin._guide = deepcopy(self._world), None  # the guide follows again when it is asked
        return twin

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        if self._guide is None:
            self._guide = Guide(start_world(self._task.payload["level"], self._task.seed))
        advice = self._guide.advise(self._taken)
        return None if advice is None else ACTIONS[advice]

    def _observe(self, notice: str = "") -> Observation:
        text = f"{notice} {describe_view(self._world)}".strip()
        goal = f"{self._world.mission}."
        return Observation(
            text=prepend_goal(goal, text) if self._part.goal_in_text else text,
            state_key=describe_state(self._world),
            admissible=list_actions(self._world),
            goal=goal,
        )


class Guide:
    """BabyAI's bot in its own copy of the world; it follows a rollout and must see every action."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._bot: Any = import_module("minigrid.utils.baby_ai_bot").BabyAIBot(world)
        self._followed = 0
        self._advice = self._ask(None)

    def advise(self, taken: Sequence[int]) -> int | None:
        """The bot's next action after the actions in `taken`; None if it gave up."""
        for action in taken[self._followed :]:
            self._followed += 1
            if self._bot is not None:
                self._world.step(action)
                self._advice = self._ask(action)
        return self._advice

    def _ask(self, taken: int | None) -> int | None:
        try:
            return int(self._bot.replan(taken))
        except Exception:  # the bot raises if it cannot help
            self._bot = None
            return None


def start_world(level: str, seed: int) -> Any:
    """A level's world at its beginning; what the package prints is dropped."""
    registry = _load_registry().registry
    if level not in registry or not level.startswith(PREFIX):
        known = [name for name in registry if name.startswith(PREFIX)]
        raise ConfigError(f"babyai: there is no level {level!r}; {nearest(level, known)}")
    with redirect_stdout(StringIO()):
        world = _load_registry().make(level, disable_env_checker=True).unwrapped
        world.gen_obs = dict  # its numeric observations take longer than a step, and are not used
        world.reset(seed=seed)
    return world


def _propose(level: str, seed: int) -> Proposal:
    mission, start = _identify_world(start_world(level, seed))
    return Proposal(payload={"level": level, "mission": mission, "start": start}, seed=seed, tags=(level,))


def _identify_world(world: Any) -> tuple[str, str]:
    return str(world.mission), describe_state(world)


@cache
def _load_registry() -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import_package(ENV, "minigrid")
    return import_package(ENV, "gymnasium")


# A BabyAI world in words: what is in view, which actions do something, what makes a situation.

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done")
"""The package's seven actions, in its order."""
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
KINDS = ("box", "ball", "key", "door", "wall")
FACING = ("right", "down", "left", "up")
"""The package's four directions, in its order."""
MAX_NUMBER = 30
"""The largest number of steps or rows in words."""
AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""A step in each of the four directions, in columns and rows."""
EMPTY = bytes((1, 0, 0))
"""How the package encodes a cell with nothing in it."""


@dataclass(frozen=True, slots=True)
class OpaqueCell:
    """A cell that is in a view but not in the world: it hides what is behind it."""

    type: str

    def see_behind(self) -> bool:
        return False


OUTSIDE, UNSEEN = OpaqueCell("wall"), OpaqueCell("unseen")
View = list[list[Any]]


def describe_view(world: Any) -> str:
    """What the agent sees and carries.

    Worked example: "You see a wall 3 steps forward, a red ball 1 step forward and 2 steps left. You carry a blue key."
    """
    things = ", ".join(_describe_cells(find_visible_cells(world)))
    carried = describe_thing(world.carrying) if world.carrying else "nothing"
    return f"You see {things or 'nothing'}. You carry {carried}."


def list_actions(world: Any) -> tuple[str, ...]:
    """The actions that have an effect, and `done`, which the package always accepts."""
    (column, row), (ahead_x, ahead_y) = _locate_agent(world)
    ahead = world.grid.get(column + ahead_x, row + ahead_y)
    does = {
        "go forward": ahead is None or ahead.can_overlap(),
        "pick up": ahead is not None and ahead.can_pickup() and world.carrying is None,
        "drop": ahead is None and world.carrying is not None,
        "toggle": ahead is not None and _can_toggle(ahead, world.carrying),
    }
    return tuple(action for action in ACTIONS if does.get(action, True))


def describe_state(world: Any) -> str:
    """Where the agent is, what it carries, how everything else stands, and which parts of the mission are done."""
    (column, row), _ = _locate_agent(world)
    facing = FACING[int(world.agent_dir)]
    carried = describe_thing(world.carrying) if world.carrying else "nothing"
    done = ", ".join(_list_done_parts(world.instrs)) or "nothing"
    rest = digest_world(world)
    return f"row {row} column {column} facing {facing}; carrying {carried}; done {done}; world {rest}"


def digest_world(world: Any) -> str:
    grid = world.grid
    hidden = [describe_thing(cell.contains) for cell in grid.grid if getattr(cell, "contains", None)]
    codes = [EMPTY if cell is None else bytes(cell.encode()) for cell in grid.grid]
    by_column = b"".join([code for column in range(grid.width) for code in codes[column :: grid.width]])
    return sha256(by_column + repr(hidden).encode()).hexdigest()[:16]


def find_visible_cells(world: Any) -> View:
    """What the agent sees: for each row from its own to the farthest, a cell for each column from left to right.

    The same cells as the package's `gen_obs_grid` gives, which moves every cell up to five times; a cell that cannot
    be seen is `UNSEEN`, and what lies outside the world is a wall.
    """
    width = world.agent_view_size
    (column, row), (ahead_x, ahead_y) = _locate_agent(world)
    cells, columns, rows = world.grid.grid, world.grid.width, world.grid.height
    visible: list[list[Any]] = []
    for forward in range(width):
        x = column + ahead_x * forward + ahead_y * (width // 2)
        y = row + ahead_y * forward - ahead_x * (width // 2)
        row_of_cells = []
        for _ in range(width):
            row_of_cells.append(cells[y * columns + x] if 0 <= x < columns and 0 <= y < rows else OUTSIDE)
            x, y = x - ahead_y, y + ahead_x
        visible.append(row_of_cells)
    return visible if world.see_through_walls else _hide_unlit(visible)


def _locate_agent(world: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    column, row = world.agent_pos
    return (int(column), int(row)), AHEAD[int(world.agent_dir)]


def _hide_unlit(cells: View) -> View:
    """The cells that light reaches from the agent's: row after row, to the right, then to the left, and ahead."""
    width = len(cells)
    lit = [[False] * width for _ in range(width + 1)]  # and one row beyond
    lit[0][width // 2] = True
    for line, here, ahead in zip(cells, lit, lit[1:], strict=False):
        for columns, aside in ((range(width - 1), 1), (range(width - 1, 0, -1), -1)):
            for column in columns:
                if here[column] and ((cell := line[column]) is None or cell.see_behind()):
                    here[column + aside] = ahead[column + aside] = ahead[column] = True
    return [
        [cell if is_lit else UNSEEN for cell, is_lit in zip(line, here, strict=True)]
        for line, here in zip(cells, lit, strict=False)
    ]


def describe_thing(thing: Any) -> str:
    """A thing in words, such as "an open red door"."""
    if thing.type == "wall":
        return "a wall"
    if thing.type != "door":
        return f"a {thing.color} {thing.type}"
    state = "an open" if thing.is_open else "a locked" if thing.is_locked else "a closed"
    return f"{state} {thing.color} door"


def describe_distance(forward: int, side: int) -> str:
    """How far something is, such as "2 steps forward and 1 step left"; sides are negative on the left."""
    parts = {"forward": forward, "left" if side < 0 else "right": abs(side)}
    return " and ".join(f"{steps} step{'' if steps == 1 else 's'} {where}" for where, steps in parts.items() if steps)


def _describe_cells(cells: View) -> Iterator[str]:
    """The nearest walls straight ahead and to the sides, then everything else, the nearest first."""
    middle = len(cells) // 2
    for forward, side in ((1, 0), (0, -1), (0, 1)):
        for steps in range(1, len(cells) if forward else middle + 1):
            cell = cells[forward * steps][middle + side * steps]
            if cell is not None and cell.type == "wall":
                yield f"a wall {describe_distance(forward * steps, side * steps)}"
            if cell is UNSEEN or (cell is not None and cell.type == "wall"):
                break
    for forward, side in _order_by_distance(len(cells)):
        cell = cells[forward][middle + side]
        if cell is not None and cell.type not in ("wall", "unseen"):
            yield f"{describe_thing(cell)} {describe_distance(forward, side)}"


@cache
def _order_by_distance(width: int) -> tuple[tuple[int, int], ...]:
    """Cells in view by distance, as steps forward and to the right; without the agent's own cell."""
    places = [(forward, side) for forward in range(width) for side in range(-(width // 2), width // 2 + 1)]
    return tuple(sorted(places, key=lambda place: (place[0] + abs(place[1]), place))[1:])


def _can_toggle(thing: Any, carried: Any) -> bool:
    if thing.type == "box":
        return True
    if thing.type != "door":
        return False
    return not thing.is_locked or (carried is not None and carried.type == "key" and carried.color == thing.color)


def _list_done_parts(instruction: Any, name: str = "") -> Iterator[str]:
    """The parts of a mission of several that are done, such as "a"."""
    for part in ("a", "b"):
        if getattr(instruction, f"{part}_done", False) == "success":
            yield f"{name}{part}"
        if hasattr(instruction, f"instr_{part}"):
            yield from _list_done_parts(getattr(instruction, f"instr_{part}"), f"{name}{part}")
