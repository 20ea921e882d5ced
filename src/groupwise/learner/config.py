"""The settings of learners. No torch here: run files are read without it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from groupwise.losses import Tensor, TokenLoss
from groupwise.parts.part import Part, Positive, Share, Slot
from groupwise.parts.slots import Critic, Loss

if TYPE_CHECKING:
    from groupwise.learner.protocol import Learner

# Schedules: the fraction of the learning rate that each optimizer step uses.
#
# A schedule depends only on the number of optimizer steps made so far, so a resumed run continues exactly. An update
# makes `passes x minibatches` optimizer steps, one by default; with `minibatch_samples`, as many as its samples fill.


class Schedule(Protocol):
    """The fraction of the learning rate per optimizer step."""

    def __call__(self, step: int) -> float:
        """The fraction of the learning rate, from 0 to 1, after `step` optimizer steps."""


Warmup = Annotated[int, Field(ge=0)]


class Constant(Part, slot="schedule"):
    """The full learning rate, after a linear warm-up.

        fraction(n) = (n + 1) / warmup_steps during the warm-up, then 1

    Choice: the first step uses 1 / warmup_steps. In transformers it uses 0 and is lost.
    """

    warmup_steps: Warmup = 0
    """Optimizer steps over which the fraction grows to 1."""

    def __call__(self, step: int) -> float:
        return min(1.0, (step + 1) / max(1, self.warmup_steps))


class Linear(Part, slot="schedule"):
    """A straight line from the full learning rate down to a floor.

    fraction(n) = floor + (1 - floor) * (steps - n) / (steps - warmup_steps)      after the warm-up
    """

    steps: Annotated[int, Field(ge=1)]
    """Optimizer steps until the floor is reached, warm-up included. It does not change when a run is made longer."""
    warmup_steps: Warmup = 0
    """Optimizer steps over which the fraction first grows to 1."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction at the end, and from then on."""

    @model_validator(mode="after")
    def _falls(self) -> Linear:
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}, but the schedule has only {self.steps} steps; give fewer "
                "warmup_steps"
            )
        return self

    def __call__(self, step: int) -> float:
        progress = min(max((step - self.warmup_steps) / (self.steps - self.warmup_steps), 0.0), 1.0)
        warmth = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return warmth * (self.floor + (1 - self.floor) * self._left(progress))

    def _left(self, progress: float) -> float:
        """From 1 at the end of the warm-up to 0 at the last optimizer step."""
        return 1 - progress


class Cosine(Linear, slot="schedule"):
    """Half a cosine from the full learning rate down to a floor: slow at both ends.

        fraction(n) = floor + (1 - floor) * (1 + cos(pi * p)) / 2,   p = (n - warmup_steps) / (steps - warmup_steps)

    Source: Loshchilov and Hutter 2017 (arXiv:1608.03983), without restarts.
    """

    def _left(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2


ScheduleSlot = Annotated[Schedule, Slot("schedule")]


def check_positive_or_off(value: object) -> object:
    if value != "off" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f'found {value!r}; give a number above 0, or "off"')
    return value


# Critics: what a learner trains beside the policy, if the algorithm has one.


class ValueHead(Part, slot="critic"):
    """A linear head on the policy's last hidden state; it learns alone and does not train the policy.

        V = w . h + b
        loss = mean of max((V - G)^2, (clip(V, V_old - value_clip, V_old + value_clip) - G)^2) / 2

    V_old is the recorded value of a state, G its return: V_old plus the advantage by GAE, with this part's gamma and
    lam.

    Source: the clipped value loss of OpenAI's baselines, as later libraries compute it. **Choices.** The value of a
    token is read where the token is predicted; that of a step at the last token of its prompt. The head begins at 0.
    The gradient stops at the policy's trunk, so the policy learns the same as without the critic, given the advantages.
    Every state counts the same. States of steps or tokens that do not train do not count. The critic makes as many
    optimizer steps as the policy, on the same mini-batches and before it, with the learner's schedule, betas, eps,
    weight decay and `max_grad_norm`.
    """

    owns_trunk: ClassVar[bool] = False
    by: Literal["token", "step"] = "token"
    """Which states are valued: those before each sampled token, or those in which steps begin."""
    gamma: Share = 1.0
    """Discount of the returns, from one token or step to the next."""
    lam: Share = 1.0
    """Fraction of the next place's advantage in the returns: 1 = what was sampled."""
    learning_rate: Positive = 1e-5
    """Largest learning rate of the critic."""
    value_clip: Positive | Literal["off"] = 0.5
    """How far the loss lets a value move away from its recorded one; "off" = no bound."""

    @field_validator("value_clip", mode="before")
    @classmethod
    def _is_width_or_off(cls, value: object) -> object:
        return check_positive_or_off(value)

    def __call__(self, value_T: Tensor, old_T: Tensor, return_T: Tensor) -> TokenLoss:
        free_T = (value_T - return_T).square()
        if self.value_clip == "off":
            return TokenLoss(loss=free_T / 2)
        held_T = (value_T.clamp(old_T - self.value_clip, old_T + self.value_clip) - return_T).square()
        return TokenLoss(loss=free_T.maximum(held_T) / 2, clipped={"value": held_T > free_T})


class ValueModel(ValueHead, slot="critic"):
    """A copy of the policy's model with a linear head; all of it learns.

        V = w . h + b,   h the last hidden state of the copy;   the loss is that of `value_head`

    Source: training with two models, as in InstructGPT (arXiv:2203.02155). **Choices.** The copy is made of the policy
    at the beginning of the run, after a warm start. What is frozen in the policy (below an adapter) is frozen in the
    copy. It needs as much memory as the policy: weights, gradients and optimizer state. All else is as for
    `value_head`.
    """

    owns_trunk: ClassVar[bool] = True


Decay = Annotated[float, Field(ge=0, lt=1)]


class LearnerConfig(Part, slot="learner"):
    """AdamW in this process: one model on one device."""

    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW with optimizer state in float32, or in 8 bits (torchao), which takes a quarter of the memory."""
    bfloat16_weights: Literal["refused", "stochastic_rounding", "float32_masters"] = "refused"
    """How weights that were loaded in bfloat16 train. Plain rounding would lose small steps. refused = an error;
    stochastic_rounding = rounded up or down at random, unbiased (`adamw_8bit` only); float32_masters = the optimizer
    keeps a float32 copy. Float32 weights do not change."""

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Largest learning rate of AdamW; the schedule gives the fraction of it that a step uses."""
    schedule: ScheduleSlot = Constant()
    """How the learning rate changes over the run."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Decoupled weight decay, of every weight that trains."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay rates of AdamW's two moments."""
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8
    """Added to the square root of AdamW's second moment."""
    max_grad_norm: Annotated[float, Field(gt=0)] | Literal["off"] = 1.0
    """Gradients are clipped to this norm; "off" = no clipping."""
    apply_gradients: Literal["together", "as_they_come"] = "together"
    """When weights change. together = once all gradients are there; as_they_come = during the backward pass, so all
    gradients are never in memory at once. This needs `max_grad_norm` off and one micro-batch per optimizer step."""
    passes: Annotated[int, Field(ge=1)] = 1
    """Passes over an update's samples; after the first optimizer step they are off-policy."""
    minibatches: Annotated[int, Field(ge=1)] = 1
    """Optimizer steps per pass. Groups are not divided; with fewer groups than mini-batches, trajectories are not."""
    minibatch_samples: Annotated[int, Field(ge=1)] | None = None
    """Samples per optimizer step, in place of a number of steps; the last mini-batch may have fewer. Groups are
    divided. None = `minibatches` says it."""
    minibatch_order: Literal["shuffled", "as_sampled"] = "shuffled"
    """With `minibatch_samples`: the order in which samples are cut into mini-batches. shuffled = by a seed that follows
    from the number of optimizer steps so far."""
    token_budget: Annotated[int, Field(ge=1)] = 8192
    """Most distinct tokens in a micro-batch."""
    share_prefixes: bool = True
    """Compute equal prefixes of samples once."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What layers compute in. Trained weights and their gradients stay as loaded; the loss is always float32."""
    checkpoint_layers: bool = False
    """Gradient checkpointing: keep only the input of each layer and compute the rest again. It needs less memory."""
    compile_layers: bool = False
    """Compile layers: faster on a GPU, after half a minute at the start."""

    @field_validator("max_grad_norm", mode="before")
    @classmethod
    def _is_length_or_off(cls, value: object) -> object:
        return check_positive_or_off(value)

    @model_validator(mode="after")
    def _counts_once(self) -> LearnerConfig:
        if self.minibatch_samples is not None and self.minibatches > 1:
            raise ValueError(
                f"minibatch_samples = {self.minibatch_samples} and minibatches = {self.minibatches} both say how an "
                "update is divided; leave out one of the two"
            )
        return self

    @model_validator(mode="after")
    def _can_round(self) -> LearnerConfig:
        if self.bfloat16_weights == "stochastic_rounding" and self.optimizer == "adamw":
            raise ValueError(
                "bfloat16_weights is 'stochastic_rounding', which the optimizer 'adamw' does not support; set "
                "optimizer = 'adamw_8bit', or bfloat16_weights = 'float32_masters'"
            )
        return self

    def open(self, model: Any, loss: Loss, *, temperature: float, critic: Critic | None = None) -> Learner:
        from groupwise.learner.local import LocalLearner  # it needs torch

        return LocalLearner(model, loss, self, temperature=temperature, critic=critic)


class ShardedLearnerConfig(LearnerConfig, slot="learner"):
    """Several processes, started by torchrun: weights, gradients and optimizer state are sharded (FSDP2).

    Rank 0 runs rollouts, computes advantages and writes files; the other ranks only learn. Each group of samples goes
    to one rank. Totals are counted over all ranks, so the number of ranks changes an update only by rounding.
    """

    ranks: Annotated[int, Field(ge=1)] | None = None
    """Number of processes that the run must have; None = as many as were started."""
    gather: Literal["auto", "every_pass", "once_a_step"] = "auto"
    """When shards are gathered. every_pass = for each layer of each pass; it needs the least memory. once_a_step = once
    per optimizer step; it is faster. auto = once_a_step if there are several ranks, and whole weights and gradients
    take at most a third of the memory."""
    timeout: Annotated[float, Field(gt=0, le=604_800)] = 600.0
    """Seconds that a rank waits for the others within a pass before it fails; at most a week."""

    @model_validator(mode="after")
    def _is_plain(self) -> ShardedLearnerConfig:
        for name, only in (("optimizer", "adamw"), ("bfloat16_weights", "refused"), ("apply_gradients", "together")):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, which the sharded learner does not support; set {only!r}, or "
                    'use the local learner (kind = "local")'
                )
        return self

    def open(
        self, model: Any, loss: Loss, *, temperature: float, critic: Critic | None = None, device: Any = None
    ) -> Learner:
        """Open the learner over all ranks; `device` = of the shards, None = where the model is."""
        from groupwise.learner.sharded import open_sharded_learner  # it needs torch

        return open_sharded_learner(model, loss, self, temperature=temperature, device=device, critic=critic)
