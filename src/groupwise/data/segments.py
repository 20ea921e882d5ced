"""Segment arithmetic: statistics of many small groups at once, exact where it must be.

A *label* says which group a member belongs to; -1 says that it belongs to none. All sums run in member order, so the
same members in the same order give the same bits, whatever else is in the table.

Axes: N members, M groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NOT_COMPARABLE = -1
BLOCK = 1 << 15
"""Length from which sorting in blocks pays."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Members sorted into groups: dense labels 0..M-1, each group's size and its first member.

    Worked example: labels [4, -1, 4, 7] become `label` [0, -1, 0, 1], `size` [2, 1], `first` [0, 3].
    """

    label: IntArray
    """Group of each member (N), dense from 0; -1 where the member is in no group."""
    size: IntArray
    """Number of members of each group (M)."""
    first: IntArray
    """Position of each group's first member (M)."""

    @classmethod
    def of(cls, labels: IntArray) -> Segments:
        """Number the labels densely, in ascending order, keeping -1."""
        if len(labels) and int(labels.max()) >= 4 * len(labels):
            return cls._of_sorted(labels)
        size = np.bincount(labels[labels >= 0])
        label = np.append(np.cumsum(size > 0) - 1, NOT_COMPARABLE)[labels]
        first = np.zeros(len(size) + 1, dtype=np.int64)  # one more for -1, which indexes the end
        first[labels[::-1]] = np.arange(len(labels) - 1, -1, -1)  # written backwards, so the first member stays
        return cls(label=label, size=size[size > 0], first=first[:-1][size > 0])

    @classmethod
    def _of_sorted(cls, labels: IntArray) -> Segments:
        """Number large labels by sorting them."""
        inside = np.flatnonzero(labels >= 0)
        whole = len(inside) == len(labels)
        order, starts = order_by_key(labels if whole else labels[inside])
        members = order if whole else inside[order]
        size = np.diff(np.append(starts, len(order)))
        label = np.full(len(labels), NOT_COMPARABLE, dtype=np.int64)
        label[members] = np.repeat(np.arange(len(starts)), size)
        return cls(label=label, size=size, first=members[starts])

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def _bin(self) -> IntArray:
        """The label, with one more bin at the end for members of no group (N)."""
        return np.where(self.label < 0, len(self), self.label)

    def spread(self, per_group: npt.NDArray[np.generic], outside: float = 0.0) -> FloatArray:
        """Hand each member its group's number; members of no group get `outside`."""
        return np.append(per_group.astype(np.float64), outside)[self.label]

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum of each group (M), added up in member order."""
        return count_weighted(self._bin, values, len(self) + 1)[: len(self)]

    def mean(self, values: FloatArray) -> FloatArray:
        """Mean of each group (M), taken relative to its first member, so that a constant's mean is that constant."""
        anchor = values[self.first]
        return anchor + self.sum(values - self.spread(anchor)) / self.size

    def is_constant(self, values: FloatArray) -> BoolArray:
        """Which groups hold one value only (M), decided by equality."""
        differs = values != self.spread(values[self.first], np.nan)
        constant: BoolArray = self.sum(differs.astype(np.float64)) == 0
        return constant

    def lower_median(self, values: FloatArray) -> FloatArray:
        """Median of each group (M); of an even number, the lower of the middle two."""
        return self._take_rank(values, (self.size - 1) // 2)

    def low(self, values: FloatArray) -> FloatArray:
        """Smallest value of each group (M)."""
        return self._take_rank(values, np.zeros_like(self.size))

    def high(self, values: FloatArray) -> FloatArray:
        """Largest value of each group (M)."""
        return self._take_rank(values, self.size - 1)

    def _take_rank(self, values: FloatArray, rank: IntArray) -> FloatArray:
        inside = np.flatnonzero(self.label >= 0)
        order = inside[np.lexsort((values[inside], self.label[inside]))]
        starts = np.concatenate(([0], np.cumsum(self.size)[:-1])).astype(np.int64)
        return values[order[starts + rank]] if len(self) else np.zeros(0)


def count_weighted(label: IntArray, weights: FloatArray, num: int) -> FloatArray:
    """Sum of the weights of each label 0..num-1, added up in member order."""
    return np.asarray(np.bincount(label, weights=weights, minlength=num), dtype=np.float64)


def pair_labels(first: IntArray, second: IntArray) -> IntArray:
    """Label of the pair (first, second): equal pairs share a label; -1 on either side makes -1.

    The result is dense, and numbered in ascending order of (first, second).
    """
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    known = (first >= 0) & (second >= 0)
    width = int(second.max()) + 1
    if int(first.max()) * max(width, 1) >= np.iinfo(np.int64).max // 2:  # pragma: no cover - beyond 3e9 distinct values
        first, second = Segments.of(first).label, Segments.of(second).label
        width = int(second.max()) + 1
    return Segments.of(np.where(known, first * width + second, NOT_COMPARABLE)).label


def order_by_key(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Stable order of non-negative keys, and where each run of equal keys starts in it.

    Sorting key and position packed into one integer is stable and several times faster than a stable argsort; it
    needs the two to fit into 63 bits.
    """
    num = len(keys)
    if not num:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    bits = num.bit_length()
    if int(keys.max()) >> (63 - bits) == 0:
        packed = _sort_in_blocks((keys << bits) | np.arange(num, dtype=np.int64))
        order, ordered = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return order, starts.astype(np.int64)


def _sort_in_blocks(values: IntArray) -> IntArray:
    """Sort in place, block by block where no later value is smaller than an earlier block's largest.

    A table lies sorted by task, and so do labels made from it: short blocks then sort within the processor's cache.
    """
    highest, lowest = np.maximum.accumulate(values), np.minimum.accumulate(values[::-1])[::-1]
    cuts = np.flatnonzero(highest[:-1] < lowest[1:]) + 1
    wanted = np.searchsorted(cuts, np.arange(BLOCK, len(values), BLOCK))
    bounds = [0, *np.unique(cuts[wanted[wanted < len(cuts)]]).tolist(), len(values)]
    for start, end in pairwise(bounds):
        values[start:end].sort()
    return values
