"""The memory of the engine in the trainer's own process: weights, keys and values, and what reading prompts takes."""

from __future__ import annotations

from dataclasses import replace

import torch

from groupwise.engines.static_cache.engine import MIN_ROWS, MIN_WIDTH
from groupwise.models.outline import ModelPlan
from groupwise.training.doctor.memory.passes import rehearse_reading
from groupwise.training.doctor.memory.rehearsal import Rehearsal
from groupwise.training.engine.config import LocalEngine
from groupwise.training.needed_memory import count_engine_weights

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

    Args:
        settings: Of the engine.
        plan: The learner's model.
        rehearsal: What attempts come to.
        requests: Most responses that are asked for at a time.
        gpu: Bytes of the GPU that it decodes on; None = it decodes eagerly.
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
