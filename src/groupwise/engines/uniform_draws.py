"""Uniform random numbers to draw tokens with: one seed and position give one number, whatever else is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draw_uniforms(
    seeds: Sequence[int] | npt.NDArray[np.uint64], position: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each seed at a position, or at its own (SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
        state = np.asarray(seeds, dtype=np.uint64) * _FIRST + _STEP * (np.asarray(position) + 1).astype(np.uint64)
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        state = state ^ (state >> np.uint64(31))
    numbers: npt.NDArray[np.float64] = (state >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers
