"""What is held against the truth: many updates of recorded attempts, and the true advantage of their steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from groupwise.data.records import Step, StopReason, Task, Trajectory, score_of
from groupwise.data.seeds import seed_of
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.enumerated import ENDED, EnumeratedWorld, RememberedState, View, enumerate_task, remember
from groupwise.lab.tabular import SampledAttempts, TabularPolicy, sample_attempts, solve_exactly
from groupwise.rollout.plans import Group


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Updates of one policy that does not learn, and what their steps were truly worth.

    Rows are the steps: update by update, group by group, attempt by attempt, in time (N).
    """

    updates: Sequence[Sequence[Group]]
    """The groups of each update."""
    truth: FloatArray
    """True advantage of each step (N); NaN where it is not known."""
    truth_error: FloatArray
    """Standard error of the truth itself (N); 0 where it is exact."""
    point: IntArray
    """Decision point of each step (N): equal numbers = the same task, step, situation and action, and so one truth."""
    situation: IntArray
    """Situation of each step (N): its decision point, whatever was done there."""
    update: IntArray
    """Update of each step (N)."""
    attempts_left_out: int = 0
    """Attempts that a fault ended, which are not among the groups."""
    pairs_left_out: int = 0
    """Pairs of continuations that a fault ended, which the truth does without."""

    @property
    def is_known(self) -> BoolArray:
        """Whether the truth of a step is known (N)."""
        return np.isfinite(self.truth)

    @property
    def attempts(self) -> Iterator[Trajectory]:
        """All attempts, in the order of the rows."""
        return (attempt for groups in self.updates for group in groups for attempt in group)

    def describe(self) -> dict[str, float]:
        """What the policy and the recording are like."""
        scores = [score_of(attempt) for attempt in self.attempts]
        groups = [[score_of(attempt) for attempt in group] for groups in self.updates for group in groups]
        known = self.truth[self.is_known]
        return {
            "success": float(np.mean(scores)),
            "attempts": len(scores),
            "steps": len(self.truth),
            "steps_with_truth": len(known),
            "steps_of_attempt": len(self.truth) / len(scores),
            "groups_with_spread": float(np.mean([len(set(group)) > 1 for group in groups])),
            "truth_size": _root_mean_square(known),
            "truth_error": _root_mean_square(self.truth_error[self.is_known]),
            "attempts_left_out": self.attempts_left_out,
            "pairs_left_out": self.pairs_left_out,
        }


def _root_mean_square(values: FloatArray) -> float:
    """The root of the mean square; NaN where there is nothing."""
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")


def number_updates(updates: Sequence[Sequence[Group]]) -> IntArray:
    """The update of each step (N)."""
    lengths = [sum(len(attempt.steps) for group in groups for attempt in group) for groups in updates]
    return np.repeat(np.arange(len(updates)), lengths)


# Recordings from worlds that are small enough to list: attempts by a table, and the exact truth of every step.
#
# A response is two tokens, the action and the end, so that parts that read tokens, log-probs and entropies have them as
# a sampler would give them. A prompt is one token, which stands for what the policy saw.

END_ID = 0
"""The token that ends a response; action number n is token n + 1."""
FIRST_PROMPT_ID = 1_000
"""Prompts are numbered from here, over all tasks."""
Key = Literal["situation", "observation"]
Sight = int | Literal["situation"]
MakePolicy = Callable[[EnumeratedWorld], TabularPolicy]
Number = TypeVar("Number", FloatArray, IntArray)


@dataclass(frozen=True, kw_only=True, eq=False)
class ListedTask:
    """A task with its world, and the policy that plays it."""

    task: Task
    world: EnumeratedWorld
    policy: TabularPolicy
    texts: tuple[str, ...]
    """What the environment shows in each state of the world; a policy may see more, or less."""
    first_prompt: int
    """The prompt id of its first view."""

    @property
    def next_prompt(self) -> int:
        """The first prompt id that is free after it."""
        return self.first_prompt + len(self.world.views)


def list_task(
    env: EnvironmentPart, task: Task, make_policy: MakePolicy, *, sees: Sight = 0, first_prompt: int = FIRST_PROMPT_ID
) -> ListedTask:
    """List a task for a policy.

    Args:
        env: an environment whose tasks can be listed.
        task: the task.
        make_policy: makes the policy, from the world as the policy sees it.
        sees: how many past steps it sees beside the text of now; or "situation": the whole state, as a policy does
            that remembers everything.
        first_prompt: the first prompt id that is free.
    """
    world = enumerate_task(env, task)
    if sees == "situation":
        texts = tuple(world.views[view].text for view in world.view)
        world = replace(world, views=tuple(View(str(name)) for name in world.states), view=np.arange(len(texts)))
    else:
        world = remember(world, sees)
        texts = tuple(world.views[view].text for view in world.view)
    return ListedTask(task=task, world=world, policy=make_policy(world), texts=texts, first_prompt=first_prompt)


def record_listed(
    tasks: Sequence[ListedTask], *, updates: int, attempts: int, key: Key, gamma: float = 1.0, seed: int = 0
) -> Recording:
    """Play so many updates of a group for each task, and find the exact advantage of every step.

    Args:
        tasks: the tasks of every update.
        updates: how many updates; each is drawn anew, by the same policies.
        attempts: attempts of a group.
        key: what makes two steps comparable: the state, or the text that is seen there.
        gamma: how much a reward one step later counts in the truth.
        seed: where all random numbers come from.
    """
    groups, truths, points, situations = list[list[list[Trajectory]]](), [], [], []
    first = 0
    for listed in tasks:
        values = solve_exactly(listed.world, listed.policy, gamma=gamma)
        generator = np.random.default_rng(seed_of(seed, "task", listed.task.id))
        sampled = sample_attempts(listed.world, listed.policy, attempts=updates * attempts, generator=generator)
        made = make_trajectories(listed, sampled, values.probability, attempts=attempts, key=key)
        groups.append([made[number : number + attempts] for number in range(0, len(made), attempts)])
        ends = np.cumsum(sampled.length.reshape(updates, attempts).sum(axis=1))[:-1]
        attempt, index = np.nonzero(sampled.is_step)
        place = (index, sampled.state[attempt, index], sampled.action[attempt, index])
        codes = first + np.ravel_multi_index(place, values.action_value.shape).astype(np.int64)
        truths.append(np.split(values.advantages_of(sampled), ends))
        points.append(np.split(codes, ends))
        situations.append(np.split(codes // len(listed.world.actions), ends))
        first += values.action_value.size
    by_update: list[list[Group]] = [[of_task[number] for of_task in groups] for number in range(updates)]
    truth = _join_updates(truths, updates)
    return Recording(
        updates=by_update,
        truth=truth,
        truth_error=np.zeros_like(truth),
        point=_join_updates(points, updates),
        situation=_join_updates(situations, updates),
        update=number_updates(by_update),
    )


def make_trajectories(
    listed: ListedTask, sampled: SampledAttempts, probability: FloatArray, *, attempts: int, key: Key
) -> list[Trajectory]:
    """Records of sampled attempts, as a run would have written them, in groups of so many attempts."""
    world = listed.world
    names = [name.state if isinstance(name, RememberedState) else name for name in world.states]
    logp = np.log(np.maximum(probability, np.finfo(np.float64).tiny))
    entropy = -(probability * logp).sum(axis=1)
    trajectories = []
    for number, length in enumerate(sampled.length.tolist()):
        states, actions = sampled.state[number, :length].tolist(), sampled.action[number, :length].tolist()
        rewards = sampled.reward[number, :length].tolist()
        steps = []
        for index, (state, action, reward) in enumerate(zip(states, actions, rewards, strict=True)):
            view = int(world.view[state])
            steps.append(
                Step(
                    index=index,
                    reward=reward,
                    state_key=names[state] if key == "situation" else listed.texts[state],
                    observation=listed.texts[state],
                    action=world.actions[action],
                    prompt_ids=(listed.first_prompt + view,),
                    response_ids=(action + 1, END_ID),
                    logp_behaviour=(float(logp[state, action]), 0.0),
                    entropy=(float(entropy[state]), 0.0),
                )
            )
        earned = sum(rewards)
        has_ended = _has_ended(world, length - 1, states[-1], actions[-1], rewards[-1])
        trajectories.append(
            Trajectory(
                id=f"{listed.task.id}/{number % attempts}",
                task=listed.task,
                attempt=number % attempts,
                steps=tuple(steps),
                scores={"return": earned, "success": float(earned > 0)},
                stop=StopReason.TERMINATED if has_ended else StopReason.TRUNCATED,
                versions=(0,),
            )
        )
    return trajectories


def _has_ended(world: EnumeratedWorld, index: int, state: int, action: int, reward: float) -> bool:
    """Whether the world ended the attempt itself at a step, rather than the limit."""
    ways = world.following[world.at_step(index), state, action]
    is_possible = (world.chance[world.at_step(index), state, action] > 0) & (
        world.reward[world.at_step(index), state, action] == reward
    )
    return index + 1 < world.horizon or bool((ways[is_possible] == ENDED).all())


def _join_updates(by_task: Sequence[Sequence[Number]], updates: int) -> Number:
    """Columns of each task's updates as one column, update by update."""
    return np.concatenate([of_task[number] for number in range(updates) for of_task in by_task])
