"""The records of a rollout: a task, a step, the trajectory of an attempt.

Records are frozen and keyword-only. Token ids are exactly what the engine saw and sampled; text is derived from them,
never the reverse. A failed attempt is a trajectory too: its error is a value on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from groupwise.system.errors import RecordError
from groupwise.system.json_text import digest_value

SCHEMA = 1
"""Version of the records below; it grows when a field changes its meaning."""


class StopReason(StrEnum):
    """Why an attempt ended."""

    TERMINATED = "terminated"
    """The environment reached an end of its own: success or failure."""
    TRUNCATED = "truncated"
    """A limit on steps or tokens cut the attempt off; its outcome says nothing about what would have come."""
    INVALID = "invalid"
    """The policy's output could not be used and the rules end the attempt for it."""
    ERROR = "error"
    """The environment or the engine failed; `Trajectory.error` says how."""
    TIMEOUT = "timeout"
    """The environment or the engine did not answer in time."""


FAULTS = (StopReason.ERROR, StopReason.TIMEOUT)
"""Ends that say nothing of the policy."""


class Origin(StrEnum):
    """Where an attempt came from; only fresh attempts speak about the current policy."""

    FRESH = "fresh"
    """Sampled by the current policy from the task alone."""
    REPLAYED = "replayed"
    """Recalled from an earlier update."""
    REFLECTED = "reflected"
    """Sampled with guidance in the prompt, such as a remembered failure, and compared with its like."""
    GUIDED = "guided"
    """Sampled with guidance, a forced beginning or at another temperature, and told or compared as if without."""
    BRANCHED = "branched"
    """Continued from the middle of another attempt, its `parent`."""


SAMPLED_ELSEWHERE = frozenset({Origin.REPLAYED.value, Origin.GUIDED.value})
"""Origins of attempts that another policy sampled than the one that learns, or the same with another prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A problem instance.

    Worked example: `Task.create(env="lookup", split="train", seed=7, payload={"question": "2+2"})` has the id
    `lookup-train-…`, the same in every run, because it is a digest of the other fields.
    """

    id: str
    """Content-derived and stable across runs."""
    env: str = ""
    """Name of the environment that plays it."""
    split: str = ""
    """Panel it belongs to: train, validation, test."""
    seed: int = 0
    """Seed of the environment instance."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """What the environment needs to construct the instance; JSON values."""
    tags: tuple[str, ...] = ()
    """Labels for tables, such as a task family."""

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
    """One exchange with the environment: what was seen, what was sampled, what came of it.

    Worked example: index 0, state_key "kitchen", response_ids (5, 9), logp_behaviour (-0.1, -2.3), action "open door",
    reward 0.0. The step trains on tokens 5 and 9 and is compared with other steps whose state_key is "kitchen".
    """

    index: int
    """Position in the attempt, from 0."""
    reward: float = 0.0
    """Environment reward of this step alone."""
    shaped: float = 0.0
    """What comparing the attempts of its group added to the reward; it says nothing of the step by itself."""
    state_key: Hashable | None = None
    """What makes two steps of a task comparable, set by the environment; None = not comparable."""
    observation: str | None = None
    """What the environment showed before the agent acted."""
    action: str | None = None
    """The parsed action, without the thoughts around it."""
    well_formed: bool | None = True
    """Whether the response had the form that was asked for, whatever the environment made of it; None = not known."""
    accepted: bool | None = True
    """Whether the environment accepted the action, whatever the form of the response; None = not known."""
    recorded_valid: bool | None = None
    """What an older recording says in place of the two above, which it did not tell apart; None = nothing."""
    cut: bool = False
    """Whether the response was cut off at its most tokens, before the policy ended it."""
    role: str | int | None = None
    """Which player or agent acted, where there are several."""
    branch: str | int | None = None
    """The branch point this step was sampled from, where attempts share a trunk."""
    prompt_ids: tuple[int, ...] = ()
    """Token ids the engine was given."""
    unguided_prompt_ids: tuple[int, ...] = ()
    """The prompt without the guidance that it held; empty = it held none."""
    response_ids: tuple[int, ...] = ()
    """Token ids the engine sampled; only these train."""
    logp_behaviour: tuple[float, ...] = ()
    """Log-probability of each sampled token when it was sampled."""
    entropy: tuple[float, ...] = ()
    """Entropy of the sampling distribution at each sampled token."""
    forced: int = 0
    """How many of the first `response_ids` were given to the policy instead of sampled by it; these do not train."""
    versions: tuple[tuple[int, int], ...] = ()
    """Which version of the weights sampled which of its tokens, as (version, tokens) in order, where several versions
    sampled the attempt; empty = the attempt's one version, or not known."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else its environment and measures say of the step, by name: columns of the table; JSON values."""

    @property
    def valid(self) -> bool | None:
        """Whether the response was well formed and its action accepted; None = not known."""
        return list_valid([self])[0]


