"""Fields of a recorded step that are computed: each function makes the value to write of a trajectory and its step."""

from __future__ import annotations

from typing import Any

from groupwise.core.records import Step, Trajectory


def total_reward(trajectory: Trajectory, step: Step) -> float:
    """The reward with what shaping added: what comparing the attempts of its group is worth."""
    return step.reward + step.shaped


def reward_alone(trajectory: Trajectory, step: Step) -> float | None:
    """The reward before shaping, where shaping added something; None where it is the reward itself."""
    return step.reward if step.shaped else None


def valid_alone(trajectory: Trajectory, step: Step) -> bool | None:
    """`valid` as an older recording has it; None where `well_formed` and `accepted` are both known, and give it."""
    return step.recorded_valid if step.well_formed is None or step.accepted is None else None


def stop(trajectory: Trajectory, step: Step) -> str | None:
    """Why the attempt ended, on its last step."""
    return trajectory.stop if step is trajectory.steps[-1] else None


def accuracy(trajectory: Trajectory, step: Step) -> float | None:
    """The score `accuracy` of the attempt."""
    return trajectory.scores.get("accuracy")


def version(trajectory: Trajectory, step: Step) -> int | None:
    """The one version that sampled the step, where that is known."""
    if len(trajectory.versions) == 1:
        return trajectory.versions[0]
    known = {version for version, _ in step.versions}
    return known.pop() if len(known) == 1 else None


def versions(trajectory: Trajectory, step: Step) -> tuple[int, ...] | None:
    """The version of each token, where several sampled the step."""
    if len(trajectory.versions) == 1 or len({version for version, _ in step.versions}) < 2:
        return None
    return tuple(version for version, tokens in step.versions for _ in range(tokens))


def facts(trajectory: Trajectory, step: Step) -> dict[str, Any] | None:
    """The facts of the step; None where it has none."""
    return dict(step.facts) if step.facts else None
