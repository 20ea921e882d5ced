"""What the attempts of an update look like, and the credit of their steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.core.records import FAULTS, StopReason, Trajectory
from groupwise.core.segments import BoolArray, FloatArray


def compute_rollout_metrics(played: Sequence[Trajectory], survivors: Sequence[Trajectory]) -> dict[str, float]:
    """What an update's attempts look like; statistics are over the survivors, of which there is at least one."""
    steps = [step for trajectory in survivors for step in trajectory.steps]
    groups: dict[str, list[float]] = {}
    for trajectory in survivors:
        groups.setdefault(trajectory.task.id, []).append(_score(trajectory))
    wide = [scores for scores in groups.values() if len(scores) > 1]
    successes = [trajectory.scores["success"] for trajectory in survivors if "success" in trajectory.scores]
    entropies = [entropy for step in steps for entropy in step.entropy]
    metrics = {
        "rollout/return": _mean([_return(trajectory) for trajectory in survivors]),
        "rollout/steps": len(steps) / len(survivors),
        "rollout/faults": float(sum(trajectory.stop in FAULTS or not trajectory.steps for trajectory in played)),
        "rollout/truncated": _mean([trajectory.stop is StopReason.TRUNCATED for trajectory in survivors]),
        "rollout/group_size": len(survivors) / len(groups),
        "rollout/zero_spread": _mean([len(set(scores)) == 1 for scores in groups.values()]),
        "rollout/response_tokens": _mean([len(step.response_ids) for step in steps]),
        "rollout/cut_off": _mean([step.cut for step in steps]),
        "rollout/total_steps": float(sum(len(trajectory.steps) for trajectory in played)),
        "rollout/total_tokens": float(sum(len(step.response_ids) for attempt in played for step in attempt.steps)),
    }
    # What nobody measured is left out: it is not 0.
    optional: dict[str, list[float]] = {
        "rollout/success": successes,
        "rollout/well_formed": [step.well_formed for step in steps if step.well_formed is not None],
        "rollout/accepted": [step.accepted for step in steps if step.accepted is not None],
        "rollout/valid": [step.valid for step in steps if step.valid is not None],
        "rollout/return_spread": [float(np.std(scores)) for scores in wide],
        "rollout/entropy": entropies,
    }
    return metrics | {name: _mean(values) for name, values in optional.items() if values}


def compute_age_metrics(chosen: Sequence[Trajectory], version: int) -> dict[str, float]:
    """How many versions before the learner's the weights were that sampled the tokens; nothing where nobody says."""
    ages, tokens = list[int](), list[int]()
    for trajectory in chosen:
        if len(trajectory.versions) == 1:
            ages.append(version - trajectory.versions[0])
            tokens.append(sum(len(step.response_ids) for step in trajectory.steps))
        else:
            spans = [span for step in trajectory.steps for span in step.versions]
            ages += [version - sampled_by for sampled_by, _ in spans]
            tokens += [num for _, num in spans]
    if not sum(tokens):
        return {}
    mean = sum(age * num for age, num in zip(ages, tokens, strict=True)) / sum(tokens)
    return {"rollout/age": mean, "rollout/max_age": float(max(ages))}


def compute_credit_metrics(
    values: FloatArray, compared: BoolArray, keep: BoolArray, own_rollout_only: BoolArray | None
) -> dict[str, float]:
    """What an update's credit looks like, given one entry per step; nothing if there are no steps."""
    if not len(values):
        return {}
    own = {}
    if own_rollout_only is not None and compared.any():
        own = {"credit/own_rollout_only": float(own_rollout_only.sum() / compared.sum())}
    return own | {
        "credit/compared": float(compared.mean()),
        "credit/size": float(np.abs(values).mean()),
        "credit/kept": float(keep.mean()),
    }


def _return(trajectory: Trajectory) -> float:
    return sum(step.reward for step in trajectory.steps)


def _score(trajectory: Trajectory) -> float:
    return _return(trajectory) if trajectory.outcome is None else trajectory.outcome


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
