"""Small listed tasks with a policy, for the tests of the lab."""

from __future__ import annotations

from functools import partial

from groupwise.envs import Gridworld
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.recording import FIRST_PROMPT_ID, Key, ListedTask, Recording, Sight, list_task, record_listed
from groupwise.lab.study import make_skilled_policy

LAKE = Gridworld(size=4, num_holes=3, max_steps=8)


def list_tasks(env: EnvironmentPart = LAKE, num: int = 2, *, skill: float = 1.5, sees: Sight = 0) -> list[ListedTask]:
    tasks: list[ListedTask] = []
    for task in env.task_set("train")[:num]:
        first = tasks[-1].next_prompt if tasks else FIRST_PROMPT_ID
        tasks.append(list_task(env, task, partial(make_skilled_policy, skill=skill), sees=sees, first_prompt=first))
    return tasks


def record(updates: int = 60, rollouts: int = 8, key: Key = "situation", seed: int = 0) -> Recording:
    return record_listed(list_tasks(), updates=updates, rollouts=rollouts, key=key, seed=seed)
