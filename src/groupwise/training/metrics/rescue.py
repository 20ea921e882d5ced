"""Metrics of groups that would have taught nothing: which were rescued by replay, guidance or shaping."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.core.records import Origin, Trajectory, score_of
from groupwise.rollout.plans.requests import MARK
from groupwise.training.attempts.collect import UpdateAttempts
from groupwise.training.samples import CreditedBatch


def compute_rescue_metrics(attempts: UpdateAttempts, batch: CreditedBatch) -> dict[str, float]:
    """Groups with and without signal, and what was recalled, guided and shaped for them; nothing that was not done."""
    chosen, groups = attempts.chosen, dict[str, list[int]]()
    for number, trajectory in enumerate(chosen):
        groups.setdefault(trajectory.task.id, []).append(number)
    credit = batch.by_trajectory()
    has_signal = [any(any(credit[number]) for number in members) for members in groups.values()]
    # What succeeded with guidance is there because the group had nothing: evenness is that of the others.
    own = [[n for n in members if not chosen[n].off_policy] for members in groups.values()]
    is_even = [len({score_of(chosen[number]) for number in members}) == 1 for members in own]
    joined = {past.task for past in attempts.recalled}
    is_aided = [task in joined or any(_is_touched(chosen[n]) for n in groups[task]) for task in groups]
    is_rescued = [all(conditions) for conditions in zip(has_signal, is_even, is_aided, strict=True)]
    is_same = [len({_score_and_return(chosen[number]) for number in members}) == 1 for members in groups.values()]
    size = [sum(abs(value) for number in members for value in credit[number]) for members in groups.values()]
    in_even = [total for total, same, aided in zip(size, is_same, is_aided, strict=True) if same and not aided]
    metrics = {"credit/groups_with_signal": _mean(has_signal), "credit/groups_rescued": _mean(is_rescued)}
    metrics["credit/in_even_groups"] = sum(in_even) / sum(size) if any(size) else 0.0
    if attempts.share_not_admitted is not None:
        metrics["rollout/not_admitted"] = attempts.share_not_admitted
    return metrics | _metrics_of_replay(attempts) | _metrics_of_guidance(chosen) | _metrics_of_shaping(chosen, groups)


def _score_and_return(trajectory: Trajectory) -> tuple[float, float]:
    """The score of an attempt and what its steps earned: neither says anything where all members have the same."""
    return score_of(trajectory), math.fsum(step.reward for step in trajectory.steps)  # in whatever order


def _is_touched(trajectory: Trajectory) -> bool:
    """Whether it is in the update, or earned what it did, only to give its group something to tell apart."""
    return trajectory.origin is not Origin.FRESH or any(step.shaped for step in trajectory.steps)


def _metrics_of_replay(attempts: UpdateAttempts) -> dict[str, float]:
    if not (attempts.recalled or attempts.left_out):
        return {}
    newest = max((max(trajectory.versions, default=0) for trajectory in attempts.chosen), default=0)
    metrics = {"replay/recalled": float(len(attempts.recalled)), "replay/left_out": float(attempts.left_out)}
    if attempts.recalled:
        metrics["replay/age"] = _mean([newest - recalled.past.version for recalled in attempts.recalled])
        metrics["replay/log_ratio"] = _mean([recalled.log_ratio or 0.0 for recalled in attempts.recalled])
    return metrics


def _metrics_of_guidance(chosen: Sequence[Trajectory]) -> dict[str, float]:
    guided = [trajectory for trajectory in chosen if _is_guided(trajectory)]
    if not guided:
        return {}
    return {
        "guidance/groups": float(len({trajectory.task.id for trajectory in guided})),
        "guidance/success": _mean([score_of(trajectory) for trajectory in guided]),
    }


def _is_guided(trajectory: Trajectory) -> bool:
    """Whether it was played with guidance; the copy of a success without guidance was not played itself."""
    is_copy = (trajectory.parent or "").startswith(f"{trajectory.task.id}{MARK}")
    return trajectory.origin is Origin.REFLECTED or (trajectory.origin is Origin.GUIDED and not is_copy)


def _metrics_of_shaping(chosen: Sequence[Trajectory], groups: dict[str, list[int]]) -> dict[str, float]:
    is_shaped = [any(step.shaped for n in members for step in chosen[n].steps) for members in groups.values()]
    return {"shaping/groups": _mean(is_shaped)} if any(is_shaped) else {}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
