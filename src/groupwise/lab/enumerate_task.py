"""Tasks of our small environments as enumerated worlds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal

from groupwise.core.errors import ConfigError
from groupwise.core.records import Task
from groupwise.envs.aliased.corridor import (
    Corridor,
    Stand,
    advance,
    comes_to_nothing,
    is_out,
    stay,
    tell_situation,
    tell_text,
)
from groupwise.envs.aliased.environment import GOAL, Aliased
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.grids import gridworld as lakes
from groupwise.envs.grids.cells import MOVES, Cell, describe_cell, list_cells
from groupwise.envs.grids.gridworld import Gridworld, list_ends, move_over, slip_move, surface_at
from groupwise.envs.kit.keyed_draws import draw_uniform
from groupwise.envs.kit.panel import check_env
from groupwise.envs.kit.words import prepend_goal
from groupwise.lab.enumerated import Branch, EnumeratedWorld, list_world

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
