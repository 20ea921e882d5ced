"""Attention of a decoding step: one query per row against the columns of its lane.

Queries that share a key head are computed together, as several queries of one head. So grouped-query attention needs no
copy of the cache:

    q (B, K, R, D)   k, v (B, K, W, D)   o = softmax(scaling q k' + mask) v

It is registered with transformers, and a model uses it only while it decodes. On a GPU our kernel computes it
(`kernels`); elsewhere torch does, with a mask.

Axes: B rows, K heads of keys and values, R queries a head of keys, W columns, D width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, PreTrainedModel

from groupwise.engines.static_cache.cache import HeadShape
from groupwise.system.errors import EngineFault

NAME = "groupwise_lanes"
"""Its name in transformers."""
STRANGE = ("s_aux", "position_bias", "head_mask")
"""Inputs of some models' attention that are not supported here."""
KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Kernels that support a mask, in a fixed order: a heuristic choice could change the last digits."""
_LAST: ContextVar[torch.Tensor | None] = ContextVar("last column", default=None)
"""The last column that each row reads (B), for the kernel; None = torch computes, with a mask."""


def attend_in_lanes(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of queries (B, K R, 1, D) with an additive mask (B, 1, 1, W), as transformers calls it."""
    for name in STRANGE:
        if kwargs.get(name) is not None:
            raise EngineFault(
                f"{type(module).__name__} adds {name!r} to its attention, which decoding in KV-cache slots does not "
                "support; set engine.decoding = 'eager'"
            )
    rows, heads, _, size = query.shape
    last_B = _LAST.get()
    if last_B is not None:
        from groupwise.engines.static_cache import kernels

        by_kernel = kernels.attend_step(
            query[:, :, 0], key, value, last_B, scaling=scaling or size**-0.5, softcap=softcap
        )
        return by_kernel[:, None], None
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size)
    assert attention_mask is not None, "a decoding step says which columns each row sees"
    if softcap is None:
        attended = functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=attention_mask.expand(*grouped.shape[:3], -1), scale=scaling
        )
    else:
        attended = _attend_capped(grouped, key, value, attention_mask, scaling or size**-0.5, softcap)
    return attended.reshape(rows, 1, heads, -1), None


def _attend_capped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float, softcap: float
) -> torch.Tensor:
    """The same by plain matrix products: no kernel of torch bends the scores."""
    scores = softcap * torch.tanh(query @ key.transpose(2, 3) * scaling / softcap)
    weights = (scores.float() + mask.float()).softmax(-1).to(value.dtype)
    return weights @ value


@contextmanager
def switch_attention(model: PreTrainedModel, last_B: torch.Tensor | None = None) -> Iterator[None]:
    """Switch a model to the attention of this file, and back at the end.

    If the last column of each row is given, the kernel computes; else torch does, with the mask of the model's call.
    """
    owned: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    configs = list({id(config): config for config in owned}.values())
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = NAME
    token = _LAST.set(last_B)
    try:
        with sdpa_kernel(KERNELS, set_priority=True):
            yield
    finally:
        _LAST.reset(token)
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


def has_kernel(device: torch.device) -> bool:
    return device.type == "cuda" and find_spec("triton") is not None


def measure_kernel_gap(num_queries: int, head: HeadShape, *, dtype: torch.dtype, device: torch.device) -> float:
    """Largest difference of the kernel and plain matrix products, over ragged rows, for numbers of about 1."""
    from groupwise.engines.static_cache import kernels

    num, size, out = head
    draw = torch.Generator(device).manual_seed(0)

    def draw_normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float32, device=device).to(dtype)

    query, key = draw_normal(3, num_queries, size), draw_normal(3, num, 256, size)
    value = draw_normal(3, num, 256, out)
    last_B = torch.tensor([0, 70, 255], device=device)
    is_seen_BW = torch.arange(256, device=device) <= last_B[:, None]
    # In float64, which no setting of torch rounds.
    scores = query.view(3, num, -1, size).double() @ key.double().transpose(2, 3) * size**-0.5
    weights = scores.masked_fill(~is_seen_BW[:, None, None], -torch.inf).softmax(-1)
    expected = (weights @ value.double()).view(3, num_queries, out)
    gaps = [
        (kernels.attend_step(query, key, value, last_B, scaling=size**-0.5, splits=splits) - expected).abs().max()
        for splits in (1, 4)
    ]
    return float(torch.stack(gaps).max())


AttentionInterface.register(NAME, attend_in_lanes)
