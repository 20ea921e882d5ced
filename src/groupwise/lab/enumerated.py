"""Worlds that are small enough to list: every state, what is seen in it, and where each action leads.

Axes: T steps (1 where all steps are alike), S states, A actions, B ways an action may go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.segments import FloatArray, IntArray

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

    @cached_property
    def state_codes(self) -> Mapping[Hashable, int]:
        """The code of each state, by its name."""
        return {name: code for code, name in enumerate(self.states)}

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
