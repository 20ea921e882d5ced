"""Triton kernels of the static cache: attention of a prefill, attention of a decoding step, and the rest of a layer.

Import this only to use the kernels: it needs Triton, which comes with torch for CUDA. `layer_operations` has the same
functions in torch.

Axes: N tokens, B rows, H queries, K heads of keys and values, R queries a head of keys, D width of a head, E width of
the model, F of the feed-forward part, L lanes, W columns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from groupwise.engines.static_cache.cache import RowTable, TokenBatch

MIN_SIDE = 16
"""The smallest side of a matrix product; fewer queries or narrower heads are padded."""

# The attention of a prefill: rows of any length, with keys and values read from their lanes.
#
# A program computes one key head and a tile of one row's queries: its tokens, each with all queries that share the
# head. It reads the lane's columns up to the last visible one, with a running softmax in float32. Nothing is copied out
# of the lanes, and rows are not padded.

COLUMNS = 64
"""Columns per block in 16 bits; half of it in 32 bits."""
PREFILL_STAGES = 2


def attend_rows(
    query_NHD: torch.Tensor, stored: tuple[torch.Tensor, torch.Tensor], table: RowTable, *, scaling: float, tile: int
) -> torch.Tensor:
    """Attention of each row's tokens to its lane up to themselves (N, H, D)."""
    (num, heads, size), (keys, values) = query_NHD.shape, stored
    num_keys, out = keys.shape[1], values.shape[3]
    attended = torch.empty(num, heads, out, dtype=query_NHD.dtype, device=query_NHD.device)
    with torch.cuda.device_of(query_NHD):
        _ATTEND_ROWS[(len(table.tile_rows), num_keys)](
            query_NHD, keys, values, attended,
            table.tile_rows, table.tile_numbers, table.firsts, table.lengths, table.known, table.lanes,
            query_NHD.stride(0), query_NHD.stride(1), *keys.stride()[:3], *values.stride()[:3],
            scaling * 1.4426950408889634, R=heads // num_keys, D=size, E=out,
            WIDE_D=max(MIN_SIDE, triton.next_power_of_2(size)), WIDE_E=max(MIN_SIDE, triton.next_power_of_2(out)),
            TILE=tile, COLUMNS=COLUMNS if keys.dtype.itemsize <= 2 else COLUMNS // 2,
            num_warps=8 if tile >= 128 else 4, num_stages=PREFILL_STAGES,
        )  # fmt: skip
    return attended


def _attend_rows(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, attended: tl.tensor,
    tile_rows: tl.tensor, tile_numbers: tl.tensor, firsts: tl.tensor, lengths: tl.tensor, known: tl.tensor,
    lanes: tl.tensor, query_token: tl.tensor, query_head: tl.tensor,
    keys_lane: tl.tensor, keys_head: tl.tensor, keys_column: tl.tensor,
    values_lane: tl.tensor, values_head: tl.tensor, values_column: tl.tensor, scaling: tl.tensor,
    R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, WIDE_D: tl.constexpr, WIDE_E: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    """One tile under one head of keys; scores are kept as powers of two."""
    row, head = tl.load(tile_rows + tl.program_id(0)), tl.program_id(1)
    begin = tl.load(tile_numbers + tl.program_id(0)) * TILE
    length, before = tl.load(lengths + row), tl.load(known + row)
    lane = tl.load(lanes + row).to(tl.int64)
    m, d, e, w = begin + tl.arange(0, TILE), tl.arange(0, WIDE_D), tl.arange(0, WIDE_E), tl.arange(0, COLUMNS)
    is_query = m < length * R
    last = before + m // R
    token = (tl.load(firsts + row) + m // R).to(tl.int64)
    heads = head * R + m % R
    query_at = query + token[:, None] * query_token + heads[:, None] * query_head + d[None, :]
    q = tl.load(query_at, mask=is_query[:, None] & (d < D)[None, :], other=0.0)
    end = before + tl.minimum((begin + TILE - 1) // R + 1, length)
    key_at = keys + lane * keys_lane + head * keys_head + w[:, None] * keys_column + d[None, :]
    value_at = values + lane * values_lane + head * values_head + w[:, None] * values_column + e[None, :]
    highest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    out = tl.zeros([TILE, WIDE_E], tl.float32)
    for start in range(0, end, COLUMNS):
        column = start + w
        k = tl.load(key_at + start * keys_column, mask=(column < end)[:, None] & (d < D)[None, :], other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scaling
        # Every query sees the first column, so that no block comes before the highest score is a number.
        score = tl.where(column[None, :] <= last[:, None], score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        p, decay = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        v = tl.load(value_at + start * values_column, mask=(column < end)[:, None] & (e < E)[None, :], other=0.0)
        out = tl.dot(p.to(v.dtype), v, out * decay[:, None], input_precision="ieee")
        total = total * decay + tl.sum(p, 1)
        highest = higher
    out = out / total[:, None]
    at = attended + (token[:, None] * (tl.num_programs(1) * R) + heads[:, None]) * E + e[None, :]
    tl.store(at, out.to(attended.dtype.element_ty), mask=is_query[:, None] & (e < E)[None, :])


_ATTEND_ROWS: Any = triton.jit(_attend_rows)


# The attention of a decoding step: a row reads only its own keys and values, once.
#
# A program computes one row and one key head, with all queries that share the head. It reads the row's columns in
# blocks, with a running softmax in float32. If there are few programs, several share the columns of a row, and a second
# kernel adds their outputs. The length of a row is read from the device, so the step can be captured.

ENOUGH = 256
"""Number of programs that keeps a large GPU busy; with fewer, the columns of a row are split."""
MAX_SPLITS = 16
BLOCK_BYTES = 16384
"""Bytes of keys, and of values, per block: small enough for several programs per multiprocessor."""
MAX_COLUMNS = 64
WARPS, STAGES = 4, 3
"""Warps and pipeline stages of a program: six programs with narrow heads fit on a multiprocessor."""


def attend_step(
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
    wide_key, wide_value = (max(MIN_SIDE, triton.next_power_of_2(side)) for side in (size, out))
    block = BLOCK_BYTES // (max(wide_key, wide_value) * key.element_size())
    with torch.cuda.device_of(query):
        _ATTEND[(rows, num, parts)](
            query, key, value, partial, weight, last_B, width,
            query.stride(0), query.stride(1), *key.stride()[:3], *value.stride()[:3],
            scaling, softcap or 1.0, HAS_CAP=softcap is not None,
            R=heads // num, D=size, E=out, WIDE_R=max(MIN_SIDE, triton.next_power_of_2(heads // num)), WIDE_D=wide_key,
            WIDE_E=wide_value, BLOCK=max(MIN_SIDE, min(MAX_COLUMNS, block)), SPLITS=parts,
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


# The operations of a layer except matrix products and attention: each reads and writes its numbers once.
#
# Sums and products are in float32 and rounded where the model's own code rounds, except the rotation, which is rounded
# once.

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
