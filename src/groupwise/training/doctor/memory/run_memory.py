"""The memory of a run, from its run file: parts of learner and engine, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.models.outline import ModelPlan
from groupwise.training.doctor import hardware
from groupwise.training.doctor.memory.engine import estimate_engine
from groupwise.training.doctor.memory.passes import PassBytes, rehearse_learning
from groupwise.training.doctor.memory.rehearsal import Rehearsal, assume_longest, rehearse_attempts
from groupwise.training.engine.config import LocalEngine
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.needed_memory import (
    count_shares,
    count_weights,
    find_local_learner,
    has_reference,
    is_applied_at_once,
)
from groupwise.training.run_config import RunConfig, is_ours

LEARN = ("weights", "reference", "gradients", "optimiser", "activations", "work space", "engine", "keys and values")
"""Parts that are there while the learner learns."""
ROLLOUT = ("weights", "reference", "optimiser", "engine", "keys and values", "reading")
"""Parts that are there while attempts are played."""
UNKNOWN_CONTEXT = 4096
"""Positions of a model that does not say how many it has."""
COMPILED_SHARE = 0.71
"""What compiled layers keep of what others keep: 0.713 and 0.708 of what is counted here for the 1.5B and 0.5B shapes
of Qwen2.5, by the peaks in benchmarks/results/prefix_gpu.json."""


@dataclass(frozen=True, kw_only=True)
class RunMemory:
    """What a run holds, part by part: bytes of tensors, as torch counts them (`torch.cuda.max_memory_allocated`).

    The CUDA context, and what torch's allocator keeps in reserve between tensors, come on top.
    """

    parts: Mapping[str, float]
    """Bytes by part."""
    is_rehearsed: bool
    """Whether attempts were played to find out how long prompts become; otherwise they are as long as they may be."""
    has_gradients_to_add: bool = False
    """Whether gradients are to be applied as they come although a step has several micro-batches: a learner refuses."""

    @property
    def rollout(self) -> float:
        """Most while attempts are played."""
        return sum(self.parts[name] for name in ROLLOUT)

    @property
    def learn(self) -> float:
        """Most while the learner learns."""
        return sum(self.parts[name] for name in LEARN)

    @property
    def peak(self) -> float:
        """Most at all."""
        return max(self.rollout, self.learn)


def estimate_memory(config: RunConfig, plan: ModelPlan, tokenizer: Any) -> RunMemory:
    """Estimate what a run holds."""
    learner = find_local_learner(config) or LearnerConfig()
    context = getattr(plan.config.get_text_config(), "max_position_embeddings", None)
    if is_ours(config.env):
        rehearsal = rehearse_attempts(config, tokenizer, context=context, token_budget=learner.token_budget)
    else:
        rehearsal = assume_longest(config, context=context or UNKNOWN_CONTEXT, token_budget=learner.token_budget)
    of_learner = estimate_learner(
        plan, learner, rehearsal, has_reference=has_reference(config), shares=count_shares(config) or 1
    )
    of_engine = _estimate_engine(config, plan, rehearsal)
    has_several = rehearsal.is_played and rehearsal.num_micro_batches > learner.minibatches
    return RunMemory(
        parts={**of_learner, **of_engine},
        is_rehearsed=rehearsal.is_played,
        has_gradients_to_add=is_applied_at_once(learner) and has_several,
    )


def estimate_learner(
    plan: ModelPlan, learner: LearnerConfig, rehearsal: Rehearsal, *, has_reference: bool = False, shares: int = 1
) -> dict[str, float]:
    """Estimate what the learner holds, by part.

    Args:
        plan: Its model.
        learner: Its settings.
        rehearsal: What attempts come to.
        has_reference: Whether it keeps the weights that it began with.
        shares: Over how many processes weights, gradients and moments are divided.
    """
    parts = count_weights(plan, learner, has_reference=has_reference)
    passed = rehearse_update(plan, learner, rehearsal)
    adds_gradients = _adds_gradients(learner, rehearsal)
    # Where no gradients were there before, those of the pass are in its peak already.
    new = 0 if adds_gradients else parts["gradients"]
    return {
        **{name: size / shares for name, size in parts.items()},
        "activations": passed.kept,
        "work space": max(passed.there, passed.back - new) - passed.kept,
    }


def rehearse_update(plan: ModelPlan, learner: LearnerConfig, rehearsal: Rehearsal) -> PassBytes:
    """Rehearse a pass over the largest micro-batch of an update; what compiled layers keep is known from two shapes."""
    passed = rehearse_learning(
        plan.draw(),
        learner.model_copy(update={"compile_layers": False}),
        rehearsal.micro_batch,
        adds_gradients=_adds_gradients(learner, rehearsal),
        keeps_gradients=not is_applied_at_once(learner),
    )
    if not learner.compile_layers or learner.checkpoint_layers:
        return passed
    saved = (1 - COMPILED_SHARE) * passed.kept
    return PassBytes(kept=passed.kept - saved, there=passed.there - saved, back=passed.back - saved)


def _adds_gradients(learner: LearnerConfig, rehearsal: Rehearsal) -> bool:
    return rehearsal.num_micro_batches > 1 and not is_applied_at_once(learner)


def _estimate_engine(config: RunConfig, plan: ModelPlan, rehearsal: Rehearsal) -> dict[str, float]:
    local = config.engine
    if not isinstance(local, LocalEngine):
        return {"engine": 0, "keys and values": 0, "reading": 0}
    requests = max(
        config.training.tasks * config.rollout.plan.attempts, config.evaluation.tasks * config.evaluation.attempts
    )
    return estimate_engine(local, plan, rehearsal, requests=requests, gpu=_find_gpu_memory(config.device))


def _find_gpu_memory(device: str) -> float | None:
    """Bytes of the GPU that a run computes on; None = on none that is here."""
    name, _, number = device.partition(":")
    gpus = hardware.list_gpus()[int(number) if number.isdigit() else 0 :] if name in ("auto", "cuda") else []
    return gpus[0].memory if gpus else None
