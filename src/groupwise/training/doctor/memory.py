"""Estimate the memory of a run from its run file: parts of learner and engine, by stage."""

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
    rehearse_learning,
    rehearse_reading,
    rehearse_rollouts,
)
from groupwise.training.needed_memory import (
    count_engine_weights,
    count_shares,
    count_weights,
    find_local_learner,
    has_value_model,
    is_applied_at_once,
)

LEARN = (
    "weights",
    "reference",
    "gradients",
    "optimizer",
    "critic",
    "activations",
    "work space",
    "engine",
    "keys and values",
)
"""Parts in memory while the learner learns."""
ROLLOUT = ("weights", "reference", "optimizer", "critic", "engine", "keys and values", "reading")
"""Parts in memory during rollouts."""
UNKNOWN_CONTEXT = 4096
"""Assumed number of positions of a model that does not say it."""
COMPILED_SHARE = 0.71
"""Activations of compiled layers as a fraction of others: 0.713 and 0.708 for the 1.5B and 0.5B shapes of Qwen2.5, by
the peaks in benchmarks/results/prefix_gpu.json."""


@dataclass(frozen=True, kw_only=True)
class RunMemory:
    """Bytes of a run's tensors, by part, as in `torch.cuda.max_memory_allocated`.

    The CUDA context and the reserve of torch's allocator come on top.
    """

    parts: Mapping[str, float]
    is_rehearsed: bool
    """Whether prompt lengths come from sample rollouts; otherwise the largest lengths are assumed."""
    has_gradients_to_add: bool = False
    """Whether `apply_gradients` = as_they_come meets several micro-batches per step, which the learner rejects."""

    @property
    def rollout(self) -> float:
        """Largest memory during rollouts."""
        return sum(self.parts[name] for name in ROLLOUT)

    @property
    def learn(self) -> float:
        """Largest memory while the learner learns."""
        return sum(self.parts[name] for name in LEARN)

    @property
    def peak(self) -> float:
        return max(self.rollout, self.learn)


def estimate_memory(config: RunConfig, plan: ModelPlan, tokenizer: Any) -> RunMemory:
    learner = find_local_learner(config) or LearnerConfig()
    context = getattr(plan.config.get_text_config(), "max_position_embeddings", None)
    if is_ours(config.env):
        rehearsal = rehearse_rollouts(config, tokenizer, context=context, token_budget=learner.token_budget)
    else:
        rehearsal = assume_longest(config, context=context or UNKNOWN_CONTEXT, token_budget=learner.token_budget)
    of_learner = estimate_learner(
        plan,
        learner,
        rehearsal,
        has_reference=config.needs_reference,
        has_value_model=has_value_model(config),
        shares=count_shares(config) or 1,
    )
    of_engine = _estimate_engine(config, plan, rehearsal)
    has_several = rehearsal.is_played and rehearsal.num_micro_batches > learner.minibatches
    return RunMemory(
        parts={**of_learner, **of_engine},
        is_rehearsed=rehearsal.is_played,
        has_gradients_to_add=is_applied_at_once(learner) and has_several,
    )


def estimate_learner(
    plan: ModelPlan,
    learner: LearnerConfig,
    rehearsal: Rehearsal,
    *,
    has_reference: bool = False,
    has_value_model: bool = False,
    shares: int = 1,
) -> dict[str, float]:
    """Estimate the learner's memory, by part; `shares` is the number of processes that it is sharded over."""
    parts = count_weights(plan, learner, has_reference=has_reference, has_value_model=has_value_model)
    passed = rehearse_update(plan, learner, rehearsal)
    adds_gradients = _adds_gradients(learner, rehearsal)
    # The first gradients are already in the peak of the pass.
    new = 0 if adds_gradients else parts["gradients"]
    return {
        **{name: size / shares for name, size in parts.items()},
        "activations": passed.kept,
        "work space": max(passed.there, passed.back - new) - passed.kept,
    }


def rehearse_update(plan: ModelPlan, learner: LearnerConfig, rehearsal: Rehearsal) -> PassBytes:
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
    evaluated = [each.tasks * each.rollouts for each in config.evaluation.by_name().values()]
    requests = max([config.training.tasks * config.rollout.group_size, *evaluated])
    return estimate_engine(local, plan, rehearsal, requests=requests, gpu=_find_gpu_memory(config.device))


def _find_gpu_memory(device: str) -> float | None:
    """Memory of the run's GPU; None = no GPU."""
    name, _, number = device.partition(":")
    gpus = hardware.list_gpus()[int(number) if number.isdigit() else 0 :] if name in ("auto", "cuda") else []
    return gpus[0].memory if gpus else None


SESSION_TOKENS = 262_144
"""Tokens whose keys and values the eager engine keeps for later steps."""
WORK_SPACE, STREAMS = 32 * 2**20, 32
"""Bytes that cuBLAS keeps per stream on a large GPU, and torch's number of streams."""
DRAWING_BYTES = 18
"""Bytes per logit while tokens are sampled: raw, scaled, as a probability, and in a float64 sum."""


def estimate_engine(
    settings: LocalEngine, plan: ModelPlan, rehearsal: Rehearsal, *, requests: int, gpu: float | None
) -> dict[str, float]:
    """Estimate the engine's memory, by part.

    `requests` is the largest number of responses at a time, `gpu` the memory of its GPU (None = it decodes eagerly).
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
    """Bytes that cuBLAS keeps for the streams of captured steps: one per shape, up to torch's number of streams."""
    shapes = (1 + (rows // MIN_ROWS).bit_length()) * 2 * (width // MIN_WIDTH).bit_length()
    return min(shapes, STREAMS) * WORK_SPACE


def choose_lanes(settings: LocalEngine, column: int, longest: int, *, requests: int, memory: float) -> tuple[int, int]:
    """The number and width of KV-cache slots that the engine chooses."""
    width = _round_up(longest, MIN_WIDTH)
    if memory // (column * width) < 1:
        width = longest
    return max(1, min(int(memory // (column * width)), settings.rows, _round_up(requests, MIN_ROWS))), width


def _round_up(number: int, smallest: int) -> int:
    return int(smallest * 2 ** max(0, (max(1, -(-number // smallest)) - 1).bit_length()))
