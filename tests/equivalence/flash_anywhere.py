"""A stand-in for flash attention over rows of unequal length that runs anywhere: row by row, written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch


def rows(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention row by row, the last query at the last key; (length, heads, width)."""
    rows_out = [
        (_shares(query, key, scale) @ _repeat_heads(value, query)).transpose(0, 1)
        for query, key, value in _each_row(states, bounds, longest)
    ]
    return torch.cat(rows_out), states[0].new_zeros(states[0].shape[1::-1])


def rows_backward(
    gradient: torch.Tensor,
    output: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    scale: float,
) -> list[torch.Tensor]:
    gradients: list[list[torch.Tensor]] = [[], [], []]
    starts = bounds[0].tolist()
    for number, (query, key, value) in enumerate(_each_row(states, bounds, longest)):
        of_row = gradient[starts[number] : starts[number + 1]].transpose(0, 1)
        shares = _shares(query, key, scale)
        of_shares = of_row @ _repeat_heads(value, query).mT
        of_scores = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) * scale
        of_states = of_scores @ _repeat_heads(key, query), of_scores.mT @ query, shares.mT @ of_row
        heads = (query.shape[0], key.shape[0], key.shape[0])
        for all_rows, one, num in zip(gradients, of_states, heads, strict=True):
            all_rows.append(one.unflatten(0, (num, -1)).sum(1).transpose(0, 1))
    return [torch.cat(each) for each in gradients]


def _each_row(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    query, key, value = states
    for (low, high), (first, last) in zip(*(pairwise(each.tolist()) for each in bounds), strict=True):
        assert high - low <= longest[0]
        assert last - first <= longest[1]
        yield (
            query[low:high].transpose(0, 1),
            key[first:last].transpose(0, 1),
            value[first:last].transpose(0, 1),
        )


def _shares(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    scores = query @ _repeat_heads(key, query).mT * scale
    seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(scores.shape[2] - scores.shape[1])
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)


def _repeat_heads(states: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return states.repeat_interleave(query.shape[0] // states.shape[0], 0)
