"""Guided attempts that join the unguided ones at their task, or take the place of some."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.records import Origin, SetAside, Trajectory, score_of
from groupwise.rollout.plans.plan import Group
from groupwise.rollout.plans.requests import AttemptRequest

Joining = tuple[AttemptRequest, Sequence[Trajectory]]
"""A request whose attempts join others, and those of its attempts that ended without a fault."""


def join_groups(groups: Sequence[Group], joining: Sequence[Joining]) -> tuple[list[list[Trajectory]], list[SetAside]]:
    """Let guided attempts join the groups, in the order of the requests; the groups, and who lost their place.

    Where the plan did not choose the group of their task, or nobody in it survived, guided attempts join nobody.
    """
    group_of = {group[0].task.id: list(group) for group in groups}
    set_aside: list[SetAside] = []
    for request, attempts in joining:
        group = group_of.get(request.task.id)
        if group is None:
            set_aside += [
                SetAside(trajectory=attempt, by="the plan: the group it was to join is not there")
                for attempt in attempts
            ]
        else:
            set_aside += _JOIN[request.joins](group, attempts)
    return list(group_of.values()), set_aside


def _join(group: list[Trajectory], attempts: Sequence[Trajectory]) -> list[SetAside]:
    group += attempts
    return []


def _replace_one(group: list[Trajectory], attempts: Sequence[Trajectory]) -> list[SetAside]:
    """Let each take the place of the unguided attempt of lowest score, of several the last, where it scored higher."""
    set_aside = []
    for attempt in attempts:
        unguided = [member for member in group if member.origin is Origin.FRESH]
        lowest = min(unguided, key=lambda member: (score_of(member), -member.attempt), default=None)
        if lowest is None or score_of(attempt) <= score_of(lowest):
            set_aside.append(SetAside(trajectory=attempt, by="the plan: no unguided attempt scored lower"))
            continue
        group.remove(lowest)
        group.append(attempt)
        set_aside.append(SetAside(trajectory=lowest, by=f"the plan: attempt {attempt.attempt} took its place"))
    return set_aside


def _replace_group(group: list[Trajectory], attempts: Sequence[Trajectory]) -> list[SetAside]:
    """Let them take the place of all unguided attempts; guided ones stay, and so does everybody if none survived."""
    if not attempts:
        return []
    by = f"the plan: the guided attempts from {attempts[0].attempt} on took its place"
    unguided = [member for member in group if member.origin is Origin.FRESH]
    group[:] = [*(member for member in group if member.origin is not Origin.FRESH), *attempts]
    return [SetAside(trajectory=member, by=by) for member in unguided]


_JOIN = {"unguided": _join, "replaces_one": _replace_one, "replaces_group": _replace_group}
