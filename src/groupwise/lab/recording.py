"""Recordings: many updates of rollouts, and the true advantages of their steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

import numpy as np

from groupwise.data.records import Step, StopReason, Task, Trajectory, score_of
from groupwise.data.samples import PolicyRole, PromptAndResponse
from groupwise.data.seeds import seed_of
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.envs.environment import EnvironmentPart, Expert
from groupwise.lab.enumerated import ENDED, EnumeratedWorld, RememberedState, View, enumerate_task, remember
from groupwise.lab.tabular import SampledRollouts, TabularPolicy, sample_rollouts, solve_exactly
from groupwise.rollout.forks import Fork
from groupwise.rollout.plans import Group


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Updates of one policy that does not learn, with the true advantages of its steps.

    Rows are the steps: update by update, group by group, rollout by rollout, in time (N).
    """

    updates: Sequence[Sequence[Group]]
    truth: FloatArray
    """True advantage of each step (N); NaN if it is not known."""
    truth_error: FloatArray
    """Standard error of the truth (N); 0 if it is exact."""
    point: IntArray
    """Decision point of each step (N). Equal numbers = the same task, step, situation and action, so the same truth."""
    situation: IntArray
    """Situation of each step (N): its decision point without the action."""
    update: IntArray
    """Update of each step (N)."""
    rollouts_left_out: int = 0
    """Rollouts that ended with an error. They are not in the groups."""
    pairs_left_out: int = 0
    """Pairs of continuations that ended with an error. The truth does not use them."""

    @property
    def is_known(self) -> BoolArray:
        return np.isfinite(self.truth)

    @property
    def rollouts(self) -> Iterator[Trajectory]:
        return (rollout for groups in self.updates for group in groups for rollout in group)

    def describe(self) -> dict[str, float]:
        scores = [score_of(rollout) for rollout in self.rollouts]
        groups = [[score_of(rollout) for rollout in group] for groups in self.updates for group in groups]
        known = self.truth[self.is_known]
        return {
            "success": float(np.mean(scores)),
            "rollouts": len(scores),
            "steps": len(self.truth),
            "steps_with_truth": len(known),
            "steps_of_rollout": len(self.truth) / len(scores),
            "groups_with_spread": float(np.mean([len(set(group)) > 1 for group in groups])),
            "truth_size": _root_mean_square(known),
            "truth_error": _root_mean_square(self.truth_error[self.is_known]),
            "rollouts_left_out": self.rollouts_left_out,
            "pairs_left_out": self.pairs_left_out,
        }


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")


def number_updates(updates: Sequence[Sequence[Group]]) -> IntArray:
    """The update of each step (N)."""
    lengths = [sum(len(rollout.steps) for group in groups for rollout in group) for groups in updates]
    return np.repeat(np.arange(len(updates)), lengths)


# Recordings from tabular environments: rollouts of a tabular policy, and the exact advantage of every step.
#
# A response has two tokens, the action and the end. So parts can read tokens, log-probs and entropies as in a real
# run. A prompt has one token per view.

END_ID = 0
"""The token that ends a response; action number n is token n + 1."""
FIRST_PROMPT_ID = 1_000
"""Prompts of all tasks are numbered from here."""
Key = Literal["situation", "observation"]
Sight = int | Literal["situation"]
MakePolicy = Callable[[EnumeratedWorld], TabularPolicy]
Number = TypeVar("Number", FloatArray, IntArray)


@dataclass(frozen=True, kw_only=True, eq=False)
class ListedTask:
    """A task with its tables and the policy that runs it."""

    task: Task
    world: EnumeratedWorld
    policy: TabularPolicy
    texts: tuple[str, ...]
    """The environment's observation in each state. A policy may see more, or less."""
    first_prompt: int

    @property
    def next_prompt(self) -> int:
        return self.first_prompt + len(self.world.views)


def list_task(
    env: EnvironmentPart, task: Task, make_policy: MakePolicy, *, sees: Sight = 0, first_prompt: int = FIRST_PROMPT_ID
) -> ListedTask:
    """List a task for a policy.

    `sees` is the number of past steps that the policy sees besides the current text, or "situation" for the whole
    state. `make_policy` gets the environment as the policy sees it.
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
    tasks: Sequence[ListedTask], *, updates: int, rollouts: int, key: Key, gamma: float = 1.0, seed: int = 0
) -> Recording:
    """Sample `updates` updates with one group per task, and compute the exact advantage of every step.

    `key` says what makes two steps comparable: the state, or its observation. `gamma` is the discount of the truth.
    """
    groups, truths, points, situations = list[list[list[Trajectory]]](), [], [], []
    first = 0
    for listed in tasks:
        values = solve_exactly(listed.world, listed.policy, gamma=gamma)
        generator = np.random.default_rng(seed_of(seed, "task", listed.task.id))
        sampled = sample_rollouts(listed.world, listed.policy, rollouts=updates * rollouts, generator=generator)
        made = make_trajectories(listed, sampled, values.probability, rollouts=rollouts, key=key)
        groups.append([made[number : number + rollouts] for number in range(0, len(made), rollouts)])
        ends = np.cumsum(sampled.length.reshape(updates, rollouts).sum(axis=1))[:-1]
        rollout, index = np.nonzero(sampled.is_step)
        place = (index, sampled.state[rollout, index], sampled.action[rollout, index])
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
    listed: ListedTask, sampled: SampledRollouts, probability: FloatArray, *, rollouts: int, key: Key
) -> list[Trajectory]:
    """Trajectories of sampled rollouts, as a run records them, in groups of `rollouts`."""
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
        # Whether the environment ended the rollout at its last step, rather than the step limit.
        last = (world.at_step(length - 1), states[-1], actions[-1])
        is_possible = (world.chance[last] > 0) & (world.reward[last] == rewards[-1])
        has_ended = length < world.horizon or bool((world.following[last][is_possible] == ENDED).all())
        trajectories.append(
            Trajectory(
                id=f"{listed.task.id}/{number % rollouts}",
                task=listed.task,
                rollout=number % rollouts,
                steps=tuple(steps),
                scores={"return": earned, "success": float(earned > 0)},
                stop=StopReason.TERMINATED if has_ended else StopReason.TRUNCATED,
                versions=(0,),
            )
        )
    return trajectories


def _join_updates(by_task: Sequence[Sequence[Number]], updates: int) -> Number:
    """Join the columns of the tasks into one column, update by update."""
    return np.concatenate([of_task[number] for number in range(updates) for of_task in by_task])


# What scorers can request from the lab's policies, which have no engine and no learner.


class LabTools(Protocol):
    """The subset of `groupwise.rollout.scorers.Tools` that `gives` names."""

    @property
    def gives(self) -> frozenset[str]: ...


class ListedTools:
    """Tools of a tabular policy: log-probs, continuations, and the environment's expert."""

    gives = frozenset({"score", "reference", "expert", "fork"})
    """The policy does not learn, so it is its own reference."""
    temperature = 1.0
    stop_ids = (END_ID,)

    def __init__(self, env: EnvironmentPart, tasks: Sequence[ListedTask]) -> None:
        self._env, self._tasks = env, {listed.task.id: listed for listed in tasks}
        self._rows = {
            listed.first_prompt + number: np.asarray(listed.policy.rows[view.shorten(listed.policy.window)])
            for listed in tasks
            for number, view in enumerate(listed.world.views)
        }

    def score(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float | None = None, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probs of responses by the table. The end token has probability 1."""
        scored = []
        for prompt, response in pairs:
            raised = self._rows[prompt[-1]] ** (1.0 / (temperature or self.temperature))
            chances = raised / raised.sum()
            scored.append(tuple(0.0 if token == END_ID else float(np.log(chances[token - 1])) for token in response))
        return scored

    def ask_expert(self, rollouts: Sequence[Trajectory]) -> list[list[str | None]]:
        """The expert's action at each step, while the recorded actions are run again."""
        advice = []
        for rollout in rollouts:
            environment = self._env.open(rollout.task)
            own: list[str | None] = []
            for step in rollout.steps:
                own.append(environment.expert() if isinstance(environment, Expert) else None)
                environment.act(step.action or "")
            advice.append(own)
        return advice

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        """Continuations. Each trajectory has the kept steps and the total return, not the steps after the fork."""
        by_task: dict[str, list[int]] = {}
        for number, fork in enumerate(forks):
            by_task.setdefault(fork.trunk.task.id, []).append(number)
        earned = np.zeros(len(forks))
        for task, numbers in by_task.items():
            earned[numbers] = _continue_listed(self._tasks[task], [forks[number] for number in numbers])
        return [
            replace(
                fork.trunk,
                id=f"{fork.trunk.id}/{fork.kept}/{fork.number}",
                steps=fork.trunk.steps[: fork.kept],
                scores={"return": total, "success": float(total > 0)},
            )
            for fork, total in zip(forks, earned.tolist(), strict=True)
        ]

    def text(self, ids: Sequence[int]) -> str:
        """The numbers of the actions."""
        return " ".join(self.pieces(ids)).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return ["" if token == END_ID else str(token) for token in ids]


def _continue_listed(listed: ListedTask, forks: Sequence[Fork]) -> FloatArray:
    """The total return of each continuation of a task, with the kept steps. All are sampled together."""
    world, climbing = listed.world, np.cumsum(listed.policy.spread(listed.world), axis=1)
    generator = np.random.default_rng([fork.seed for fork in forks])
    state = np.full(len(forks), world.start)
    for number, fork in enumerate(forks):  # outcome 0 of each kept action: the task's seed fixed it
        for index, taken in enumerate(fork.trunk.steps[: fork.kept]):
            action_number = world.actions.index(taken.action or "")
            state[number] = world.following[world.at_step(index), state[number], action_number, 0]
    step = np.array([fork.kept for fork in forks])
    earned = np.array([math.fsum(taken.reward for taken in fork.trunk.steps[: fork.kept]) for fork in forks])
    while len(playing := np.flatnonzero((state != ENDED) & (step < world.horizon))):
        here, now = state[playing], step[playing]
        drawn = generator.random(len(playing))[:, None] * climbing[here, -1:]
        action = (climbing[here] <= drawn).sum(axis=1)
        place = (now if len(world.following) > 1 else np.zeros_like(now), here, action, 0)
        earned[playing] += world.reward[place]
        state[playing] = world.following[place]
        step[playing] += 1
    return earned
