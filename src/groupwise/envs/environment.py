"""The environment protocol: what the loop asks of a world, and the records that pass between them.

An environment is single-use: a part opens one for a task, the loop observes and acts until the attempt ends, and throws
it away. Everything about it follows from the task alone, so the attempts of a group face the same world.

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


class AttemptEnded(EnvironmentFault):
    """An environment was asked to act after its attempt had ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What the agent is shown before it acts.

    Worked example: text "You arrive at drawer 1. The drawer 1 is closed.", state_key "drawer 1 closed; carrying
    nothing", admissible ("open drawer 1", "go to desk 1"), goal "put a mug in drawer."
    """

    text: str
    """What is shown now."""
    state_key: Hashable | None = None
    """What makes two steps of a task comparable: equal keys, equal decision situation. None = not comparable."""
    admissible: tuple[str, ...] | None = None
    """The actions that are possible now, where they can be listed."""
    goal: str = ""
    """What the task asks for, so that a prompt can say it once; empty where the text is the question itself."""


NO_NOTE, NO_FACTS = "", dict[str, Any]()
"""What most outcomes say beside themselves: one of each for all, so that a look at which object it is tells it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of an action.

    Worked example: the action "move mug 1 to shelf 1" solves the task: reward 1.0, terminated, success True.
    """

    observation: Observation
    """What is shown after the action."""
    reward: float = 0.0
    """Reward of this step alone."""
    terminated: bool = False
    """The world reached an end of its own: success or failure."""
    truncated: bool = False
    """A limit cut the attempt off; its outcome says nothing about what would have come."""
    accepted: bool = True
    """Whether the environment understood the action and carried it out, be it of use or not."""
    success: bool | None = None
    """Whether the task was solved; set when the attempt ends, None before."""
    note: str = ""
    """What the record should say of the end, such as why a verifier gave no verdict; empty = nothing."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the environment knows of the step, by name: columns of the step table for any method; JSON values."""

    @property
    def ended(self) -> bool:
        """Whether this was the attempt's last step."""
        return self.terminated or self.truncated


class Environment(Protocol):
    """One attempt's world. It may also have `fork` and `expert` (see `Forkable` and `Expert`)."""

    def observe(self) -> Observation:
        """What is shown now; asking changes nothing."""
        ...

    def act(self, action: str) -> Outcome:
        """Carry out an action; an action that cannot be understood is a step too, with `accepted` False."""
        ...


@runtime_checkable
class Forkable(Protocol):
    """An environment that can be copied in the middle of an attempt."""

    def fork(self) -> Environment:
        """An independent copy in the same state: the same actions give the same outcomes in both."""
        ...


@runtime_checkable
class Expert(Protocol):
    """An environment that knows a way to solve itself."""

    def expert(self) -> str | None:
        """A good next action; None where there is none, or the attempt has ended."""
        ...


@runtime_checkable
class HasVocabulary(Protocol):
    """A part that lists its words, for the tokenizer of a model that is made from scratch."""

    def vocabulary(self) -> tuple[str, ...]:
        """Every word that an observation, a goal, an admissible or an expert's action may contain."""
        ...


class EnvironmentPart(Protocol):
    """Fills the slot `env`: a family of tasks, and the environments that play them. It may also have `vocabulary` (see
    `HasVocabulary`).
    """

    @property
    def max_steps(self) -> int:
        """How many steps an attempt may take before it is truncated."""
        ...

    def panel(self, split: str) -> tuple[Task, ...]:
        """The fixed tasks of a split: train, validation or test; no task is in two of them."""
        ...

    def open(self, task: Task) -> Environment:
        """A fresh environment for an attempt; everything about it follows from the task."""
        ...

    def instruction(self) -> str:
        """One line that tells the agent what to do."""
        ...


EnvironmentSlot = Annotated[EnvironmentPart, Slot("env")]
"""A field of a run file that an environment fills."""
