"""The attention of a decoding step as a kernel: a row reads only its own keys and values, once.

A program computes one row and one key head, with all queries that share the head. It reads the row's columns in blocks,
with a running softmax in float32. If there are few programs, several share the columns of a row, and a second kernel
adds their outputs. The length of a row is read from the device, so the step can be captured.

Import this only to use the kernel: it needs Triton, which comes with torch for CUDA.

Axes: B rows, H queries, K heads of keys and values, R queries a head of keys, W columns, D width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ENOUGH = 256
"""Number of programs that keeps a large GPU busy; with fewer, the columns of a row are split."""
MAX_SPLITS = 16
"""Maximum number of parts of a row."""
TILE = 16
"""The smallest side of a matrix product; fewer queries or narrower heads are padded."""
BLOCK_BYTES = 16384
"""Bytes of keys, and of values, per block: small enough for several programs per multiprocessor."""
MAX_COLUMNS = 64
"""Maximum number of columns per block."""
WARPS, STAGES = 4, 3
"""Warps and pipeline stages of a program: six programs with narrow heads fit on a multiprocessor."""


def attend_by_kernel(
    query_BHD: torch.Tensor,
    key_BKWD: torch.Tensor,
    value_BKWD: torch.Tensor,
    last_B: torch.Tensor,
    *,
    scaling: float,
    softcap: float | None = None,
    splits: int | None = None,
) -> torch.Tensor:
    """Attention of each query to its row's columns up to the last, that one included (B, H, D)."""
    (rows, heads, size), (_, num, width, _), out = query_BHD.shape, key_BKWD.shape, value_BKWD.shape[3]
    parts = splits or choose_num_splits(rows * num, width)
    query, key, value = (_make_contiguous(tensor) for tensor in (query_BHD, key_BKWD, value_BKWD))
    attended = torch.empty(rows, heads, out, dtype=query.dtype, device=query.device)
    partial, weight = attended, attended  # one part is the whole
    if parts > 1:
        partial = torch.empty(rows, heads, parts, out, dtype=torch.float32, device=query.device)
        weight = torch.empty(rows, heads, parts, dtype=torch.float32, device=query.device)
    wide_key, wide_value = (max(TILE, triton.next_power_of_2(side)) for side in (size, out))
    block = BLOCK_BYTES // (max(wide_key, wide_value) * key.element_size())
    with torch.cuda.device_of(query):
        _ATTEND[(rows, num, parts)](
            query, key, value, partial, weight, last_B, width,
            query.stride(0), query.stride(1), *key.stride()[:3], *value.stride()[:3],
            scaling, softcap or 1.0, HAS_CAP=softcap is not None,
            R=heads // num, D=size, E=out, WIDE_R=max(TILE, triton.next_power_of_2(heads // num)), WIDE_D=wide_key,
            WIDE_E=wide_value, BLOCK=max(TILE, min(MAX_COLUMNS, block)), SPLITS=parts,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        if parts > 1:
            _COMBINE[(rows * heads,)](partial, weight, attended, E=out, WIDE_E=wide_value, SPLITS=parts, num_warps=1)
    return attended


def choose_num_splits(programs: int, width: int) -> int:
    """How many parts a row's columns are split into, a power of two; none is smaller than a block."""
    parts = 1
    while parts * programs < ENOUGH and parts < MAX_SPLITS and 2 * parts * MAX_COLUMNS <= width:
        parts *= 2
    return parts


def _make_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Make the last dimension contiguous; it is already, except in unusual models."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _attend_part(
    query: tl.tensor, key: tl.tensor, value: tl.tensor, attended: tl.tensor, weight: tl.tensor,
    last: tl.tensor, width: tl.tensor,
    query_row: tl.tensor, query_head: tl.tensor, key_row: tl.tensor, key_head: tl.tensor, key_column: tl.tensor,
    value_row: tl.tensor, value_head: tl.tensor, value_column: tl.tensor, scaling: tl.tensor, softcap: tl.tensor,
    HAS_CAP: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    WIDE_R: tl.constexpr, WIDE_D: tl.constexpr, WIDE_E: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """One part of a row's columns with the queries of one head; scores are exponents of two."""
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    seen = tl.minimum(tl.load(last + row) + 1, width).to(tl.int32)
    share = tl.cdiv(tl.cdiv(seen, SPLITS), BLOCK) * BLOCK
    begin = part * share
    end = tl.minimum(begin + share, seen)
    r, d, e, w = tl.arange(0, WIDE_R), tl.arange(0, WIDE_D), tl.arange(0, WIDE_E), tl.arange(0, BLOCK)
    heads = head * R + r
    query_at = query + row * query_row + heads[:, None] * query_head + d[None, :]
    q = tl.load(query_at, mask=(r < R)[:, None] & (d < D)[None, :], other=0.0)
    key_at = key + row * key_row + head * key_head + d[:, None] + w[None, :] * key_column
    value_at = value + row * value_row + head * value_head + w[:, None] * value_column + e[None, :]
    highest = tl.full([WIDE_R], float("-inf"), tl.float32)
    total = tl.zeros([WIDE_R], tl.float32)
    out = tl.zeros([WIDE_R, WIDE_E], tl.float32)
    for start in range(begin, end, BLOCK):
        is_seen = start + w < end
        k = tl.load(key_at + start * key_column, mask=(d < D)[:, None] & is_seen[None, :], other=0.0)
        score = tl.dot(q, k, input_precision="ieee") * scaling
        if HAS_CAP:  # tanh, by way of exp
            score = softcap * (1.0 - 2.0 / (tl.exp(2.0 * score / softcap) + 1.0))
        score = tl.where(is_seen[None, :], score * 1.4426950408889634, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        p, decay = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        v = tl.load(value_at + start * value_column, mask=is_seen[:, None] & (e < E)[None, :], other=0.0)
        out = tl.dot(p.to(v.dtype), v, out * decay[:, None], input_precision="ieee")
        total = total * decay + tl.sum(p, 1)
        highest = higher
    # A part without columns has weight 0; its output is zeros.
    out = out / tl.where(total > 0.0, total, 1.0)[:, None]
    at = (row * (tl.num_programs(1) * R) + heads) * SPLITS + part
    tl.store(attended + at[:, None] * E + e[None, :], out, mask=(r < R)[:, None] & (e < E)[None, :])
    if SPLITS > 1:
        tl.store(weight + at, highest + tl.log2(total), mask=r < R)


def _combine(
    partial: tl.tensor, weight: tl.tensor, attended: tl.tensor,
    E: tl.constexpr, WIDE_E: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """Add the parts of one query, each weighted by its fraction of the softmax."""
    query = tl.program_id(0).to(tl.int64)
    s, e = tl.arange(0, SPLITS), tl.arange(0, WIDE_E)
    power = tl.load(weight + query * SPLITS + s)
    share = tl.exp2(power - tl.max(power, 0))
    part = tl.load(partial + (query * SPLITS + s)[:, None] * E + e[None, :], mask=(e < E)[None, :], other=0.0)
    tl.store(attended + query * E + e, tl.sum(part * share[:, None], 0) / tl.sum(share, 0), mask=e < E)


_ATTEND: Any = triton.jit(_attend_part)
_COMBINE: Any = triton.jit(_combine)
