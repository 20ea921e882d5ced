"""Recordings of any policy in an environment with forks: rollouts, and true advantages by continuations.

The truth of every step would be too expensive. So only situations that occur in several updates are measured: the same
task, the same responses so far and the same prompt. Equal actions are not enough, because prompts may show past
responses word for word. Every response in a chosen situation is continued. Rollouts that end with an error are left
out, as in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.data.column_checks import code_by_first_seen
from groupwise.data.records import Task, Trajectory, has_survived
from groupwise.data.seeds import seed_of
from groupwise.data.segments import IntArray
from groupwise.lab.recording import Recording, number_updates
from groupwise.rollout.episodes import Rollout
from groupwise.rollout.forks import Fork
from groupwise.rollout.plans import Group
from groupwise.system.errors import ConfigError, RecordError

PlayRollouts = Callable[[Sequence[Rollout]], Sequence[Trajectory]]
PayRollout = Callable[[Trajectory], Trajectory]
"""Gives a rollout the rewards that it would get in training."""


@dataclass(frozen=True, kw_only=True)
class PlayedCondition:
    """How many rollouts and continuations are sampled."""

    tasks: int = 4
    """Tasks per update, the first of the train set."""
    rollouts: int = 8
    updates: int = 40
    situations: int = 40
    """Situations whose true advantages are estimated."""
    continuations: int = 128
    """Continuations of each kind per decision point."""
    gamma: float = 1.0
    seed: int = 0


def record_played(
    tasks: Sequence[Task],
    play: PlayRollouts,
    continue_from: PlayForks,
    condition: PlayedCondition,
    *,
    pay: PayRollout = lambda played: played,
) -> Recording:
    """Sample updates, and estimate the truth in some of the situations that occur in two or more of them.

    `play` runs rollouts without rewards; `pay` adds the rewards. `continue_from` runs continuations and rewards them.
    """
    seed = condition.seed
    by_update: list[list[Group]] = []
    num_played, faults = 0, set[str]()
    for number in range(condition.updates):
        rollouts = [
            Rollout(task=task, number=rollout, seed=seed_of(seed, "update", number, task.id, rollout))
            for task in tasks
            for rollout in range(condition.rollouts)
        ]
        # The update's number makes the ids unique: the seeds of continuations contain the id of their rollout.
        played = [replace(rollout, id=f"{rollout.id}/{number}") for rollout in play(rollouts)]
        num_played += len(played)
        faults |= {rollout.error or rollout.stop.value for rollout in played if not has_survived(rollout)}
        drawn = (played[first : first + condition.rollouts] for first in range(0, len(played), condition.rollouts))
        groups = [[rollout for rollout in group if has_survived(rollout)] for group in drawn]
        if any(groups):
            by_update.append([group for group in groups if group])
    if not by_update:
        raise RecordError(f"every rollout ended with an error ({'; '.join(sorted(faults)[:3])}); fix the environment")
    survivors = [rollout for groups in by_update for group in groups for rollout in group]
    steps = [RecordedStep(rollout=rollout, index=index) for rollout in survivors for index in range(len(rollout.steps))]
    situations, points = [], []
    for step in steps:
        said = [before.response_ids for before in step.rollout.steps[: step.index]]
        now = step.rollout.steps[step.index]
        situations.append((step.rollout.task.id, *said, now.prompt_ids))
        points.append((*situations[-1], now.response_ids))
    situation, point = code_by_first_seen(situations)[0], code_by_first_seen(points)[0]
    update = number_updates(by_update)
    chosen = _choose_situations(situation, update, condition.situations, seed)
    truth, error = np.full(len(steps), np.nan), np.zeros(len(steps))
    of_point = {int(point[row]): steps[row] for row in reversed(np.flatnonzero(np.isin(situation, chosen)).tolist())}
    advantages = continue_steps(
        list(of_point.values()), continue_from, num=condition.continuations, gamma=condition.gamma, seed=seed
    )
    pairs_left_out = sum(advantage.pairs_left_out for advantage in advantages)
    causes = [advantage.first_fault for advantage in advantages if advantage.first_fault]
    if causes and all(np.isnan(advantage.value) for advantage in advantages):
        raise RecordError(
            f"{pairs_left_out} pairs of continuations ended with an error, so no true advantage is known (the first: "
            f"{causes[0]}); fix the environment"
        )
    for number, advantage in zip(of_point, advantages, strict=True):
        rows = point == number
        truth[rows], error[rows] = advantage.value, advantage.error
    return Recording(
        updates=[[[pay(rollout) for rollout in group] for group in groups] for groups in by_update],
        truth=truth,
        truth_error=error,
        point=point,
        situation=situation,
        update=update,
        rollouts_left_out=num_played - len(survivors),
        pairs_left_out=pairs_left_out,
    )


def _choose_situations(situation: IntArray, update: IntArray, num: int, seed: int) -> IntArray:
    """Sample situations in proportion to their frequency, among those that occur in two or more updates."""
    visits = np.bincount(situation)
    cells = np.unique(situation * (int(update.max()) + 1) + update) // (int(update.max()) + 1)
    again = np.flatnonzero(np.bincount(cells) > 1)
    if len(again) == 0:
        raise ConfigError(
            "no situation occurs in two updates, so bias and noise cannot be separated; use more updates or fewer tasks"
        )
    if len(again) <= num:
        return again
    weights = visits[again] / visits[again].sum()
    return np.random.default_rng(seed_of(seed, "situations")).choice(again, size=num, replace=False, p=weights)


# True advantages by continuations: the mean return with a step's action, minus the mean return without it.
#
#     Q = mean discounted reward from the step on, if its action is kept
#     V = the same if only the steps before it are kept and its action is sampled again
#     A = Q - V
#
# Continuation k of both kinds has the same seed, and later steps are sampled by their index. If V samples the same
# action, both continue in the same way. So they are compared in pairs, and the standard error is that of the mean
# difference. Four times as many continuations halve it. Pairs in which one ends with an error are left out.

MIN_CONTINUATIONS = 2
"""Fewer have no standard error."""
FORKS_AT_ONCE = 2048
"""Continuations per call of the player."""
PlayForks = Callable[[Sequence[Fork]], Sequence[Trajectory]]
"""Runs continuations to their ends, and rewards them like the recorded rollouts."""


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A step of a recorded rollout."""

    rollout: Trajectory
    index: int


