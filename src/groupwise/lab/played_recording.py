"""Recordings of any policy in any world with forks: played attempts, and truths by continuations.

The truth of every step would cost too much. So situations are chosen that came up in several updates: the same task,
the same responses so far and the same prompt now, and so the same world. Actions alone would not do, for prompts may
show past responses as they were said: two that come to one action lead to different prompts. All that was said there is
continued. Attempts that a fault ended are left out, as in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.data.column_checks import code_by_first_seen
from groupwise.data.records import Task, Trajectory, has_survived
from groupwise.data.seeds import seed_of
from groupwise.data.segments import IntArray
from groupwise.lab.recording import Recording, number_updates
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.forks import Fork
from groupwise.rollout.plans import Group
from groupwise.system.errors import ConfigError, RecordError

PlayAttempts = Callable[[Sequence[Attempt]], Sequence[Trajectory]]
"""Plays attempts to their ends."""
PayAttempt = Callable[[Trajectory], Trajectory]
"""Gives an attempt the rewards that training would give it."""


@dataclass(frozen=True, kw_only=True)
class PlayedCondition:
    """How much a policy is played, and how often it is continued."""

    tasks: int = 4
    """Tasks of every update, the first of a panel."""
    attempts: int = 8
    """Attempts of a group."""
    updates: int = 40
    """How often all groups are drawn."""
    situations: int = 40
    """Situations whose steps are held against the truth."""
    continuations: int = 128
    """Continuations of each kind at each decision point."""
    gamma: float = 1.0
    """How much a reward one step later counts in the truth."""
    seed: int = 0
    """Where all random numbers come from."""


def record_played(
    tasks: Sequence[Task],
    play: PlayAttempts,
    continue_from: PlayForks,
    condition: PlayedCondition,
    *,
    pay: PayAttempt = lambda played: played,
) -> Recording:
    """Play so many updates, and find the truth at some of the situations that came up in two of them or more.

    Args:
        tasks: the tasks of every update.
        play: plays attempts.
        continue_from: plays continuations of what `play` gave, and pays them.
        condition: how much is played.
        pay: gives attempts their rewards; continuations begin from attempts as they were played.
    """
    seed = condition.seed
    by_update: list[list[Group]] = []
    num_played, faults = 0, set[str]()
    for number in range(condition.updates):
        attempts = [
            Attempt(task=task, number=attempt, seed=seed_of(seed, "update", number, task.id, attempt))
            for task in tasks
            for attempt in range(condition.attempts)
        ]
        # The number of the update is in the ids: continuations are told apart by that of their attempt.
        played = [replace(attempt, id=f"{attempt.id}/{number}") for attempt in play(attempts)]
        num_played += len(played)
        faults |= {attempt.error or attempt.stop.value for attempt in played if not has_survived(attempt)}
        drawn = (played[first : first + condition.attempts] for first in range(0, len(played), condition.attempts))
        groups = [[attempt for attempt in group if has_survived(attempt)] for group in drawn]
        if any(groups):
            by_update.append([group for group in groups if group])
    if not by_update:
        raise RecordError(f"no attempt survived ({'; '.join(sorted(faults)[:3])}); mend the environment")
    survivors = [attempt for groups in by_update for group in groups for attempt in group]
    steps = [RecordedStep(attempt=attempt, index=index) for attempt in survivors for index in range(len(attempt.steps))]
    situations, points = [], []
    for step in steps:
        said = [before.response_ids for before in step.attempt.steps[: step.index]]
        now = step.attempt.steps[step.index]
        situations.append((step.attempt.task.id, *said, now.prompt_ids))
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
    if causes and all(np.isnan(advantage.value) for advantage in advantages):  # nothing could be held against it
        raise RecordError(
            f"faults ended {pairs_left_out} pairs of continuations, so that no step's truth is known (the first: "
            f"{causes[0]}); mend the environment"
        )
    for number, advantage in zip(of_point, advantages, strict=True):
        rows = point == number
        truth[rows], error[rows] = advantage.value, advantage.error
    return Recording(
        updates=[[[pay(attempt) for attempt in group] for group in groups] for groups in by_update],
        truth=truth,
        truth_error=error,
        point=point,
        situation=situation,
        update=update,
        attempts_left_out=num_played - len(survivors),
        pairs_left_out=pairs_left_out,
    )


def _choose_situations(situation: IntArray, update: IntArray, num: int, seed: int) -> IntArray:
    """Draw situations by how often they came up, among those that came up in two updates or more."""
    visits = np.bincount(situation)
    cells = np.unique(situation * (int(update.max()) + 1) + update) // (int(update.max()) + 1)
    again = np.flatnonzero(np.bincount(cells) > 1)
    if len(again) == 0:
        raise ConfigError(
            "no situation came up in two updates, so that bias and chance cannot be told apart; play more updates, or "
            "fewer tasks"
        )
    if len(again) <= num:
        return again
    weights = visits[again] / visits[again].sum()
    return np.random.default_rng(seed_of(seed, "situations")).choice(again, size=num, replace=False, p=weights)


# True advantages by continuations: what follows on average from a step's action, less what follows without it.
#
#     Q = mean discounted reward, the step's own included, of attempts that keep its action and go on from there
#     V = the same of attempts that keep only what was before the step, and draw its action anew
#     A = Q - V
#
# Continuation k of either kind is given the same seed, and draws its later steps by their index: where V's draws come
# to the same action, both go on alike. So the two are compared in pairs, and the standard error is that of the mean of
# the pairs' differences. An error bar that is too long is made half as long by four times as many. A pair in which
# either ended with a fault says nothing of the policy, and is left out.

MIN_CONTINUATIONS = 2
"""Fewer have no standard error."""
FORKS_AT_ONCE = 2048
"""Continuations that are played together."""
PlayForks = Callable[[Sequence[Fork]], Sequence[Trajectory]]
"""Plays continuations to their ends, and pays them as the recorded attempts were."""


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A step of an attempt, as it was played."""

    attempt: Trajectory
    index: int


@dataclass(frozen=True, kw_only=True)
class ContinuedAdvantage:
    """The true advantage of a step, as continuations tell it; NaN where faults left fewer than two pairs."""

    value: float
    """Q - V."""
    error: float
    """Its standard error."""
    action_value: float
    """Q."""
    state_value: float
    """V."""
    pairs_left_out: int
    """Pairs of continuations that a fault ended."""
    first_fault: str = ""
    """What ended the first of them; empty = there are none."""


def continue_steps(
    steps: Sequence[RecordedStep], play: PlayForks, *, num: int, gamma: float = 1.0, seed: int = 0
) -> list[ContinuedAdvantage]:
    """The true advantage of each step, by `num` continuations after its action and as many before it.

    Args:
        steps: the steps.
        play: plays continuations with the policy that sampled the steps.
        num: continuations of each kind.
        gamma: how much a reward one step later counts.
        seed: where the continuations' random numbers come from.
    """
    if num < MIN_CONTINUATIONS:
        raise ConfigError(f"found {num} continuations of each kind; at least {MIN_CONTINUATIONS} have an error bar")
    forks = [fork for step in steps for fork in _list_forks(step, num, seed)]
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
                [discount_rewards(trajectory, step.index, gamma=gamma) for trajectory in pair]
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


def discount_rewards(trajectory: Trajectory, first: int, *, gamma: float) -> float:
    """What an attempt earned from a step on, discounted to that step."""
    return sum(gamma ** (step.index - first) * step.reward for step in trajectory.steps[first:])


def _list_forks(step: RecordedStep, num: int, seed: int) -> Iterator[Fork]:
    """The continuations of a step: first those that keep its action, then those that do not."""
    trunk = step.attempt
    seeds = [seed_of(seed, "continuation", trunk.id, step.index, number) for number in range(num)]
    for kept in (step.index + 1, step.index):
        for number in range(num):
            yield Fork(trunk=trunk, kept=kept, number=number, seed=seeds[number])
