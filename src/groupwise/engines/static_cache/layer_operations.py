"""The operations of a layer except its matrix products, in torch: the same as `kernels`, which a GPU uses.

Axes: N tokens, E width of the model, H queries, K heads of keys and values, D width of a head, F of the feed-forward
part, L lanes, W columns.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from groupwise.engines.static_cache.cache import RowTable, TokenBatch


def add_and_norm(
    new_NE: torch.Tensor, residual_NE: torch.Tensor | None, weight_E: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add new values to the residual, which may be overwritten. Returns the sum and its RMS norm."""
    total_NE = new_NE if residual_NE is None else residual_NE + new_NE
    return total_NE, norm(total_NE, weight_E, epsilon)


def norm(values: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMS norm: values divided by their root mean square, in float32, then times a weight."""
    wide = values.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * scaled.to(values.dtype)


def rotate_and_store(
    query_NHD: torch.Tensor,
    key_NKD: torch.Tensor,
    value_NKD: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor],
    batch: TokenBatch,
    stored: tuple[torch.Tensor, torch.Tensor],
    head_norms: tuple[torch.Tensor, torch.Tensor, float] | None,
) -> torch.Tensor:
    """Rotate queries and keys, and write keys and values to the lanes. Returns the queries (N, H, D).

    The queries may be overwritten. If `head_norms` are given, queries and keys are normed first.
    """
    if head_norms is not None:
        query_weight, key_weight, epsilon = head_norms
        query_NHD, key_NKD = norm(query_NHD, query_weight, epsilon), norm(key_NKD, key_weight, epsilon)
    cosine_N1D, sine_N1D = (angle.unsqueeze(1).float() for angle in angles)
    rotated = [
        (wide * cosine_N1D + _turn_half(wide) * sine_N1D).to(query_NHD.dtype)
        for wide in (query_NHD.float(), key_NKD.float())
    ]
    num_lanes = batch.begins.diff()[batch.rows]
    token = torch.repeat_interleave(torch.arange(len(num_lanes), device=num_lanes.device), num_lanes)
    place = torch.arange(len(token), device=token.device) - (num_lanes.cumsum(0) - num_lanes)[token]
    lane = batch.lanes[batch.begins[batch.rows][token] + place].long()
    column = batch.positions[token].long()
    stored[0][lane, :, column] = rotated[1][token]
    stored[1][lane, :, column] = value_NKD[token]
    return rotated[0]


def gate(gate_NF: torch.Tensor, up_NF: torch.Tensor) -> torch.Tensor:
    """SiLU of one half of the feed-forward part, times the other half."""
    return functional.silu(gate_NF) * up_NF


def attend_rows(
    query_NHD: torch.Tensor, stored: tuple[torch.Tensor, torch.Tensor], table: RowTable, *, scaling: float, tile: int
) -> torch.Tensor:
    """Attention of each row's tokens to its lane up to themselves (N, H, D)."""
    attended = torch.zeros(*query_NHD.shape[:2], stored[1].shape[3], dtype=query_NHD.dtype, device=query_NHD.device)
    numbers = zip(*(column.tolist() for column in (table.firsts, table.lengths, table.known, table.lanes)), strict=True)
    for first, length, known, lane in numbers:
        if not length:
            continue
        positions = torch.arange(known, known + length, device=query_NHD.device)
        keys, values = (store[lane, :, : known + length] for store in stored)
        attended[first : first + length] = _attend(query_NHD[first : first + length], keys, values, positions, scaling)
    return attended


def attend_step(
    query_NHD: torch.Tensor, key_NKWD: torch.Tensor, value_NKWD: torch.Tensor, last_N: torch.Tensor, *, scaling: float
) -> torch.Tensor:
    rows = [
        _attend(query_NHD[row : row + 1], key_NKWD[row], value_NKWD[row], last_N[row : row + 1], scaling)
        for row in range(len(query_NHD))
    ]
    return torch.cat(rows)


def _attend(
    query_THD: torch.Tensor, key_KWD: torch.Tensor, value_KWD: torch.Tensor, last_T: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Attention of tokens of one row, each to the columns up to its last."""
    heads, num = query_THD.shape[1], len(key_KWD)
    is_seen_TW = torch.arange(key_KWD.shape[1], device=last_T.device) <= last_T[:, None]
    grouped_KRTD = query_THD.transpose(0, 1).unflatten(0, (num, heads // num))
    scores = (grouped_KRTD.float() @ key_KWD[:, None].float().transpose(2, 3)) * scaling
    weights = scores.masked_fill(~is_seen_TW, -torch.inf).softmax(-1)
    attended_KRTD: torch.Tensor = weights @ value_KWD[:, None].float()
    return attended_KRTD.flatten(0, 1).transpose(0, 1).to(query_THD.dtype)


def _turn_half(values: torch.Tensor) -> torch.Tensor:
    half = values.shape[-1] // 2
    return torch.cat((-values[..., half:], values[..., :half]), -1)