@dataclass(frozen=True, kw_only=True)
class ContinuedAdvantage:
    """The true advantage of a step, estimated by continuations; NaN if fewer than two pairs have no error."""

    value: float
    """Q - V."""
    error: float
    action_value: float
    """Q."""
    state_value: float
    """V."""
    pairs_left_out: int
    first_fault: str = ""
    """The first error; empty = none."""


def continue_steps(
    steps: Sequence[RecordedStep], play: PlayForks, *, num: int, gamma: float = 1.0, seed: int = 0
) -> list[ContinuedAdvantage]:
    """The true advantage of each step, by `num` continuations after its action and `num` before it.

    `play` must run them with the policy that sampled the steps.
    """
    if num < MIN_CONTINUATIONS:
        raise ConfigError(f"continuations: expected at least {MIN_CONTINUATIONS} of each kind, got {num}")
    forks = []
    for step in steps:
        trunk = step.rollout
        seeds = [seed_of(seed, "continuation", trunk.id, step.index, number) for number in range(num)]
        for kept in (step.index + 1, step.index):  # with the step's action, then without
            forks += [Fork(trunk=trunk, kept=kept, number=number, seed=seeds[number]) for number in range(num)]
    played = [
        trajectory
        for first in range(0, len(forks), FORKS_AT_ONCE)
        for trajectory in play(forks[first : first + FORKS_AT_ONCE])
    ]
    advantages = []
    for number, step in enumerate(steps):
        own = played[2 * num * number : 2 * num * (number + 1)]
        faults = (trajectory.error or trajectory.stop.value for trajectory in own if not has_survived(trajectory))
        pairs = np.array(
            [
                [
                    sum(gamma ** (after.index - step.index) * after.reward for after in trajectory.steps[step.index :])
                    for trajectory in pair
                ]
                for pair in zip(own[:num], own[num:], strict=True)
                if all(map(has_survived, pair))
            ]
        )
        value = error = action_value = state_value = float("nan")
        if len(pairs) >= MIN_CONTINUATIONS:
            after, before = pairs.T
            difference = after - before
            value, error = float(difference.mean()), float(difference.std(ddof=1)) / math.sqrt(len(pairs))
            action_value, state_value = float(after.mean()), float(before.mean())
        advantages.append(
            ContinuedAdvantage(
                value=value,
                error=error,
                action_value=action_value,
                state_value=state_value,
                pairs_left_out=num - len(pairs),
                first_fault=next(faults, ""),
            )
        )
    return advantages
