"""Worlds that are small enough to list: every state, what is seen in it, and where each action leads.

Axes: T steps (1 where all steps are alike), S states, A actions, B ways an action may go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from groupwise.data.records import Task
from groupwise.data.segments import FloatArray, IntArray
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.kit.cells import MOVES, Cell, describe_cell, list_cells
from groupwise.envs.kit.draws import draw_uniform
from groupwise.envs.kit.panel import check_env
from groupwise.envs.kit.words import prepend_goal
from groupwise.envs.small import gridworld as lakes
from groupwise.envs.small.aliased import (
    GOAL,
    Aliased,
    Corridor,
    Stand,
    advance,
    comes_to_nothing,
    is_out,
    stay,
    tell_situation,
    tell_text,
)
from groupwise.envs.small.gridworld import Gridworld, list_ends, move_over, slip_move, surface_at
from groupwise.system.errors import ConfigError

ENDED = -1
"""The state after an attempt's last step."""
MAX_STATES = 500_000
"""States that are listed at most; beyond, continuations from forks are cheaper."""

Past = tuple[tuple[str, str], ...]
"""Earlier steps, the earliest first: what was seen and what was done."""


class View(NamedTuple):
    """What an agent sees before it acts: the text of now, and as much of the past as its memory shows.

    Worked example: View("Door 1 asks for lamp 2.", past=(("Lamp 2 is red. Passage 1.", "blue"),)).
    """

    text: str
    past: Past = ()

    def shorten(self, window: int) -> View:
        """The same with the last `window` steps of the past alone."""
        return View(self.text, self.past[len(self.past) - window :] if window < len(self.past) else self.past)


class RememberedState(NamedTuple):
    """The name of a state in a world that remembers: what the world's state is, and how it came about."""

    state: Hashable
    past: Past


class Branch(NamedTuple):
    """One way in which an action may go."""

    chance: float
    """Its probability; those of all ways of an action sum to 1."""
    following: Hashable | None
    """The name of the state that it leads to; None = the attempt ends."""
    reward: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class EnumeratedWorld:
    """One task of an environment, listed. Attempts begin in `start` and take at most `horizon` steps."""

    states: tuple[Hashable, ...]
    """Name of each state (S): the environment's state key, or a `RememberedState`."""
    actions: tuple[str, ...]
    """The actions, possible in every state (A)."""
    views: tuple[View, ...]
    """The distinct things that can be seen."""
    view: IntArray
    """What is seen in each state (S), a code into `views`."""
    following: IntArray
    """Where each action leads (T, S, A, B), a code into `states`; `ENDED` where the attempt ends."""
    chance: FloatArray
    """Probability of each way (T, S, A, B)."""
    reward: FloatArray
    """Reward of each way (T, S, A, B)."""
    start: int
    """The state that attempts begin in."""
    horizon: int
    """Steps before an attempt is cut off."""
    window: int = 0
    """How many past steps the views show."""
    has_actions: bool = True
    """Whether the past that they show has what was done in it; otherwise its actions are empty."""

    def at_step(self, step: int) -> int:
        """Where the axis T of a step begins: 0 where all steps are alike."""
        return step if len(self.following) > 1 else 0


def list_world(
    *,
    texts: Mapping[Hashable, str],
    actions: Sequence[str],
    start: Hashable,
    horizon: int,
    branches: Callable[[int, Hashable, str], Iterable[Branch]],
    varies: bool,
) -> EnumeratedWorld:
    """Lay out a world as arrays.

    Args:
        texts: what is seen in each state, by the state's name.
        actions: the actions.
        start: the name of the state in which attempts begin.
        horizon: steps before an attempt is cut off.
        branches: the ways that an action may go at a step, in a state.
        varies: whether they differ from step to step; otherwise step 0 is asked for all.
    """
    names = tuple(texts)
    codes: dict[Hashable | None, int] = {name: code for code, name in enumerate(names)}
    codes[None] = ENDED
    ways = [
        [[tuple(branches(step, name, action)) for action in actions] for name in names]
        for step in range(horizon if varies else 1)
    ]
    width = max(len(branch) for by_state in ways for by_action in by_state for branch in by_action)
    shape = (len(ways), len(names), len(actions), width)
    following, chance, reward = np.full(shape, ENDED), np.zeros(shape), np.zeros(shape)
    for place in np.ndindex(shape[:3]):
        for number, branch in enumerate(ways[place[0]][place[1]][place[2]]):
            following[place][number] = codes[branch.following]
            chance[place][number], reward[place][number] = branch.chance, branch.reward
    views = tuple(dict.fromkeys(View(text) for text in texts.values()))
    view_codes = {view: code for code, view in enumerate(views)}
    return EnumeratedWorld(
        states=names,
        actions=tuple(actions),
        views=views,
        view=np.array([view_codes[View(text)] for text in texts.values()], dtype=np.int64),
        following=following.astype(np.int64),
        chance=chance,
        reward=reward,
        start=codes[start],
        horizon=horizon,
    )


def remember(world: EnumeratedWorld, window: int, *, with_actions: bool = True) -> EnumeratedWorld:
    """The same world for an agent that sees the last `window` steps too: states are told apart by what it has seen.

    Args:
        world: a world whose views show nothing of the past.
        window: how many past steps are seen.
        with_actions: whether what was done then is seen beside what was seen; HGPO's history is of states alone.
    """
    if world.window:
        raise ConfigError(
            f"the world shows {world.window} past steps already; give the one it was made from, and a window at once"
        )
    if window == 0:
        return world
    names, following = _follow_pasts(world, window, with_actions=with_actions)
    came_from = np.array([state for state, _ in names], dtype=np.int64)
    texts = [world.views[world.view[state]].text for state in came_from]
    seen = [View(text, past) for text, (_, past) in zip(texts, names, strict=True)]
    views = tuple(dict.fromkeys(seen))
    view_codes = {view: code for code, view in enumerate(views)}
    return replace(
        world,
        states=tuple(RememberedState(world.states[state], past) for state, past in names),
        views=views,
        view=np.array([view_codes[view] for view in seen], dtype=np.int64),
        following=following,
        chance=world.chance[:, came_from],
        reward=world.reward[:, came_from],
        start=0,
        window=window,
        has_actions=with_actions,
    )


def _follow_pasts(
    world: EnumeratedWorld, window: int, *, with_actions: bool
) -> tuple[list[tuple[int, Past]], IntArray]:
    """Every (state, past) that can be reached, and where each leads (T, S, A, B)."""
    names: list[tuple[int, Past]] = [(world.start, ())]
    codes = {names[0]: 0}
    rows = []
    steps, _, _, ways = world.following.shape
    for state, past in names:  # grows while it is walked
        text = world.views[world.view[state]].text
        row = np.full((steps, len(world.actions), ways), ENDED, dtype=np.int64)
        for step, number, way in np.ndindex(row.shape):
            reached = int(world.following[step, state, number, way])
            if reached == ENDED or world.chance[step, state, number, way] == 0:
                continue
            done = world.actions[number] if with_actions else ""
            name = (reached, (*past, (text, done))[-window:])
            if name not in codes:
                codes[name] = len(names)
                names.append(name)
            row[step, number, way] = codes[name]
        rows.append(row)
        if len(names) > MAX_STATES:
            raise ConfigError(
                f"with {window} past steps the world has more than {MAX_STATES} states; show fewer of them, "
                "or take continuations from forks"
            )
    return names, np.stack(rows, axis=1)


# Tasks of our small environments as enumerated worlds.

Chance = Literal["task", "family"]
"""Whose chance counts: the task's own, which its seed fixed and which forks and attempts meet, or that of all seeds."""


def enumerate_task(part: EnvironmentPart, task: Task, *, chance: Chance = "task") -> EnumeratedWorld:
    """List the states of a task, for dynamic programming.

    The world's actions are the listed ones; the names of its states are the state keys that the environment records
    (for `aliased` those of `key = "situation"`).

    Args:
        part: the environment: `gridworld` or `aliased`.
        task: one of its tasks.
        chance: "task": what comes by chance is fixed by the task's seed, as in every attempt at it; "family": it has
            its probabilities, as over tasks that differ in their seed alone.
    """
    if isinstance(part, Gridworld):
        check_env(task, lakes.ENV)
        return _enumerate_lake(part, task, chance)
    if isinstance(part, Aliased):
        check_env(task, "aliased")
        return _enumerate_corridor(part, task, chance)
    raise ConfigError(
        f"the states of {type(part).__name__} cannot be listed, only those of gridworld and aliased; "
        "take continuations from forks"
    )


def _enumerate_lake(part: Gridworld, task: Task, chance: Chance) -> EnumeratedWorld:
    lake, slip = tuple(task.payload["rows"]), float(task.payload["slip"])
    cells: dict[Hashable, Cell] = {
        describe_cell(cell): cell for cell in list_cells(len(lake)) if surface_at(lake, cell) == "ice"
    }
    goal = lakes.tell_goal(lake)
    texts = {name: lakes.tell_text(lake, cell) for name, cell in cells.items()}

    def reach(cell: Cell, share: float) -> Branch:
        surface = surface_at(lake, cell)
        reward = part.success_reward if surface == "goal" else 0.0
        return Branch(share, describe_cell(cell) if surface == "ice" else None, reward)

    def branches(step: int, name: Hashable, move: str) -> Iterator[Branch]:
        if chance == "task":
            taken = slip_move(move, slip, draw_uniform(lakes.ENV, task.seed, step)) if slip else move
            yield reach(move_over(lake, cells[name], taken), 1.0)
        else:
            shares = (1 - slip, slip / 2, slip / 2)
            yield from map(reach, list_ends(lake, cells[name], move), shares)

    return list_world(
        texts={name: prepend_goal(goal, text) if part.goal_in_text else text for name, text in texts.items()},
        actions=tuple(MOVES),
        start=describe_cell(lakes.find_symbol(lake, "S")),
        horizon=part.max_steps,
        branches=branches,
        varies=chance == "task" and slip > 0,
    )


def _enumerate_corridor(part: Aliased, task: Task, chance: Chance) -> EnumeratedWorld:
    corridor = Corridor.read(task.payload, task.seed)
    stands: dict[Hashable, Stand] = {tell_situation(corridor, stand): stand for stand in _list_stands(corridor)}
    texts = {name: tell_text(corridor, stand, one_reply=part.one_reply) for name, stand in stands.items()}

    def reach(stand: Stand, share: float) -> Branch:
        if is_out(corridor, stand):
            return Branch(share, None, part.success_reward)
        return Branch(share, tell_situation(corridor, stand))

    def branches(step: int, name: Hashable, action: str) -> Iterator[Branch]:
        stand = stands[name]
        onwards = advance(corridor, stand, action)
        if chance == "task":
            is_lost = corridor.noise > 0 and comes_to_nothing(corridor, stand, action, step)
            yield reach(stay(stand) if is_lost else onwards, 1.0)
        else:
            yield reach(onwards, 1 - corridor.noise)
            yield reach(stay(stand), corridor.noise)

    return list_world(
        texts={name: prepend_goal(GOAL, text) if part.goal_in_text else text for name, text in texts.items()},
        actions=corridor.colours,
        start=tell_situation(corridor, Stand()),
        horizon=part.max_steps,
        branches=branches,
        varies=chance == "task" and corridor.noise > 0,
    )


def _list_stands(corridor: Corridor) -> list[Stand]:
    """Every place an attempt may come to, in the order of arrival; being out is no place."""
    stands = [Stand()]
    seen = set(stands)
    for stand in stands:  # grows while it is walked
        for reached in (stay(stand), *(advance(corridor, stand, action) for action in corridor.colours)):
            if reached not in seen and not is_out(corridor, reached):
                seen.add(reached)
                stands.append(reached)
    return stands
