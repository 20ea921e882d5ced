"""Trajectories as rows: one a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.core.records import Origin, Step, Trajectory


def trajectory_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The rows of one attempt.

    They hold what credit reads, with the tokens; the task's payload, the scores by name but for `accuracy`, the form of
    the responses, the parent and the error stay with the trajectory. An attempt without steps has no rows.
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
            "valid": step.valid,
            "cut": step.cut,
            # Also where it is empty: a step without tokens among others with them has sampled 0, not an unknown number.
            "response_ids": step.response_ids,
        }
        yield always | _where_known(trajectory, step, is_last=position == last)


def _where_known(trajectory: Trajectory, step: Step, *, is_last: bool) -> dict[str, Any]:
    optional = {
        "observation": step.observation,
        "outcome": trajectory.outcome,
        "accuracy": trajectory.scores.get("accuracy"),
        "stop": trajectory.stop if is_last else None,
        "reward_alone": step.reward if step.shaped else None,
        "role": step.role,
        "branch": step.branch,
        "prompt_ids": step.prompt_ids or None,
        "logp_behaviour": step.logp_behaviour or None,
        "entropy": step.entropy or None,
        # Several versions sampled the attempt: which of them sampled this step is not recorded.
        "version": trajectory.versions[0] if len(trajectory.versions) == 1 else None,
        "extra": dict(step.facts) or None,
        "origin": None if trajectory.origin is Origin.FRESH else trajectory.origin,
    }
    return {name: value for name, value in optional.items() if value is not None}
