"""What became of the groups that would have taught nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.core.records import Origin, Trajectory, score_of
from groupwise.rollout.plans.requests import MARK
from groupwise.training.attempts.collect import Gathered
from groupwise.training.samples import Credited


def rescue_metrics(gathered: Gathered, credit: Credited) -> dict[str, float]:
    """Groups with and without signal, and what was recalled, guided and shaped for them; nothing that was not done."""
    groups: dict[str, list[int]] = {}
    for number, trajectory in enumerate(gathered.chosen):
        groups.setdefault(trajectory.task.id, []).append(number)
    earned = credit.by_trajectory()
    has_signal = [any(any(earned[number]) for number in members) for members in groups.values()]
    # What succeeded with guidance is there because the group had nothing: evenness is that of the others.
    own = [[n for n in members if not gathered.chosen[n].off_policy] for members in groups.values()]
    is_even = [len({score_of(gathered.chosen[number]) for number in members}) == 1 for members in own]
    joined = {one.task for one in gathered.recalled}
    was_helped = [task in joined or any(_is_touched(gathered.chosen[n]) for n in groups[task]) for task in groups]
    rescued = [all(each) for each in zip(has_signal, is_even, was_helped, strict=True)]
    is_same = [len({_earned(gathered.chosen[number]) for number in members}) == 1 for members in groups.values()]
    size = [sum(abs(value) for number in members for value in earned[number]) for members in groups.values()]
    left_even = [each for each, same, helped in zip(size, is_same, was_helped, strict=True) if same and not helped]
    found = {"credit/groups_with_signal": _mean(has_signal), "credit/groups_rescued": _mean(rescued)}
    found["credit/in_even_groups"] = sum(left_even) / sum(size) if any(size) else 0.0
    if gathered.share_not_admitted is not None:
        found["rollout/not_admitted"] = gathered.share_not_admitted
    return found | _replay(gathered) | _guidance(gathered.chosen) | _shaping(gathered.chosen, groups)


def _earned(trajectory: Trajectory) -> tuple[float, float]:
    """The score of an attempt and what its steps earned: neither says anything where all members have the same."""
    return score_of(trajectory), math.fsum(step.reward for step in trajectory.steps)  # in whatever order


def _is_touched(trajectory: Trajectory) -> bool:
    """Whether it is in the update, or earned what it did, only to give its group something to tell apart."""
    return trajectory.origin is not Origin.FRESH or any(step.shaped for step in trajectory.steps)


def _replay(gathered: Gathered) -> dict[str, float]:
    if not (gathered.recalled or gathered.left_out):
        return {}
    newest = max((max(each.versions, default=0) for each in gathered.chosen), default=0)
    found = {"replay/recalled": float(len(gathered.recalled)), "replay/left_out": float(gathered.left_out)}
    if gathered.recalled:
        found["replay/age"] = _mean([newest - one.past.version for one in gathered.recalled])
        found["replay/log_ratio"] = _mean([one.log_ratio or 0.0 for one in gathered.recalled])
    return found


def _guidance(chosen: Sequence[Trajectory]) -> dict[str, float]:
    guided = [trajectory for trajectory in chosen if _is_guided(trajectory)]
    if not guided:
        return {}
    return {
        "guidance/groups": float(len({trajectory.task.id for trajectory in guided})),
        "guidance/success": _mean([score_of(trajectory) for trajectory in guided]),
    }


def _is_guided(trajectory: Trajectory) -> bool:
    """Whether it was played with guidance; a success that is told once more without it was played but once."""
    is_retold = (trajectory.parent or "").startswith(f"{trajectory.task.id}{MARK}")
    return trajectory.origin is Origin.REFLECTED or (trajectory.origin is Origin.GUIDED and not is_retold)


def _shaping(chosen: Sequence[Trajectory], groups: dict[str, list[int]]) -> dict[str, float]:
    is_shaped = [any(step.shaped for n in members for step in chosen[n].steps) for members in groups.values()]
    return {"shaping/groups": _mean(is_shaped)} if any(is_shaped) else {}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
