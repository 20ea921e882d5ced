"""What passes over a model hold at a time: the learner's, there and back, and the engine's, which reads prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from groupwise.models.attention import on_gpu
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward, ForwardSettings
from groupwise.models.head.output_layer import VOCABULARY_TILE, cut_tiles
from groupwise.training.doctor.memory.live_bytes import count_live_bytes


@dataclass(frozen=True, kw_only=True)
class MicroBatchShape:
    """How large a micro-batch is."""

    tokens: int
    """Tokens that are computed."""
    predicting: int
    """Those that predict a token that trains."""
    keys: int
    """Keys that attention reads: a path is copied as often as it forks."""
    chunk: int = 8192
    """Predicting tokens that the head takes at a time."""


@dataclass(frozen=True, kw_only=True)
class PassBytes:
    """Bytes of a pass there and back, beside weights, and gradients that are there already."""

    kept: float
    """What is kept from the way there for the way back."""
    there: float
    """Most at a time on the way there; copies of weights in a narrower type are among it."""
    back: float
    """Most at a time on the way back."""

    @property
    def peak(self) -> float:
        """Most at a time."""
        return max(self.there, self.back)


def rehearse_learning(
    model: Any, settings: ForwardSettings, shape: MicroBatchShape, *, adds_gradients: bool, keeps_gradients: bool = True
) -> PassBytes:
    """Run the learner's pass over an outline of its model, there and back.

    Args:
        model: An outline, which is set up as the learner sets its model up.
        settings: How the learner runs it.
        shape: Of the micro-batch.
        adds_gradients: Whether gradients of an earlier micro-batch are there to be added to; they are not counted.
        keeps_gradients: Whether gradients stay; otherwise each goes as soon as it is there.
    """
    on_gpu.register()
    halves = CausalLM.of(Forward(model, settings).model)
    halves.set_attention(on_gpu.NAME)
    with count_live_bytes(model) as live:
        for value in model.parameters():
            value.grad = torch.empty_like(value) if adds_gradients and value.requires_grad else None
            if value.requires_grad and not keeps_gradients:
                value.register_post_accumulate_grad_hook(_drop_gradient)
        live.start()
        inputs = _make_inputs(shape)
        narrow, keeps_casts = settings.precision == "bfloat16", not settings.checkpoint_layers  # as `Forward` does
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow, cache_enabled=keeps_casts):
            hidden = halves.run_body(**inputs).flatten(0, 1)
            hidden = hidden.index_select(0, torch.empty(shape.predicting, dtype=torch.long))
            if settings.precision == "bfloat16":
                hidden = hidden.to(torch.bfloat16)
        kept, there = live.now, live.peak
        live.peak = live.now
        score = cast(Callable[..., torch.Tensor], HeadOutline.apply)(hidden, halves.head.weight, shape.chunk).sum()
        del hidden
        score.backward()
        return PassBytes(kept=kept, there=there, back=live.peak)


def _drop_gradient(value: torch.Tensor) -> None:
    value.grad = None


@torch.no_grad()
def rehearse_reading(model: Any, tokens: int) -> int:
    """Run the body over tokens without a way back, as an engine does with prompts; most bytes at a time."""
    on_gpu.register()
    halves = CausalLM.of(model)
    halves.set_attention(on_gpu.NAME)
    with count_live_bytes(model) as live:
        halves.run_body(**_make_inputs(MicroBatchShape(tokens=tokens, predicting=0, keys=tokens)))
        return live.peak


def _make_inputs(shape: MicroBatchShape) -> dict[str, Any]:
    """What the body is called with to read a pack on a GPU (`batching.chains`)."""
    ids = torch.empty(1, shape.tokens, dtype=torch.long)
    bounds = torch.empty(2, dtype=torch.int32)
    source, begins = torch.empty(shape.keys, dtype=torch.long), torch.empty(shape.tokens, dtype=torch.long)
    return {
        "input_ids": ids,
        "position_ids": ids,
        "attention_mask": torch.empty(1, 1, 1, 1, dtype=torch.int32),
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": shape.tokens,
        "max_length_k": shape.keys,
        "key_copies": [source, source, begins] if shape.keys > shape.tokens else [],
    }


class HeadOutline(torch.autograd.Function):
    """What the fused head (`models.head.fused`) holds at a time, tile by tile, without the arithmetic of its kernels.

    Axes: U predicting nodes, H hidden, V vocabulary.
    """

    @staticmethod
    def forward(ctx: Any, hidden_UH: torch.Tensor, weight_VH: torch.Tensor, chunk: int) -> torch.Tensor:  # noqa: D102
        ctx.save_for_backward(hidden_UH, weight_VH)
        ctx.chunk = chunk
        narrow = weight_VH.to(hidden_UH.dtype)
        for rows in hidden_UH.split(chunk):
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
        del raw_UV
        return hidden_UH.new_empty(len(hidden_UH), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, into_U: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: D102
        hidden_UH, weight_VH = ctx.saved_tensors
        narrow = weight_VH.to(hidden_UH.dtype)
        grad_hidden = torch.empty_like(hidden_UH)
        grad_weight = torch.zeros_like(weight_VH, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for rows in hidden_UH.split(ctx.chunk):
            total = torch.zeros_like(rows, dtype=torch.float32)
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
                grad_UV = torch.empty_like(raw_UV)
                total += grad_UV @ narrow[low:high]
                if grad_weight is not None:
                    grad_weight[low:high] += grad_UV.T @ rows
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VH.dtype), None
