"""The records of a rollout: the task, the steps, the trajectory.

Records are frozen and keyword-only. Token ids are exactly what the engine saw and sampled. Text is derived from them,
never the reverse. A failed rollout has a trajectory too, with the error in a field.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from groupwise.system.errors import RecordError
from groupwise.system.json_text import digest_value

SCHEMA = 2
"""Version of the records below; it is raised when the meaning of a field changes."""


class StopReason(StrEnum):
    """Why a rollout ended."""

    TERMINATED = "terminated"
    """The environment ended it: success or failure."""
    TRUNCATED = "truncated"
    """A limit on steps or tokens ended it; its final score says nothing about what would have followed."""
    INVALID = "invalid"
    """The response could not be used, and the environment's rules end the rollout for that."""
    ERROR = "error"
    """The environment or the engine failed; `Trajectory.error` says how."""
    TIMEOUT = "timeout"
    """The environment or the engine did not answer in time."""


FAULTS = (StopReason.ERROR, StopReason.TIMEOUT)
"""Ends that say nothing about the policy."""


class Origin(StrEnum):
    """Where a rollout came from; only fresh rollouts measure the current policy."""

    FRESH = "fresh"
    """Sampled by the current policy from the task alone."""
    REPLAYED = "replayed"
    """Replayed from an earlier update."""
    REFLECTED = "reflected"
    """Sampled with a hint in the prompt, such as an earlier failure, and compared with rollouts with that hint."""
    HINTED = "hinted"
    """Sampled with a hint, a forced beginning or another temperature, and trained or compared as if without it."""
    BRANCHED = "branched"
    """Continued from the middle of another rollout, its `parent`."""


SAMPLED_ELSEWHERE = frozenset({Origin.REPLAYED.value, Origin.HINTED.value})
"""Origins of rollouts that were sampled by an earlier policy, or with another prompt than they train with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task: what an environment needs to start an episode.

    Worked example: `Task.create(env="lookup", split="train", seed=7, payload={"question": "2+2"})` has the id
    `lookup-train-…`, the same in every run, because it is a digest of the other fields.
    """

    id: str
    """Derived from the content, so it is the same in every run."""
    env: str = ""
    """Name of its environment."""
    split: str = ""
    """Task set that it belongs to: train, validation, test."""
    seed: int = 0
    """Seed of the environment instance."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """What the environment needs to build the instance; JSON values."""
    tags: tuple[str, ...] = ()
    """Labels for tables, such as the task category."""

    @classmethod
    def create(
        cls,
        *,
        env: str,
        split: str = "",
        seed: int = 0,
        payload: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
    ) -> Task:
        """Make a task whose id is derived from its content."""
        content = {"env": env, "split": split, "seed": seed, "payload": payload or {}}
        name = "-".join(part for part in (env, split, digest_value(content)[:16]) if part)
        return cls(id=name, env=env, split=split, seed=seed, payload=payload or {}, tags=tuple(tags))


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step: the observation, the sampled response, and the environment's answer.

    Worked example: index 0, state_key "kitchen", response_ids (5, 9), logp_behaviour (-0.1, -2.3), action "open door",
    reward 0.0. The step trains on tokens 5 and 9 and is compared with other steps whose state_key is "kitchen".
    """

    index: int
    """Position in the rollout, from 0."""
    reward: float = 0.0
    """The environment's reward for this step."""
    shaped: float = 0.0
    """What group reward shaping added to the reward."""
    state_key: Hashable | None = None
    """Steps of a task with equal state keys are comparable. The environment sets it; None = not comparable."""
    observation: str | None = None
    """What the environment showed before the agent acted."""
    action: str | None = None
    """The parsed action, without the thoughts around it."""
    well_formed: bool | None = True
    """Whether the response had the required format; None = not known."""
    accepted: bool | None = True
    """Whether the environment accepted the action, in whatever format the response was; None = not known."""
    recorded_valid: bool | None = None
    """Whether both of these hold, from a recording that does not separate them; None = not recorded."""
    cut: bool = False
    """Whether the response was cut off at the token limit."""
    role: str | int | None = None
    """Which player or agent acted, if there are several."""
    branch: str | int | None = None
    """The branch point that this step was sampled from, if rollouts share a trunk."""
    prompt_ids: tuple[int, ...] = ()
    """Token ids the engine was given."""
    prompt_cut: int = 0
    """How many token ids the limit on prompts removed from `prompt_ids`."""
    unhinted_prompt_ids: tuple[int, ...] = ()
    """The prompt without its hint; empty = it had no hint."""
    response_ids: tuple[int, ...] = ()
    """Token ids the engine sampled; only these train."""
    logp_behaviour: tuple[float, ...] = ()
    """Log-probability of each sampled token when it was sampled."""
    entropy: tuple[float, ...] = ()
    """Entropy of the sampling distribution at each sampled token."""
    forced: int = 0
    """How many of the first `response_ids` were given instead of sampled; these do not train."""
    versions: tuple[tuple[int, int], ...] = ()
    """Which policy versions sampled its tokens, as (version, number of tokens) in order, if several versions sampled
    the rollout. Empty = the rollout's only version, or not known."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Step info: further JSON values from the environment and scorers, by name; they become columns of the table."""

    @property
    def valid(self) -> bool | None:
        """Whether the response was well formed and its action accepted; None = not known."""
        return list_valid([self])[0]


def check_steps(steps: Iterable[Step]) -> None:
    """Raise an error for steps with inconsistent fields. Called when steps become a table."""
    for step in steps:
        if step.index < 0:
            raise RecordError(f"the step number is {step.index}; count steps from 0")
        num = len(step.response_ids)
        if not 0 <= step.forced <= num:
            raise RecordError(
                f"step {step.index}: `forced` is {step.forced}, but the response has {num} tokens; `forced` counts the "
                "given tokens that the response begins with"
            )
        for name, values in (("logp_behaviour", step.logp_behaviour), ("entropy", step.entropy)):
            if values and len(values) != num:
                raise RecordError(
                    f"step {step.index}: {name} has {len(values)} entries for {num} sampled tokens; record one per "
                    "token, or none"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """The record of one rollout of a task, complete or failed.

    Worked example: rollout 3 of a task, steps 0 and 1, scores {"success": 1.0}, stop "terminated".
    """

    id: str
    """Unique within a run."""
    task: Task
    """The task."""
    rollout: int
    """Number of the rollout within the task's group."""
    steps: tuple[Step, ...]
    """The steps, in order."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores of the whole rollout, by name."""
    outcome: float | None = None
    """The final score; None = the sum of the step rewards."""
    stop: StopReason = StopReason.TERMINATED
    """Why the rollout ended."""
    versions: tuple[int, ...] = ()
    """Policy versions that sampled it, oldest first."""
    origin: Origin = Origin.FRESH
    """Where the rollout came from."""
    off_policy: bool = False
    """Whether it was sampled off-policy: by older weights, or with a hint in the prompt."""
    parent: str | None = None
    """The trajectory it was branched, replayed or reflected from."""
    error: str | None = None
    """What failed, if `stop` is error or timeout; or why a verifier gave no result."""

    def describe(self) -> str:
        return f"task {self.task.id!r}, rollout {self.rollout}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SetAside:
    """A finished rollout that was dropped: it is not compared, does not train, and is not replayed.

    Worked example: rollout 3 was cut off at the limit on steps: by "the rollout filter without_truncated".
    """

    trajectory: Trajectory
    """The rollout."""
    by: str
    """Which part dropped it, and why if the part's name does not say it."""


def list_valid(steps: Iterable[Step]) -> list[bool | None]:
    """Whether each step was well formed and accepted; None = not known."""
    return [
        step.recorded_valid if step.well_formed is None or step.accepted is None else step.well_formed and step.accepted
        for step in steps
    ]


def has_survived(trajectory: Trajectory) -> bool:
    """Whether a rollout has steps and ended without an environment or engine error."""
    return trajectory.stop not in FAULTS and bool(trajectory.steps)


def score_of(trajectory: Trajectory) -> float:
    """The score of a rollout: whether it solved its task, if the environment says it; else its final score."""
    earned = sum(map(attrgetter("reward"), trajectory.steps)) if trajectory.outcome is None else trajectory.outcome
    return float(trajectory.scores.get("success", trajectory.scores.get("accuracy", earned)))
