"""Trajectories as rows: one a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.core.records import Origin, Step, Trajectory


def trajectory_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The rows of one attempt.

    They hold what credit reads, with the tokens; the task's payload, the scores by name but for `accuracy`, the parent
    and the error stay with the trajectory. An attempt without steps has no rows.
    """
    last = len(trajectory.steps) - 1
    for position, step in enumerate(trajectory.steps):
        always = {
            "task": trajectory.task.id,
            "attempt": trajectory.attempt,
            "index": step.index,
            "state": step.state_key,
            "action": step.action,
            "reward": step.reward + step.shaped,
            "cut": step.cut,
            # Also where it is empty: a step without tokens among others with them has sampled 0, not an unknown number.
            "response_ids": step.response_ids,
        }
        yield always | _where_known(trajectory, step, is_last=position == last)


def _where_known(trajectory: Trajectory, step: Step, *, is_last: bool) -> dict[str, Any]:
    optional = {
        "observation": step.observation,
        "well_formed": step.well_formed,
        "accepted": step.accepted,
        # Where both are known it follows from them, and would be a second truth.
        "valid": step.valid if step.well_formed is None or step.accepted is None else None,
        "outcome": trajectory.outcome,
        "accuracy": trajectory.scores.get("accuracy"),
        "stop": trajectory.stop if is_last else None,
        "reward_alone": step.reward if step.shaped else None,
        "role": step.role,
        "branch": step.branch,
        "prompt_ids": step.prompt_ids or None,
        "logp_behaviour": step.logp_behaviour or None,
        "entropy": step.entropy or None,
        "forced": step.forced or None,
        **_versions(trajectory, step),
        "extra": dict(step.facts) or None,
        "origin": None if trajectory.origin is Origin.FRESH else trajectory.origin,
    }
    return {name: value for name, value in optional.items() if value is not None}


def _versions(trajectory: Trajectory, step: Step) -> dict[str, Any]:
    """Which weights sampled the step: one version, or one for each token; nothing where that is not known."""
    known = trajectory.versions if len(trajectory.versions) == 1 else {version for version, _ in step.versions}
    if len(known) > 1:
        return {"versions": tuple(version for version, tokens in step.versions for _ in range(tokens))}
    return {"version": next(iter(known), None)}