def check_steps(steps: Iterable[Step]) -> None:
    """Refuse steps whose fields do not go together; asked where they become a table."""
    for step in steps:
        if step.index < 0:
            raise RecordError(f"step index is {step.index}; count steps from 0")
        num = len(step.response_ids)
        if not 0 <= step.forced <= num:
            raise RecordError(
                f"step {step.index}: {step.forced} tokens are said to be forced in a response of {num}; count those "
                "that the response begins with"
            )
        for name, values in (("logp_behaviour", step.logp_behaviour), ("entropy", step.entropy)):
            if values and len(values) != num:
                raise RecordError(
                    f"step {step.index}: {name} has {len(values)} entries for {num} sampled tokens; record one per "
                    "token, or none"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """The record of one attempt at a task, whole or failed.

    Worked example: attempt 3 at a task, steps 0 and 1, scores {"success": 1.0}, stop "terminated".
    """

    id: str
    """Unique within a run."""
    task: Task
    """The task that was attempted."""
    attempt: int
    """Number of the attempt within the task's group."""
    steps: tuple[Step, ...]
    """The steps, in order."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores of the whole attempt by name."""
    outcome: float | None = None
    """The score that counts; None = the sum of the step rewards."""
    stop: StopReason = StopReason.TERMINATED
    """Why the attempt ended."""
    versions: tuple[int, ...] = ()
    """Policy versions that sampled it, oldest first."""
    origin: Origin = Origin.FRESH
    """Where the attempt came from."""
    off_policy: bool = False
    """Whether another policy sampled it than the one that learns: older weights, or a prompt with guidance in it."""
    parent: str | None = None
    """The trajectory it was branched, replayed or reflected from."""
    error: str | None = None
    """What failed, where `stop` is error or timeout; or why a verifier gave no verdict."""

    def describe(self) -> str:
        """Name the attempt in words, for messages."""
        return f"task {self.task.id!r}, attempt {self.attempt}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SetAside:
    """An attempt that was played to its end and takes part in nothing: no comparison, no training, no past attempts.

    Worked example: attempt 3 was cut off at the limit on steps: by "the admission without_truncated".
    """

    trajectory: Trajectory
    """The attempt."""
    by: str
    """Who set it aside, and why where that does not say it."""


def list_valid(steps: Iterable[Step]) -> list[bool | None]:
    """Whether each step was well formed and accepted, by what a record says of it: both, or only what they come to."""
    return [
        step.recorded_valid if step.well_formed is None or step.accepted is None else step.well_formed and step.accepted
        for step in steps
    ]


def has_survived(trajectory: Trajectory) -> bool:
    """Whether an attempt took a step and ended without a fault."""
    return trajectory.stop not in FAULTS and bool(trajectory.steps)


def score_of(trajectory: Trajectory) -> float:
    """What an attempt is judged by: whether it solved its task, where the environment says so, else what it earned."""
    earned = sum(map(attrgetter("reward"), trajectory.steps)) if trajectory.outcome is None else trajectory.outcome
    return float(trajectory.scores.get("success", trajectory.scores.get("accuracy", earned)))
