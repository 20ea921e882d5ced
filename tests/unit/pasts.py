"""Rollouts to remember, by hand: written to a journal, found again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.parts.slots import Draw
from groupwise.store.journal import Journal, Update


def rollout(
    number: int = 0,
    *,
    task: str = "t",
    states: Sequence[object] = ("s",),
    rewards: Sequence[float] | None = None,
    solved: bool = False,
    version: int = 0,
    origin: Origin = Origin.FRESH,
    stop: StopReason = StopReason.TERMINATED,
    **fields: Any,
) -> Trajectory:
    """A rollout through some states; a success is paid 1 at its end unless rewards are given."""
    last = len(states) - 1
    earned = rewards if rewards is not None else [float(solved and i == last) for i in range(len(states))]
    steps = tuple(
        Step(
            index=i,
            reward=earned[i],
            state_key=state,  # type: ignore[arg-type]
            observation=f"You see {state}.",
            action=f"go {i}",
            prompt_ids=(1, 4 + i),
            response_ids=(5, 3),
            logp_behaviour=(-1.0, -0.5),
            entropy=(0.7, 0.1),
        )
        for i, state in enumerate(states)
    )
    return Trajectory(
        id=f"{task}/{number}",
        task=Task(id=task),
        rollout=number,
        steps=steps,
        scores={"return": sum(earned), "success": float(solved)},
        stop=stop,
        versions=(version,),
        origin=origin,
        **fields,
    )


def update(number: int, *trajectories: Trajectory, credit: Sequence[Sequence[float]] | None = None) -> Update:
    """An update of these rollouts; credit 0.5 a step unless given."""
    given = credit if credit is not None else [[0.5] * len(one.steps) for one in trajectories]
    return Update(number=number, version=number, metrics={}, trajectories=trajectories, credit=given)


def journal(folder: Path, *updates: Update) -> Journal:
    """A journal of these updates."""
    made = Journal(folder / "journal.sqlite")
    for one in updates:
        made.write(one)
    return made


def make_draw(seed: int = 0, names: list[tuple[str | int, ...]] | None = None) -> Draw:
    """Random generators by name, as a run has them; `names` gathers the names that were drawn by."""

    def draw(*path: str | int) -> np.random.Generator:
        if names is not None:
            names.append(path)
        return np.random.default_rng(seed_of(seed, *path))

    return draw
