"""The operations of a layer except matrix products and attention, as kernels: each reads and writes its numbers once.

Sums and products are in float32 and rounded where the model's own code rounds, except the rotation, which is rounded
once. Import this only to use the kernels: it needs Triton, which comes with torch for CUDA.

Axes: N tokens, E width of the model, H queries, K heads of keys and values, D width of a head, F of the feed-forward
part, L lanes, W columns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from groupwise.engines.static_cache.cache import TokenBatch

GATE_BLOCK = 1024
"""Numbers of the feed-forward part per program."""
NARROW = 2048
"""Largest width of a model whose tokens are normed by four warps; wider models use eight."""


def add_and_norm(
    new_NE: torch.Tensor, residual_NE: torch.Tensor | None, weight_E: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add new values to the residual, in place. Returns the sum and its RMS norm."""
    num, width = new_NE.shape
    total_NE = new_NE if residual_NE is None else residual_NE
    normed_NE = torch.empty_like(new_NE)
    with torch.cuda.device_of(new_NE):
        _ADD_AND_NORM[(num,)](
            new_NE, total_NE, weight_E, normed_NE, epsilon, new_NE.stride(0), total_NE.stride(0),
            E=width, WIDE_E=triton.next_power_of_2(width), HAS_RESIDUAL=residual_NE is not None,
            num_warps=4 if width <= NARROW else 8,
        )  # fmt: skip
    return total_NE, normed_NE


def rotate_and_store(
    query_NHD: torch.Tensor,
    key_NKD: torch.Tensor,
    value_NKD: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor],
    batch: TokenBatch,
    stored: tuple[torch.Tensor, torch.Tensor],
    head_norms: tuple[torch.Tensor, torch.Tensor, float] | None,
) -> torch.Tensor:
    """Rotate queries (in place) and keys, and write keys and values to the lanes. Returns the queries."""
    (num, heads, size), num_keys = query_NHD.shape, key_NKD.shape[1]
    query_weight, key_weight, epsilon = head_norms or (query_NHD, query_NHD, 0.0)
    keys, values = stored
    cosine_ND, sine_ND = angles
    with torch.cuda.device_of(query_NHD):
        _ROTATE_AND_STORE[(num,)](
            query_NHD, key_NKD, value_NKD, query_NHD.stride(0), key_NKD.stride(0), value_NKD.stride(0),
            cosine_ND, sine_ND, cosine_ND.stride(0), batch.positions, batch.rows, batch.begins, batch.lanes,
            keys, values, *keys.stride()[:3], *values.stride()[:3], query_weight, key_weight, epsilon,
            H=heads, K=num_keys, D=size, WIDE_H=triton.next_power_of_2(heads), WIDE_K=triton.next_power_of_2(num_keys),
            HALF=size // 2, WIDE_HALF=triton.next_power_of_2(size // 2), HAS_NORMS=head_norms is not None, num_warps=4,
        )  # fmt: skip
    return query_NHD


def gate(gate_NF: torch.Tensor, up_NF: torch.Tensor) -> torch.Tensor:
    """SiLU of one half of the feed-forward part, times the other half."""
    num, width = gate_NF.shape
    gated = torch.empty(num, width, dtype=gate_NF.dtype, device=gate_NF.device)
    with torch.cuda.device_of(gate_NF):
        _GATE[(num, triton.cdiv(width, GATE_BLOCK))](
            gate_NF, up_NF, gated, gate_NF.stride(0), up_NF.stride(0), F=width, BLOCK=GATE_BLOCK, num_warps=4
        )
    return gated


