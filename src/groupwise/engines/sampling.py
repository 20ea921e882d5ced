"""Draw a token from logits: the same random number and logits give the same token in every engine.

Axes: B rows, V vocabulary, N blocks of it, U tokens of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

BLOCK = 128
"""Tokens per block, whose probabilities are summed before the search; most vocabularies are a multiple of it."""


def draw_tokens(
    logits_BV: torch.Tensor,
    temperature_B1: torch.Tensor,
    is_greedy_B: torch.Tensor | None,
    draws_B: torch.Tensor,
    limits: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample one token per row from a number in [0, 1): tokens (B, 1), and their log-probs and the entropies (B).

    `temperature_B1`, in float32, divides the logits and is never 0. Greedy rows take the most likely token. `limits`
    are the `top_p` and `top_k` of the rows (B, 1); log-probs and entropies are then those of the truncated
    distribution. Nothing here waits for the device.
    """
    scaled_BV = (logits_BV / temperature_B1).float()
    if limits is not None:
        scaled_BV = truncate(scaled_BV, *limits)
    probability_BV = scaled_BV.softmax(-1)
    token_B1 = invert_distribution(probability_BV, draws_B)
    if is_greedy_B is not None:
        token_B1 = torch.where(is_greedy_B[:, None], scaled_BV.argmax(-1, keepdim=True), token_B1)
    logp_B = probability_BV.gather(1, token_B1)[:, 0].log()
    return token_B1, logp_B, torch.special.entr(probability_BV).sum(-1)


def truncate(logits_BV: torch.Tensor, top_p_B1: torch.Tensor, top_k_B1: torch.Tensor) -> torch.Tensor:
    """Set the logits of the least likely tokens to -inf: all but `top_k` (0 = none), then the tail beyond `top_p`.

    Tokens as likely as the last one that stays also stay, so the order of the vocabulary decides nothing. With `top_p`
    1 and `top_k` 0 a row is unchanged.
    """
    falling_BV = logits_BV.sort(dim=-1, descending=True).values
    num_B1 = torch.where(top_k_B1 > 0, top_k_B1, falling_BV.shape[1]).clamp(max=falling_BV.shape[1])
    lowest_B1 = falling_BV.gather(1, num_B1 - 1)
    probability_BV = falling_BV.masked_fill(falling_BV < lowest_B1, -torch.inf).softmax(-1)
    before_BV = functional.pad(probability_BV[:, :-1], (1, 0)).cumsum(-1, dtype=torch.float64)
    num_B1 = (before_BV < top_p_B1).sum(-1, keepdim=True).clamp(min=1)
    by_sum_B1 = torch.where(top_p_B1 < 1, falling_BV.gather(1, num_B1 - 1), -torch.inf)
    return logits_BV.masked_fill(logits_BV < torch.maximum(lowest_B1, by_sum_B1), -torch.inf)


def invert_distribution(probability_BV: torch.Tensor, draws_B: torch.Tensor) -> torch.Tensor:
    """The tokens at which the cumulative distribution exceeds numbers in [0, 1) (B, 1); never a token of probability 0.

    Sums are in float64, so the result does not depend on the batch. The block of the token is found first, then the
    token: the vocabulary is read once, and no cumulative sums of its length are written.
    """
    missing = -probability_BV.shape[1] % BLOCK
    padded_BV = functional.pad(probability_BV, (0, missing)) if missing else probability_BV
    blocks_BNU = padded_BV.unflatten(1, (-1, BLOCK))
    cumulative_BN = blocks_BNU.sum(-1, dtype=torch.float64).cumsum(-1)
    block_B1 = _find_passing(cumulative_BN, draws_B[:, None] * cumulative_BN[:, -1:])
    before_B1 = functional.pad(cumulative_BN, (1, 0)).gather(1, block_B1)
    inside_BU = blocks_BNU.gather(1, block_B1[:, :, None].expand(-1, -1, BLOCK))[:, 0].cumsum(-1, dtype=torch.float64)
    left_B1 = draws_B[:, None] * cumulative_BN[:, -1:] - before_B1
    return (block_B1 * BLOCK + _find_passing(inside_BU, left_B1)).clamp(max=probability_BV.shape[1] - 1)


def _find_passing(cumulative_BN: torch.Tensor, number_B1: torch.Tensor) -> torch.Tensor:
    """The first index at which sums exceed a number (B, 1). A number that rounding made too large is reduced first.

    If the sums are NaN, the result is the last index: an index out of range would crash a GPU.
    """
    below_B1 = cumulative_BN[:, -1:] * (1 - 2.0**-52)
    place_B1 = torch.searchsorted(cumulative_BN, torch.minimum(number_B1, below_B1), right=True)
    return place_B1.clamp(max=cumulative_BN.shape[1] - 1)


# Uniform random numbers for tokens: a number depends only on a seed and a position.

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draw_uniforms(
    seeds: Sequence[int] | npt.NDArray[np.uint64], position: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per seed, at one position or one per seed (SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
        state = np.asarray(seeds, dtype=np.uint64) * _FIRST + _STEP * (np.asarray(position) + 1).astype(np.uint64)
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        state = state ^ (state >> np.uint64(31))
    numbers: npt.NDArray[np.float64] = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers
