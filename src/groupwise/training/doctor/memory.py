"""The memory of a run, from its run file: parts of learner and engine, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from groupwise.engines.static_cache.engine import MIN_ROWS, MIN_WIDTH
from groupwise.learner.config import LearnerConfig
from groupwise.models.outline import ModelPlan
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import RunConfig, is_ours
from groupwise.training.doctor import hardware
from groupwise.training.doctor.memory_passes import (
    PassBytes,
    Rehearsal,
    assume_longest,
    rehearse_attempts,
    rehearse_learning,
    rehearse_reading,
)
from groupwise.training.needed_memory import (
    count_engine_weights,
    count_shares,
    count_weights,
    find_local_learner,
    has_reference,
    is_applied_at_once,
)

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
        return max(self.rollout, self.learn)


def estimate_memory(config: RunConfig, plan: ModelPlan, tokenizer: Any) -> RunMemory:
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

    `shares` is over how many processes weights, gradients and moments are divided.
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


# The memory of the engine in the trainer's own process: weights, keys and values, and what reading prompts takes.

SESSION_TOKENS = 262_144
"""Tokens whose keys and values the engine that decodes eagerly keeps for later steps."""
WORK_SPACE, STREAMS = 32 * 2**20, 32
"""Bytes that cuBLAS keeps for a stream on a large GPU, and streams that torch has to give."""
DRAWING_BYTES = 18
"""Bytes of a logit while tokens are drawn: as the model puts it out, scaled, as a probability, and in a sum of
float64."""


def estimate_engine(
    settings: LocalEngine, plan: ModelPlan, rehearsal: Rehearsal, *, requests: int, gpu: float | None
) -> dict[str, float]:
    """Estimate what the engine holds, by part.

    `requests` are the most responses that are asked for at a time, `gpu` the bytes of the GPU that it decodes on; None
    = it decodes eagerly.
    """
    own = replace(plan, dtype=torch.bfloat16 if settings.precision == "bfloat16" else plan.dtype).draw()
    column = count_column(plan, own)
    if gpu is None or settings.decoding == "eager":
        lanes = column * min(SESSION_TOKENS, requests * rehearsal.longest) + column * settings.batch_tokens
        rows = max(1, min(requests, settings.batch_tokens // rehearsal.longest))
    else:
        rows, width = choose_lanes(settings, column, rehearsal.longest, requests=requests, memory=settings.memory * gpu)
        lanes = column * rows * width + count_work_spaces(rows, width)
    reading = rehearse_reading(own, min(settings.batch_tokens, rehearsal.read))
    drawing = rows * plan.config.get_text_config().vocab_size * DRAWING_BYTES
    return {"engine": count_engine_weights(settings, plan), "keys and values": lanes, "reading": max(reading, drawing)}


def count_column(plan: ModelPlan, own: torch.nn.Module) -> int:
    """Bytes of one token's keys and values in all layers."""
    config = plan.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size = next(own.parameters()).element_size()
    return int(config.num_hidden_layers * heads * width * 2 * size)


def count_work_spaces(rows: int, width: int) -> int:
    """Bytes that cuBLAS keeps for the streams that steps are captured on: one a shape, as far as torch has streams."""
    shapes = (1 + (rows // MIN_ROWS).bit_length()) * 2 * (width // MIN_WIDTH).bit_length()
    return min(shapes, STREAMS) * WORK_SPACE


def choose_lanes(settings: LocalEngine, column: int, longest: int, *, requests: int, memory: float) -> tuple[int, int]:
    """Lanes and their width as the engine chooses them for responses of a length, many of them at a time."""
    width = _round_up(longest, MIN_WIDTH)
    if memory // (column * width) < 1:
        width = longest
    return max(1, min(int(memory // (column * width)), settings.rows, _round_up(requests, MIN_ROWS))), width


def _round_up(number: int, smallest: int) -> int:
    return int(smallest * 2 ** max(0, (max(1, -(-number // smallest)) - 1).bit_length()))