def _add_and_norm(
    new: tl.tensor, total: tl.tensor, weight: tl.tensor, normed: tl.tensor, epsilon: tl.tensor,
    new_row: tl.tensor, total_row: tl.tensor, E: tl.constexpr, WIDE_E: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
) -> None:  # fmt: skip
    """One token."""
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, WIDE_E)
    x = tl.load(new + row * new_row + e, mask=e < E, other=0.0)
    if HAS_RESIDUAL:
        at = total + row * total_row + e
        x = (x.to(tl.float32) + tl.load(at, mask=e < E, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(at, x, mask=e < E)
    wide = x.to(tl.float32)
    scaled = (wide * tl.rsqrt(tl.sum(wide * wide, 0) / E + epsilon)).to(x.dtype)
    w = tl.load(weight + e, mask=e < E, other=0.0)
    tl.store(normed + row * E + e, (scaled.to(tl.float32) * w.to(tl.float32)).to(x.dtype), mask=e < E)


def _rotate_heads(
    heads: tl.tensor, weight: tl.tensor, epsilon: tl.tensor,
    low_cosine: tl.tensor, high_cosine: tl.tensor, low_sine: tl.tensor, high_sine: tl.tensor,
    NUM: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, WIDE_HALF: tl.constexpr,
    HAS_NORMS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """The rotated heads of one token: their lower and upper halves."""
    h, d = tl.arange(0, WIDE), tl.arange(0, WIDE_HALF)
    is_there = (h < NUM)[:, None] & (d < HALF)[None, :]
    at = heads + h[:, None] * D + d[None, :]
    low, high = tl.load(at, mask=is_there, other=0.0), tl.load(at + HALF, mask=is_there, other=0.0)
    dtype = low.dtype
    if HAS_NORMS:
        low, high = low.to(tl.float32), high.to(tl.float32)
        scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / D + epsilon)[:, None]
        low_weight = tl.load(weight + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
        high_weight = tl.load(weight + HALF + d, mask=d < HALF, other=0.0).to(tl.float32)[None, :]
        low = ((low * scale).to(dtype).to(tl.float32) * low_weight).to(dtype)
        high = ((high * scale).to(dtype).to(tl.float32) * high_weight).to(dtype)
    low, high = low.to(tl.float32), high.to(tl.float32)
    turned_low = low * low_cosine[None, :] - high * low_sine[None, :]
    turned_high = high * high_cosine[None, :] + low * high_sine[None, :]
    return turned_low.to(dtype), turned_high.to(dtype)


def _rotate_and_store(
    query: tl.tensor, key: tl.tensor, value: tl.tensor,
    query_row: tl.tensor, key_row: tl.tensor, value_row: tl.tensor,
    cosine: tl.tensor, sine: tl.tensor, angle_row: tl.tensor,
    positions: tl.tensor, rows: tl.tensor, begins: tl.tensor, lanes: tl.tensor,
    keys: tl.tensor, values: tl.tensor,
    keys_lane: tl.tensor, keys_head: tl.tensor, keys_column: tl.tensor,
    values_lane: tl.tensor, values_head: tl.tensor, values_column: tl.tensor,
    query_weight: tl.tensor, key_weight: tl.tensor, epsilon: tl.tensor,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, WIDE_H: tl.constexpr, WIDE_K: tl.constexpr,
    HALF: tl.constexpr, WIDE_HALF: tl.constexpr, HAS_NORMS: tl.constexpr,
) -> None:  # fmt: skip
    """One token: all its heads."""
    token = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, WIDE_HALF)
    angle = token * angle_row + d
    low_cosine = tl.load(cosine + angle, mask=d < HALF, other=0.0).to(tl.float32)
    high_cosine = tl.load(cosine + angle + HALF, mask=d < HALF, other=0.0).to(tl.float32)
    low_sine = tl.load(sine + angle, mask=d < HALF, other=0.0).to(tl.float32)
    high_sine = tl.load(sine + angle + HALF, mask=d < HALF, other=0.0).to(tl.float32)
    low, high = _ROTATE_HEADS(
        query + token * query_row, query_weight, epsilon, low_cosine, high_cosine, low_sine, high_sine,
        H, WIDE_H, D, HALF, WIDE_HALF, HAS_NORMS,
    )  # fmt: skip
    h = tl.arange(0, WIDE_H)
    at = query + token * query_row + h[:, None] * D + d[None, :]
    is_there = (h < H)[:, None] & (d < HALF)[None, :]
    tl.store(at, low, mask=is_there)
    tl.store(at + HALF, high, mask=is_there)
    low, high = _ROTATE_HEADS(
        key + token * key_row, key_weight, epsilon, low_cosine, high_cosine, low_sine, high_sine,
        K, WIDE_K, D, HALF, WIDE_HALF, HAS_NORMS,
    )  # fmt: skip
    k = tl.arange(0, WIDE_K)
    is_there = (k < K)[:, None] & (d < HALF)[None, :]
    value_at = value + token * value_row + k[:, None] * D + d[None, :]
    low_value, high_value = tl.load(value_at, mask=is_there), tl.load(value_at + HALF, mask=is_there)
    column = tl.load(positions + token).to(tl.int64)
    row = tl.load(rows + token)
    for place in range(tl.load(begins + row), tl.load(begins + row + 1)):
        lane = tl.load(lanes + place).to(tl.int64)
        to = keys + lane * keys_lane + column * keys_column + k[:, None] * keys_head + d[None, :]
        tl.store(to, low, mask=is_there)
        tl.store(to + HALF, high, mask=is_there)
        to = values + lane * values_lane + column * values_column + k[:, None] * values_head + d[None, :]
        tl.store(to, low_value, mask=is_there)
        tl.store(to + HALF, high_value, mask=is_there)


def _gate(
    gates: tl.tensor, ups: tl.tensor, gated: tl.tensor, gate_row: tl.tensor, up_row: tl.tensor,
    F: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A block of one token's feed-forward part."""
    row, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gates + row * gate_row + f, mask=f < F, other=0.0)
    u = tl.load(ups + row * up_row + f, mask=f < F, other=0.0)
    wide = g.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(g.dtype)
    tl.store(gated + row * F + f, (silu.to(tl.float32) * u.to(tl.float32)).to(g.dtype), mask=f < F)


_ADD_AND_NORM: Any = triton.jit(_add_and_norm)
_ROTATE_HEADS: Any = triton.jit(_rotate_heads)
_ROTATE_AND_STORE: Any = triton.jit(_rotate_and_store)
_GATE: Any = triton.jit(_gate)
