"""Statistics of many small groups at once.

A *label* is the group of a member; -1 = no group. All sums run in member order, so the same members in the same order
give bit-exact results, whatever else is in the table.

Axes: N members, M groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NOT_COMPARABLE = -1
BLOCK = 1 << 15
"""Longer arrays are sorted in blocks."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Members sorted into groups: dense labels 0..M-1, each group's size and its first member.

    Worked example: labels [4, -1, 4, 7] become `label` [0, -1, 0, 1], `size` [2, 1], `first` [0, 3].
    """

    label: IntArray
    """Group of each member (N), dense from 0; -1 = in no group."""
    size: IntArray
    """Number of members of each group (M)."""
    first: IntArray
    """Position of each group's first member (M)."""

    @classmethod
    def of(cls, labels: IntArray) -> Segments:
        """Number the labels densely, in ascending order, keeping -1."""
        if len(labels) and int(labels.max()) >= 4 * len(labels):
            return cls._of_large(labels)
        size = np.bincount(labels[labels >= 0])
        label = np.append(np.cumsum(size > 0) - 1, NOT_COMPARABLE)[labels]
        first = np.zeros(len(size) + 1, dtype=np.int64)  # the extra last entry is that of label -1
        first[labels[::-1]] = np.arange(len(labels) - 1, -1, -1)  # written backwards: the first member is written last
        return cls(label=label, size=size[size > 0], first=first[:-1][size > 0])

    @classmethod
    def _of_large(cls, labels: IntArray) -> Segments:
        """Number labels that are much larger than their count, by sorting them."""
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

    def spread(self, per_group: npt.NDArray[np.generic], outside: float = 0.0) -> FloatArray:
        """The number of each member's group (N); members of no group get `outside`."""
        return np.append(per_group.astype(np.float64), outside)[self.label]

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum of each group (M), added up in member order."""
        num = len(self.size)
        return count_weighted(np.where(self.label < 0, num, self.label), values, num + 1)[:num]

    def mean(self, values: FloatArray) -> FloatArray:
        """Mean of each group (M), relative to its first member: the mean of equal values is exactly that value."""
        anchor = values[self.first]
        return anchor + self.sum(values - self.spread(anchor)) / self.size

    def is_constant(self, values: FloatArray) -> BoolArray:
        """Which groups have only equal values (M)."""
        differs = values != self.spread(values[self.first], np.nan)
        constant: BoolArray = self.sum(differs.astype(np.float64)) == 0
        return constant

    def lower_median(self, values: FloatArray) -> FloatArray:
        """Median of each group (M); the lower of the two middle values if the size is even."""
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
    """Dense labels of the pairs (first, second), in ascending order of the pairs; -1 on either side gives -1."""
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    known = (first >= 0) & (second >= 0)
    width = int(second.max()) + 1
    if int(first.max()) * max(width, 1) >= np.iinfo(np.int64).max // 2:  # pragma: no cover - beyond 3e9 distinct values
        first, second = Segments.of(first).label, Segments.of(second).label
        width = int(second.max()) + 1
    return Segments.of(np.where(known, first * width + second, NOT_COMPARABLE)).label


def order_by_key(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The stable sorted order of non-negative keys, and where each run of equal keys starts in it.

    If key and position fit into one integer of 63 bits, these are sorted: stable, and several times faster than a
    stable argsort. A table is sorted by task, and so are labels made from it. So the array is sorted block by block
    (cut only where no later value is smaller), because short blocks fit into the processor's cache.
    """
    num = len(keys)
    if not num:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    bits = num.bit_length()
    if int(keys.max()) >> (63 - bits) == 0:
        packed = (keys << bits) | np.arange(num, dtype=np.int64)
        highest, lowest = np.maximum.accumulate(packed), np.minimum.accumulate(packed[::-1])[::-1]
        cuts = np.flatnonzero(highest[:-1] < lowest[1:]) + 1
        wanted = np.searchsorted(cuts, np.arange(BLOCK, num, BLOCK))
        bounds = [0, *np.unique(cuts[wanted[wanted < len(cuts)]]).tolist(), num]
        for start, end in pairwise(bounds):
            packed[start:end].sort()
        order, ordered = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return order, starts.astype(np.int64)
