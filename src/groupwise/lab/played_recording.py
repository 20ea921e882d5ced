"""Recordings of any policy in any world with forks: played attempts, and truths by continuations.

The truth of every step would cost too much. So situations are chosen that came up in several updates: the same task,
the same responses so far and the same prompt now, and so the same world. Actions alone would not do, for prompts may
show past responses as they were said: two that come to one action lead to different prompts. All that was said there is
continued. Attempts that a fault ended are left out, as in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.records import Task, Trajectory, has_survived
from groupwise.core.seeds import seed_of
from groupwise.core.segments import IntArray
from groupwise.lab.continuations import ContinuedAdvantage, PlayForks, RecordedStep, continue_steps
from groupwise.lab.recording import Recording, number_updates
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.plans.plan import Group

PlayAttempts = Callable[[Sequence[Attempt]], Sequence[Trajectory]]
"""Plays attempts to their ends."""
PayAttempt = Callable[[Trajectory], Trajectory]
"""Gives an attempt the rewards that training would give it."""
Place = tuple[str, tuple[tuple[int, ...], ...]]
"""A task, and token ids that tell a situation or a decision point from others."""


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
    seed, updates = condition.seed, range(condition.updates)
    played = [_play_update(tasks, play, number, condition.attempts, seed) for number in updates]
    by_update = _leave_out_faults(played)
    steps = [
        RecordedStep(attempt=attempt, index=index)
        for groups in by_update
        for group in groups
        for attempt in group
        for index in range(len(attempt.steps))
    ]
    situation = _number_distinct([_describe_situation(step) for step in steps])
    point = _number_distinct([_describe_point(step) for step in steps])
    update = number_updates(by_update)
    chosen = _choose_situations(situation, update, condition.situations, seed)
    truth, error = np.full(len(steps), np.nan), np.zeros(len(steps))
    of_point = {int(point[row]): steps[row] for row in reversed(np.flatnonzero(np.isin(situation, chosen)).tolist())}
    advantages = continue_steps(
        list(of_point.values()), continue_from, num=condition.continuations, gamma=condition.gamma, seed=seed
    )
    _check_continued(advantages)
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
        attempts_left_out=_count_attempts(played) - _count_attempts(by_update),
        pairs_left_out=sum(advantage.pairs_left_out for advantage in advantages),
    )


def _play_update(tasks: Sequence[Task], play: PlayAttempts, number: int, num_attempts: int, seed: int) -> list[Group]:
    attempts = [
        Attempt(task=task, number=attempt, seed=seed_of(seed, "update", number, task.id, attempt))
        for task in tasks
        for attempt in range(num_attempts)
    ]
    # The number of the update is in the ids: continuations are told apart by that of their attempt.
    played = [replace(attempt, id=f"{attempt.id}/{number}") for attempt in play(attempts)]
    return [played[first : first + num_attempts] for first in range(0, len(played), num_attempts)]


def _leave_out_faults(by_update: Sequence[Sequence[Group]]) -> list[list[Group]]:
    """The attempts that survived, without the groups and updates that nothing is left of."""
    survivors: list[list[Group]] = [
        [[attempt for attempt in group if has_survived(attempt)] for group in groups] for groups in by_update
    ]
    left = [groups for groups in ([group for group in groups if group] for groups in survivors) if groups]
    if not left:
        causes = {attempt.error or attempt.stop.value for groups in by_update for group in groups for attempt in group}
        raise RecordError(f"no attempt survived ({'; '.join(sorted(causes)[:3])}); mend the environment")
    return left


def _check_continued(advantages: Sequence[ContinuedAdvantage]) -> None:
    """Refuse to go on where faults left no truth at all: nothing could be held against it."""
    causes = [advantage.first_fault for advantage in advantages if advantage.first_fault]
    if causes and all(np.isnan(advantage.value) for advantage in advantages):
        left_out = sum(advantage.pairs_left_out for advantage in advantages)
        raise RecordError(
            f"faults ended {left_out} pairs of continuations, so that no step's truth is known (the first: "
            f"{causes[0]}); mend the environment"
        )


def _count_attempts(by_update: Sequence[Sequence[Group]]) -> int:
    return sum(len(group) for groups in by_update for group in groups)


def _describe_situation(step: RecordedStep) -> Place:
    steps = step.attempt.steps
    return step.attempt.task.id, (
        *(before.response_ids for before in steps[: step.index]),
        steps[step.index].prompt_ids,
    )


def _describe_point(step: RecordedStep) -> Place:
    task, past = _describe_situation(step)
    return task, (*past, step.attempt.steps[step.index].response_ids)


def _number_distinct(places: Sequence[Place]) -> IntArray:
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    return np.array([numbers[place] for place in places], dtype=np.int64)


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
