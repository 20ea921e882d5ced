"""Small listed tasks with a policy, for the tests of the lab."""

from __future__ import annotations

from groupwise.envs import Gridworld
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.enumerate_task import enumerate_task
from groupwise.lab.enumerated import remember
from groupwise.lab.listed_recording import FIRST_PROMPT_ID, Key, ListedTask, record_listed
from groupwise.lab.recording import Recording
from groupwise.lab.skill import make_skilled_policy

LAKE = Gridworld(size=4, num_holes=3, max_steps=8)


def list_tasks(env: EnvironmentPart = LAKE, num: int = 2, *, skill: float = 1.5, window: int = 0) -> list[ListedTask]:
    tasks: list[ListedTask] = []
    for task in env.panel("train")[:num]:
        world = remember(enumerate_task(env, task), window)
        first = tasks[-1].next_prompt if tasks else FIRST_PROMPT_ID
        policy = make_skilled_policy(world, skill=skill)
        tasks.append(ListedTask(task=task, world=world, policy=policy, first_prompt=first))
    return tasks


def record(updates: int = 60, attempts: int = 8, key: Key = "situation", seed: int = 0) -> Recording:
    return record_listed(list_tasks(), updates=updates, attempts=attempts, key=key, seed=seed)
