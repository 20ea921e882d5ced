"""Merge token sequences into prefix trees, laid out in pre-order.

In lexicographic order, a sequence first repeats a prefix of the sequence before it and then continues with new tokens.
So the lengths of these common prefixes define all trees. The new tokens, one sequence after the other, are the nodes in
pre-order. A node's subtree is the interval of nodes up to its `end`.

Axes: N sequences, R tokens of all sequences (raw), L nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from groupwise.data.segments import IntArray
from groupwise.system.errors import RecordError

LARGEST_ID = 2**32 - 1
"""Largest token id: ids are compared as four bytes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Forest:
    """Prefix trees of many token sequences; a node is a distinct prefix, stored as its last token.

    Worked example: [1, 2, 3] and [1, 2, 4] give token [1, 2, 3, 4], depth [0, 1, 2, 2], end [4, 4, 3, 4]; the paths
    are [0, 1, 2] and [0, 1, 3]. Node 2 (token 3) is seen only by itself: k = 2 is seen by q only if
    `2 <= q < end[2] = 3`.
    """

    token: IntArray
    """Token id of each node (L), in pre-order; siblings ascend."""
    depth: IntArray
    """Number of ancestors of each node (L): its position in every sequence through it."""
    end: IntArray
    """One past the last node of each node's subtree (L): `k` is `q` or its ancestor if `k <= q < end[k]`."""
    node: IntArray
    """Node of each token of each sequence (R), sequences one after the other in input order."""
    start: IntArray
    """Where each sequence starts in `node` (N + 1); the last entry is R."""

    def __len__(self) -> int:
        return len(self.token)

    def path(self, sequence: int) -> IntArray:
        return self.node[self.start[sequence] : self.start[sequence + 1]]

    @property
    def token_ratio(self) -> float:
        """Raw tokens per distinct token; 1 for an empty forest."""
        return len(self.node) / len(self) if len(self) else 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Ragged:
    """Sequences of token ids in one array: sequence i is `flat[start[i]:start[i + 1]]`.

    Worked example: [7, 8] and [9] are flat [7, 8, 9], length [2, 1], start [0, 2, 3].
    """

    flat: IntArray
    length: IntArray
    """Tokens of each sequence (N)."""
    start: IntArray
    """Where each sequence starts (N + 1); the last entry is R."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """Concatenate sequences; fail if a number is not a token id."""
        length = np.fromiter(map(len, sequences), np.int64, count=len(sequences))
        flat = np.fromiter(chain.from_iterable(sequences), np.int64, count=int(length.sum()))
        start = find_starts(length)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) <= LARGEST_ID:
            first = int(np.argmax((flat < 0) | (flat > LARGEST_ID)))
            row = int(np.searchsorted(start, first, side="right")) - 1
            raise RecordError(f"sequence {row} has token id {flat[first]}; ids must be from 0 to {LARGEST_ID}", row=row)
        return cls(flat=flat, length=length, start=start)


def merge_sequences(sequences: Sequence[Sequence[int]]) -> Forest:
    """Merge token sequences into prefix trees; equal sequences share every node, an empty one has none."""
    ragged = Ragged.of(sequences)
    order = sort_sequences(ragged)
    return grow_forest(ragged, order, find_common_prefixes(ragged, order))


def find_starts(length: IntArray) -> IntArray:
    """Running sum from 0 (N + 1): the starts of pieces of the given lengths, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(length, dtype=np.int64)))


def sort_sequences(ragged: Ragged) -> IntArray:
    """Lexicographic order of the sequences (N): a prefix comes first, equal sequences keep their order.

    Big-endian bytes compare like the numbers that they encode, at the speed of memcmp.
    """
    spelled = ragged.flat.astype(">u4").tobytes()
    bounds = (4 * ragged.start).tolist()
    keys = [spelled[low:high] for low, high in pairwise(bounds)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def find_common_prefixes(ragged: Ragged, order: IntArray) -> IntArray:
    """Length of the prefix that each sequence of `order` shares with the one before it (N); 0 for the first."""
    begin, length = ragged.start[order], ragged.length[order]
    overlap = np.minimum(length[1:], length[:-1])
    pair, both = np.flatnonzero(overlap) + 1, overlap[overlap > 0]
    start = find_starts(both)[:-1]
    index = count_up(both)
    same = ragged.flat[np.repeat(begin[pair], both) + index] == ragged.flat[np.repeat(begin[pair - 1], both) + index]
    shared = np.zeros(len(order), dtype=np.int64)
    if len(pair):
        shared[pair] = np.minimum.reduceat(np.where(same, np.repeat(both, both), index), start)
    return shared


def grow_forest(ragged: Ragged, order: IntArray, shared: IntArray) -> Forest:
    """Lay out the trees of the sequences in `order`, each of which shares `shared` tokens with the one before.

    `order` may select some sequences; their paths are listed in the order of `ragged`.
    """
    length = ragged.length[order]
    first_new = find_starts(length - shared)  # the node at which each sequence leaves the one before it
    row = find_starts(length)
    index = np.arange(row[-1], dtype=np.int64) - np.repeat(row[:-1], length)
    node = np.repeat(first_new[:-1] - shared, length) + index  # of each token, sequences in sorted order
    # A loop over sequences, not tokens. One memory copy per sequence is thirty times faster than one array operation,
    # which needs all tokens sorted by depth.
    for before, here, count in zip(row[:-2].tolist(), row[1:-1].tolist(), shared[1:].tolist(), strict=True):
        if count:
            node[here : here + count] = node[before : before + count]

    token = np.empty(first_new[-1], dtype=np.int64)
    depth, end = np.empty_like(token), np.empty_like(token)
    depth[node] = index
    token[node] = ragged.flat[np.repeat(ragged.start[order], length) + index]
    end[node] = np.repeat(first_new[1:], length)  # the last sequence through a node writes last

    back = np.argsort(order, kind="stable")  # from the sorted rows to the order of the sequences
    listed = node[np.repeat(row[back], length[back]) + count_up(length[back])]
    return Forest(token=token, depth=depth, end=end, node=listed, start=find_starts(length[back]))


def count_up(length: IntArray) -> IntArray:
    """0, 1, 2, ... for each piece of the given lengths, one after the other."""
    return np.arange(int(length.sum()), dtype=np.int64) - np.repeat(find_starts(length)[:-1], length)
