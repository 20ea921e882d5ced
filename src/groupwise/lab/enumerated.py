"""Tabular environments: every state, its observation, and where each action leads.

Axes: T steps (1 if the transitions do not depend on the step), S states, A actions, B outcomes of an action.
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
from groupwise.envs.kit.task_set import check_env
from groupwise.envs.kit.words import prepend_goal
from groupwise.envs.small import aliased
from groupwise.envs.small import gridworld as lakes
from groupwise.envs.small.gridworld import Gridworld, list_ends, move_over, slip_move, surface_at
from groupwise.system.errors import ConfigError

ENDED = -1
"""The state after a rollout's last step."""
MAX_STATES = 500_000
"""With more states, continuations from forks are cheaper."""

Past = tuple[tuple[str, str], ...]
"""Earlier steps as (observation, action), the earliest first."""


class View(NamedTuple):
    """What an agent sees before it acts: the current text, and the past steps that its history shows.

    Worked example: View("Door 1 asks for lamp 2.", past=(("Lamp 2 is red. Passage 1.", "blue"),)).
    """

    text: str
    past: Past = ()

    def shorten(self, window: int) -> View:
        """Keep only the last `window` past steps."""
        return View(self.text, self.past[len(self.past) - window :] if window < len(self.past) else self.past)


class RememberedState(NamedTuple):
    """The name of a state that includes the past steps which led to it."""

    state: Hashable
    past: Past


class Branch(NamedTuple):
    """One possible outcome of an action."""

    chance: float
    """Its probability. The probabilities of all outcomes of an action sum to 1."""
    following: Hashable | None
    """The name of the next state; None = the rollout ends."""
    reward: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class EnumeratedWorld:
    """One task of an environment as tables. Rollouts begin in `start` and take at most `horizon` steps."""

    states: tuple[Hashable, ...]
    """Name of each state (S): the environment's state key, or a `RememberedState`."""
    actions: tuple[str, ...]
    """The actions. Each is possible in every state (A)."""
    views: tuple[View, ...]
    view: IntArray
    """The view of each state (S), as an index into `views`."""
    following: IntArray
    """The next state (T, S, A, B), as an index into `states`; `ENDED` if the rollout ends."""
    chance: FloatArray
    """Probability of each outcome (T, S, A, B)."""
    reward: FloatArray
    """Reward of each outcome (T, S, A, B)."""
    start: int
    horizon: int
    """Steps before a rollout is truncated."""
    window: int = 0
    """How many past steps the views show."""
    has_actions: bool = True
    """Whether these past steps include their actions; otherwise the actions are empty."""

    def at_step(self, step: int) -> int:
        """The index of a step on axis T; 0 if the transitions do not depend on the step."""
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
    """Build the arrays of an environment.

    Args:
        texts: the observation of each state, by the state's name.
        branches: the outcomes of an action, given step, state and action.
        varies: whether they differ from step to step. If not, only step 0 is queried.
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
    """The same environment for an agent that also sees the last `window` steps: states with different pasts differ.

    `world` must not show past steps yet. `with_actions` says whether the agent sees the past actions too; HGPO's
    history has only states.
    """
    if world.window:
        raise ConfigError(
            f"the environment already shows {world.window} past steps; pass the original one with the whole window"
        )
    if window == 0:
        return world
    # Every (state, past) that can be reached, and where each leads (T, S, A, B).
    names: list[tuple[int, Past]] = [(world.start, ())]
    codes = {names[0]: 0}
    rows = []
    steps, _, _, ways = world.following.shape
    for state, past in names:  # grows during the loop
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
                f"with {window} past steps there are more than {MAX_STATES} states; show fewer past steps, or use "
                "continuations from forks"
            )
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
        following=np.stack(rows, axis=1),
        chance=world.chance[:, came_from],
        reward=world.reward[:, came_from],
        start=0,
        window=window,
        has_actions=with_actions,
    )


# Tasks of our small environments as tables.

Chance = Literal["task", "family"]
"""Which randomness counts: that of the task, which its seed fixes for all rollouts and forks, or that of all seeds."""


def enumerate_task(part: EnvironmentPart, task: Task, *, chance: Chance = "task") -> EnumeratedWorld:
    """List the states of a `gridworld` or `aliased` task, for dynamic programming.

    The names of the states are the state keys that the environment records (for `aliased` those of
    `key = "situation"`). With `chance` "task", the task's seed fixes every random outcome, as in its rollouts. With
    "family", outcomes have their probabilities, as over tasks that differ only in their seed.
    """
    if isinstance(part, Gridworld):
        check_env(task, lakes.ENV)
        return _enumerate_lake(part, task, chance)
    if isinstance(part, aliased.Aliased):
        check_env(task, "aliased")
        return _enumerate_corridor(part, task, chance)
    raise ConfigError(
        f"the states of {type(part).__name__} cannot be listed, only those of gridworld and aliased; "
        "use continuations from forks"
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


def _enumerate_corridor(part: aliased.Aliased, task: Task, chance: Chance) -> EnumeratedWorld:
    corridor = aliased.Corridor.read(task.payload, task.seed)
    reachable = [aliased.Stand()]  # in the order of arrival, without the goal
    for stand in reachable:  # grows during the loop
        for reached in (
            aliased.stay(stand),
            *(aliased.advance(corridor, stand, action) for action in corridor.colours),
        ):
            if reached not in reachable and not aliased.is_out(corridor, reached):
                reachable.append(reached)
    stands: dict[Hashable, aliased.Stand] = {aliased.tell_situation(corridor, stand): stand for stand in reachable}
    texts = {name: aliased.tell_text(corridor, stand, one_reply=part.one_reply) for name, stand in stands.items()}

    def reach(stand: aliased.Stand, share: float) -> Branch:
        if aliased.is_out(corridor, stand):
            return Branch(share, None, part.success_reward)
        return Branch(share, aliased.tell_situation(corridor, stand))

    def branches(step: int, name: Hashable, action: str) -> Iterator[Branch]:
        stand = stands[name]
        onwards = aliased.advance(corridor, stand, action)
        if chance == "task":
            is_lost = corridor.noise > 0 and aliased.comes_to_nothing(corridor, stand, action, step)
            yield reach(aliased.stay(stand) if is_lost else onwards, 1.0)
        else:
            yield reach(onwards, 1 - corridor.noise)
            yield reach(aliased.stay(stand), corridor.noise)

    return list_world(
        texts={name: prepend_goal(aliased.GOAL, text) if part.goal_in_text else text for name, text in texts.items()},
        actions=corridor.colours,
        start=aliased.tell_situation(corridor, aliased.Stand()),
        horizon=part.max_steps,
        branches=branches,
        varies=chance == "task" and corridor.noise > 0,
    )
