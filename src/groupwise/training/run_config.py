"""The run file's sections as one model: everything a run is, complete and loadable."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field

from groupwise.core.algorithm import Algorithm
from groupwise.core.parts import Part, Slot
from groupwise.envs.environment import EnvironmentSlot
from groupwise.rollout.actions import ActionRuleSlot, WholeResponse
from groupwise.rollout.memory import MemorySlot, Window
from groupwise.rollout.prompts import PromptTemplate
from groupwise.training.learner_config import LearnerConfig


class ModelPart(Protocol):
    """Fills the slot `model`: where the weights and the tokenizer come from."""

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """The model and its tokenizer; `words` are those of the environment, for a tokenizer made from scratch."""


class RolloutConfig(Part):
    """How attempts are played."""

    memory: MemorySlot = Window()
    """How much of the past a prompt shows."""
    template: PromptTemplate = PromptTemplate()
    """How observations are put to the model."""
    action_rule: ActionRuleSlot = WholeResponse()
    """How actions are read out of responses."""
    max_tokens: Annotated[int, Field(ge=1)] = 16
    """Most tokens of a response."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits, in the engine and in the learner."""


class TrainingConfig(Part):
    """How long a run is and what an update holds."""

    updates: Annotated[int, Field(ge=0)] = 20
    """Updates to make."""
    tasks: Annotated[int, Field(ge=1)] = 16
    """Tasks of an update."""
    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 5
    """Updates between checkpoints; the last update always has one."""
    least_survivors: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of an update's attempts that must end without a fault; below it the run stops."""


class EvaluationConfig(Part):
    """How the policy is evaluated."""

    split: str = "test"
    """Panel of tasks, disjoint from training's."""
    tasks: Annotated[int, Field(ge=1)] = 200
    """How many of its tasks, from the first."""
    attempts: Annotated[int, Field(ge=1)] = 1
    """Attempts at each."""
    temperature: Annotated[float, Field(ge=0)] = 0.4
    """Divides the logits; 0 = always the likeliest token."""


class WarmStartConfig(Part):
    """A supervised start from expert attempts."""

    tasks: Annotated[int, Field(ge=1)] = 200
    """Training tasks that the expert plays."""
    epochs: Annotated[int, Field(ge=1)] = 2
    """Passes over its steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Step size of AdamW."""
    batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Distinct tokens of an optimiser step."""


class RunConfig(Part):
    """A run, whole."""

    seed: int = 0
    """Root of the tree of seeds."""
    algorithm: Algorithm
    """What makes the method."""
    env: EnvironmentSlot
    """The tasks and the environments that play them."""
    model: Annotated[ModelPart, Slot("model")]
    """Where the weights come from."""
    rollout: RolloutConfig = RolloutConfig()
    """How attempts are played."""
    training: TrainingConfig = TrainingConfig()
    """How long the run is and what an update holds."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the policy is evaluated."""
    warm_start: WarmStartConfig | None = None
    """A supervised start, if any."""
