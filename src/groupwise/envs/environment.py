"""The environment protocol: what the loop asks of an environment, and the records that pass between them.

An environment is single-use: a part opens one for a task, the loop observes and acts until the rollout ends, and throws
it away. Everything about it follows from the task alone, so the rollouts of a group face the same environment.

    environment = part.open(task)
    observation = environment.observe()
    outcome = environment.act("go to shelf 1")
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

from groupwise.data.records import Task
from groupwise.parts.part import Slot
from groupwise.system.errors import EnvironmentFault


class RolloutEnded(EnvironmentFault):
    """An environment was asked to act after its rollout had ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What the agent is shown before it acts.

    Worked example: text "You arrive at drawer 1. The drawer 1 is closed.", state_key "drawer 1 closed; carrying
    nothing", admissible ("open drawer 1", "go to desk 1"), goal "put a mug in drawer."
    """

    text: str
    """The text that is shown now."""
    state_key: Hashable | None = None
    """What makes two steps of a task comparable: equal keys, equal decision situation. None = not comparable."""
    admissible: tuple[str, ...] | None = None
    """The actions that are possible now; None = not listed."""
    goal: str = ""
    """What to do. A prompt can show it once; empty if the text is the question itself."""


NO_NOTE, NO_INFO = "", dict[str, Any]()
"""Shared defaults of most outcomes, so that a check by identity recognises them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of an action.

    Worked example: the action "move mug 1 to shelf 1" solves the task: reward 1.0, terminated, success True.
    """

    observation: Observation
    """What is shown after the action."""
    reward: float = 0.0
    """Reward of this step alone."""
    terminated: bool = False
    """The environment itself ended: success or failure."""
    truncated: bool = False
    """A limit ended the rollout; what comes next is unknown."""
    accepted: bool = True
    """Whether the action was valid: understood and carried out, useful or not."""
    success: bool | None = None
    """Whether the task was solved; set when the rollout ends, None before."""
    note: str = ""
    """A note for the record, such as why a verifier gave no result; empty = none."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Step info by name: columns of the step table for any method. JSON values, like `info` in Gymnasium."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


class Environment(Protocol):
    """One rollout's environment. It may also have `fork` and `expert` (see `Forkable` and `Expert`)."""

    def observe(self) -> Observation:
        """The current observation; the call changes nothing."""

    def act(self, action: str) -> Outcome:
        """Carry out an action. An invalid action is a step too, with `accepted` False."""


@runtime_checkable
class Forkable(Protocol):
    """An environment that can be copied in the middle of a rollout."""

    def fork(self) -> Environment:
        """An independent copy in the same state: the same actions give the same outcomes in both."""


@runtime_checkable
class Expert(Protocol):
    """An environment that knows a way to solve itself."""

    def expert(self) -> str | None:
        """A good next action; None if there is none, or if the rollout has ended."""


@runtime_checkable
class HasVocabulary(Protocol):
    """A part that lists its words, for the tokenizer of a model that is made from scratch."""

    def vocabulary(self) -> tuple[str, ...]:
        """Every word that an observation, a goal, an admissible or an expert's action may contain."""


class EnvironmentPart(Protocol):
    """Fills the slot `env`: task sets, and an environment for each task. It may also have `vocabulary` (see
    `HasVocabulary`).
    """

    @property
    def max_steps(self) -> int:
        """How many steps a rollout may take before it is truncated."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        """The fixed tasks of a split: train, validation or test; no task is in two of them."""

    def open(self, task: Task) -> Environment:
        """A fresh environment for a rollout; everything about it follows from the task."""

    def instruction(self) -> str:
        """One line that tells the agent what to do."""


EnvironmentSlot = Annotated[EnvironmentPart, Slot("env")]
"""A field of a run file that an environment fills."""
