"""Micro-batches of packed tokens under a budget, with each distinct prefix once.

A pack holds only inputs: the prompt, and the response up to the token before its last trained token. The last token of
a sequence predicts nothing.

Axes: N samples, L nodes (tokens computed), T trained tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch

from groupwise.data.samples import Sample, find_training, list_computed_responses
from groupwise.data.segments import BoolArray, IntArray
from groupwise.models.forest import Forest, Ragged, count_up, find_common_prefixes, grow_forest, sort_sequences
from groupwise.system.errors import ConfigError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleLayout:
    """Some samples of an update as tensors; see `Pack` and `PaddedRows`.

    Worked example: the prompt (1, 2) with the response (3, 4), laid out as [1, 2, 3], has predictor [1, 2], target
    [3, 4], sample [0, 0], position [0, 1].
    """

    input_ids: torch.Tensor
    """The tokens that the model reads, in rows."""
    position_ids: torch.Tensor
    """Position of each of these tokens in its samples."""
    sample: torch.Tensor
    """Sample of each trained token (T), by its number in the given list; ascending."""
    position: torch.Tensor
    """Position of each trained token in its response (T), from 0."""
    predictions: Predictions
    """Which states predict which trained tokens, for the head."""
    members: tuple[int, ...]
    """Its samples, ascending."""
    longest: int
    """Tokens of the longest sequence: the model needs as many positions and this attention window."""
    largest_id: int
    """Largest token id: the model needs this vocabulary."""
    raw_tokens: int
    """Tokens of its samples, without sharing and padding."""

    @property
    def predictor(self) -> torch.Tensor:
        """Place in the flattened rows whose hidden state predicts each trained token (T)."""
        return self.predictions.node[self.predictions.row][self.predictions.back]

    @property
    def target(self) -> torch.Tensor:
        return self.predictions.target[self.predictions.back]

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)


GATE = 1.1
"""Raw tokens per distinct token from which sharing is faster; below, rows side by side save copies of keys."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Pack(SampleLayout):
    """Some samples of an update as one row of tokens: `input_ids` (1, L) are the nodes of a forest, in pre-order.

    Worked example: prompt (1, 2) with the responses (3, 4) and (3, 5) is one path of three nodes, input_ids
    [[1, 2, 3]], with predictor [1, 2, 1, 2], target [3, 4, 3, 5], sample [0, 0, 1, 1], position [0, 1, 0, 1]. Token 3
    is computed once and trains twice, each time with its own sample's advantage.
    """

    end: torch.Tensor
    """One past the last node of each node's subtree (L): q sees k where `k <= q < end[k]`."""
    chains: Chains | None = None
    """Its chains, if it is on a GPU."""

    def __len__(self) -> int:
        return self.input_ids.shape[1]

    def to(self, device: torch.device | str) -> Self:
        """The same pack on a device; for a GPU, its chains are computed first."""
        if self.chains is None and torch.device(device).type == "cuda":
            return to_device(replace(self, chains=Chains.of(self.position_ids[0].cpu().numpy())), device)
        return to_device(self, device)


def pack(
    samples: Sequence[Sample], *, token_budget: int, share: bool = True, gate: float = GATE, unit: str = "sample"
) -> list[Pack]:
    """Lay the samples that train out as micro-batches of at most `token_budget` distinct tokens.

    Samples are sorted lexicographically and cut to compute the fewest tokens twice. With `share` off, or with fewer
    than `gate` raw tokens per distinct token, they are side by side in the given order. A `unit` (`sample`, `step` or
    `trajectory`) is never divided between packs; one that is larger than the budget gets its own pack.
    """
    trained = np.array(find_training(samples), dtype=np.int64)
    members = [samples[number] for number in trained.tolist()]
    responses = list_computed_responses(members)
    inputs = Ragged.of([sample.prompt_ids + said[:-1] for sample, said in zip(members, responses, strict=True)])
    targets = Ragged.of(responses)
    kept, units = find_trained_tokens(members, targets), label_units(members, unit)
    plan = None
    if share:
        order = sort_sequences(inputs)
        plan = _plan_batches(inputs, order, find_common_prefixes(inputs, order), token_budget, units)
    if plan is None or len(inputs.flat) < gate * plan.num_nodes:
        as_handed_in = np.arange(len(members), dtype=np.int64)
        plan = _plan_batches(inputs, as_handed_in, np.zeros_like(as_handed_in), token_budget, units)
    return [
        _make_pack(
            grow_forest(inputs, plan.order[batch], plan.shared[batch]),
            np.sort(plan.order[batch]),
            trained,
            targets,
            kept,
        )
        for batch in plan.batches
    ]


def find_cuts(length: IntArray, shared: IntArray, token_budget: int) -> list[int]:
    """Cut sorted sequences into batches that fit the budget, with the fewest nodes, then the fewest batches.

    Returns the starts of the batches, and N. Sequence i adds `length[i] - shared[i]` nodes to a batch, or `length[i]`
    if it is the first. A longer batch only has more nodes, so the possible starts of a batch that ends at i are a
    moving window. The best of them is the front of a monotone queue, so one pass finds the optimum. A greedy cut can
    need 1.5 times as many nodes if histories are long.
    """
    nodes_before = np.append(0, np.cumsum(length - shared)).tolist()
    best: list[tuple[int, int]] = [(0, 0)]  # nodes and batches of the first i sequences
    begins = [0]  # where the last of those batches begins
    prefix = shared.tolist()
    window: deque[tuple[tuple[int, int], int]] = deque()
    for i, (tokens, repeated) in enumerate(zip(length.tolist(), prefix, strict=True)):
        begin = (best[i][0] + repeated - nodes_before[i], best[i][1] + 1)
        while window and window[-1][0] > begin:
            window.pop()
        window.append((begin, i))
        # A single path cannot be cut, even if it is longer than the budget.
        room = max(token_budget, tokens) - nodes_before[i + 1]
        while prefix[window[0][1]] - nodes_before[window[0][1]] > room:
            window.popleft()
        (nodes, num_batches), start = window[0]
        best.append((nodes + nodes_before[i + 1], num_batches))
        begins.append(start)
    starts = [len(length)]
    while starts[-1]:
        starts.append(begins[starts[-1]])
    return starts[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Plan:
    """The order of sequences, the tokens that each shares with the one before it, and the batches."""

    order: IntArray
    shared: IntArray
    batches: list[slice]
    num_nodes: int


def _plan_batches(inputs: Ragged, order: IntArray, shared: IntArray, token_budget: int, units: IntArray) -> _Plan:
    length = inputs.length[order]
    if len(units) and units.max() + 1 < len(units):  # some unit has several samples
        members = deal_units(length, shared, units[order], token_budget)
        starts = np.append(0, np.cumsum([len(batch) for batch in members], dtype=np.int64)).tolist()
        shared = np.concatenate([_count_shared(shared, batch) for batch in members]) if members else shared
        place = np.concatenate(members) if members else order
        order, length = order[place], length[place]
    else:
        starts = find_cuts(length, shared, token_budget)
        shared[starts[:-1]] = 0  # the first sequence of a batch shares nothing
    batches = list(map(slice, starts[:-1], starts[1:]))
    return _Plan(order=order, shared=shared, batches=batches, num_nodes=int((length - shared).sum()))


def deal_units(length: IntArray, shared: IntArray, unit: IntArray, token_budget: int) -> list[IntArray]:
    """Put sorted sequences into batches of whole units that fit the budget; returns the places of each, ascending.

    Units come in the order of their first sequence, and a batch takes units as long as they fit. The optimum cannot be
    found in one pass, because members of a unit are not neighbours. A unit larger than the budget is its own batch.
    """
    by_unit = np.argsort(unit, kind="stable")
    places = np.split(by_unit, np.flatnonzero(np.diff(unit[by_unit])) + 1)
    batches: list[IntArray] = []
    for new in sorted((members for members in places if len(members)), key=lambda members: int(members[0])):
        joined = np.sort(np.concatenate((batches[-1], new))) if batches else new
        if batches and (length[joined] - _count_shared(shared, joined)).sum() <= token_budget:
            batches[-1] = joined
        else:
            batches.append(new)
    return batches


def _count_shared(shared: IntArray, places: IntArray) -> IntArray:
    """Tokens that each of some sorted sequences shares with the one before it: the minimum over those in between."""
    overlap = np.zeros(len(places), dtype=np.int64)
    if len(places) > 1:
        overlap[1:] = np.minimum.reduceat(shared[: places[-1] + 1], places[:-1] + 1)
    return overlap


def _make_pack(grown: Forest, members: IntArray, trained: IntArray, targets: Ragged, kept: BoolArray | None) -> Pack:
    """The pack of a forest whose paths are the inputs of `members`, by their numbers among the samples that train.

    `kept` = which targets train; None = all.
    """
    responses = targets.length[members]
    position, sample = count_up(responses), np.repeat(trained[members], responses)
    predictor = grown.node[np.repeat(grown.start[1:] - responses, responses) + position]
    place = np.repeat(targets.start[members], responses) + position
    if kept is not None:
        chosen = kept[place]
        position, sample, predictor, place = position[chosen], sample[chosen], predictor[chosen], place[chosen]
    target = targets.flat[place]
    return Pack(
        input_ids=torch.from_numpy(grown.token)[None],
        position_ids=torch.from_numpy(grown.depth)[None],
        end=torch.from_numpy(grown.end),
        sample=torch.from_numpy(sample),
        position=torch.from_numpy(position),
        predictions=Predictions.of(predictor, target),
        members=tuple(trained[members].tolist()),
        longest=int(grown.depth.max()) + 1,
        largest_id=int(max(grown.token.max(), target.max())),
        raw_tokens=len(grown.node),
    )


# Ordinary right-padded rows, one per sample: the reference that packs must equal.
#
# Axes: B rows, W width, T trained tokens.


@dataclass(frozen=True, eq=False, kw_only=True)
class PaddedRows(SampleLayout):
    """Some samples of an update as rows of one width: `input_ids` (B, W) include the last trained token of each.

    Worked example: prompt (1, 2) with response (3,), prompt (4,) with response (5, 6), pad_id 0, are the rows
    [1, 2, 3] and [4, 5, 6]: predictor [1, 3, 4], target [3, 5, 6], sample [0, 1, 1], position [0, 0, 1].
    """

    attention_mask: torch.Tensor
    """1 for a token, 0 for padding (B, W)."""

    def __len__(self) -> int:
        return self.input_ids.numel()

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        return {"input_ids": self.input_ids, "position_ids": self.position_ids, "attention_mask": self.attention_mask}


def pad_rows(
    samples: Sequence[Sample], *, num_rows: int | None = None, width: int | None = None, pad_id: int = 0
) -> list[PaddedRows]:
    """Lay samples out as rows in the given order; samples that do not train are left out.

    `num_rows` = rows per micro-batch, None = all; `width` = of every row, None = that of the longest sample.
    """
    trained = find_training(samples)
    step = num_rows or max(len(trained), 1)
    return [
        _make_rows(samples, trained[low : low + step], width=width, pad_id=pad_id)
        for low in range(0, len(trained), step)
    ]


def pad_within_budget(samples: Sequence[Sample], *, token_budget: int, unit: str = "sample") -> list[PaddedRows]:
    """Lay samples out as rows, with at most `token_budget` places per micro-batch; a larger unit goes alone.

    Units are sorted by the length of their longest sample, which saves padding.
    """
    trained = find_training(samples)
    units: dict[int, list[int]] = {}
    for number, label in zip(trained, label_units([samples[number] for number in trained], unit).tolist(), strict=True):
        units.setdefault(label, []).append(number)
    said = list_computed_responses(samples)
    width = {
        label: max(len(samples[number].prompt_ids) + len(said[number]) for number in members)
        for label, members in units.items()
    }
    batches: list[list[int]] = []
    for label in sorted(units, key=width.__getitem__):
        joined = [*(batches[-1] if batches else []), *units[label]]
        if batches and len(joined) * width[label] <= token_budget:
            batches[-1] = joined
        else:
            batches.append(units[label])
    return [_make_rows(samples, sorted(members), width=None, pad_id=0) for members in batches]


def _make_rows(samples: Sequence[Sample], members: list[int], *, width: int | None, pad_id: int) -> PaddedRows:
    chosen = [samples[number] for number in members]
    said = list_computed_responses(chosen)
    tokens = Ragged.of([sample.prompt_ids + response for sample, response in zip(chosen, said, strict=True)])
    targets = Ragged.of(said)
    responses, kept = targets.length, find_trained_tokens(chosen, targets)
    longest = int(tokens.length.max())
    width = width or longest
    row, column = np.repeat(np.arange(len(members)), tokens.length), count_up(tokens.length)
    input_ids = np.full((len(members), width), pad_id, dtype=np.int64)
    is_token = np.zeros((len(members), width), dtype=np.int64)
    input_ids[row, column] = tokens.flat
    is_token[row, column] = 1
    position = count_up(responses)
    first_predictor = np.arange(len(members)) * width + tokens.length - responses - 1
    predictor = np.repeat(first_predictor, responses) + position
    target, sample = targets.flat, np.repeat(np.array(members, dtype=np.int64), responses)
    if kept is not None:
        position, predictor, target, sample = position[kept], predictor[kept], target[kept], sample[kept]
    return PaddedRows(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=torch.from_numpy(is_token),
        position_ids=torch.arange(width).expand(len(members), width),
        predictions=Predictions.of(predictor, target),
        sample=torch.from_numpy(sample),
        position=torch.from_numpy(position),
        members=tuple(members),
        longest=longest,
        largest_id=int(tokens.flat.max()),
        raw_tokens=len(tokens.flat),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Chains:
    """The chains of a pack: neighbouring nodes in pre-order, each the first child of the one before.

    A chain sees its path and itself, causally. Samples side by side are chains without a path. The keys of a chain are
    its path, then its own nodes.

    Axes: L nodes, C chains, K keys.

    Worked example: the nodes 0-1-2 and 0-1-3 have depths [0, 1, 2, 2] and the chains [0, 1, 2] and [3], so that queries
    is [0, 3, 4], keys [0, 3, 6], source [0, 1, 2, 0, 1, 3], order [0, 3, 1, 4, 2, 5] and begins [0, 2, 4, 5].
    """

    queries: torch.Tensor
    """Start of each chain, and L (C + 1)."""
    keys: torch.Tensor
    """Start of the keys of each chain, and K (C + 1)."""
    source: torch.Tensor
    """Node of each key (K)."""
    order: torch.Tensor
    """The keys sorted by node, stable (K)."""
    begins: torch.Tensor
    """Start of the keys of each node in that order (L)."""
    max_queries: int
    """Nodes of the longest chain."""
    max_keys: int
    """Most keys of a chain."""

    @classmethod
    def of(cls, depth: IntArray) -> Chains:
        """The chains of nodes in pre-order at the given depths (L)."""
        queries = np.append(np.flatnonzero(np.diff(depth, prepend=depth[0]) != 1), len(depth))
        # The path of a node is the last node so far at each depth.
        last, paths = np.empty(int(depth.max()) + 1, dtype=np.int64), []
        for low, high in pairwise(queries.tolist()):
            last[depth[low] : depth[high - 1] + 1] = np.arange(low, high)
            paths.append(last[: depth[high - 1] + 1].copy())
        keys, source = np.append(0, np.cumsum([len(path) for path in paths])), np.concatenate(paths)
        counts = np.bincount(source)
        return cls(
            queries=torch.from_numpy(queries).to(torch.int32),
            keys=torch.from_numpy(keys).to(torch.int32),
            source=torch.from_numpy(source),
            order=torch.from_numpy(np.argsort(source, kind="stable")),
            begins=torch.from_numpy(np.cumsum(counts) - counts),
            max_queries=int(np.diff(queries).max()),
            max_keys=int(np.diff(keys).max()),
        )

    @property
    def is_plain(self) -> bool:
        """Whether no node has two children: then the nodes are the keys."""
        return len(self.source) == len(self.begins)

    @property
    def inputs(self) -> dict[str, Any]:
        """The chains as arguments of transformers' attention functions."""
        return {
            # Without a mask, transformers would build one for the whole pack from the positions.
            "attention_mask": self.queries.new_zeros((1, 1, 1, 1)),
            "cu_seq_lens_q": self.queries,
            "cu_seq_lens_k": self.keys,
            "max_length_q": self.max_queries,
            "max_length_k": self.max_keys,
            **({} if self.is_plain else {"key_copies": [self.source, self.order, self.begins]}),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """The trained tokens of a layout, sorted by the node that predicts them; each such node is a row of the head.

    It is computed on the host, because reading results from a device means waiting for it.

    Axes: U predicting nodes, T trained tokens (several may be predicted by one node).

    Worked example: predictor [1, 2, 1, 2] and target [3, 4, 3, 5] have node [1, 2], row [0, 0, 1, 1], target
    [3, 3, 4, 5], back [0, 2, 1, 3], first [0, 2], others [1, 3] and starts [0, 2, 4].
    """

    node: torch.Tensor
    """Place of each predicting state in the flattened rows, ascending (U)."""
    row: torch.Tensor
    """Row that predicts each token, ascending (T)."""
    target: torch.Tensor
    """Token id of each token (T)."""
    back: torch.Tensor
    """Place here of each trained token in the order of the layout (T)."""
    first: torch.Tensor
    """Place of the first token of each row (U)."""
    others: torch.Tensor
    """Places of all other tokens."""
    starts: IntArray
    """Start of the tokens of each row, and T (U + 1); on the host."""

    @classmethod
    def of(cls, predictor: IntArray, target: IntArray) -> Predictions:
        """The tokens `target` (T), predicted by the states at `predictor` (T)."""
        node, row = np.unique(predictor, return_inverse=True)
        order = np.argsort(row, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        starts = np.searchsorted(row[order], np.arange(len(node) + 1))
        is_other = np.ones(len(order), dtype=bool)
        is_other[starts[:-1]] = False
        return cls(
            node=torch.from_numpy(node),
            row=torch.from_numpy(row[order]),
            target=torch.from_numpy(target[order]),
            back=torch.from_numpy(back),
            first=torch.from_numpy(starts[:-1]),
            others=torch.from_numpy(np.flatnonzero(is_other)),
            starts=starts,
        )


def find_trained_tokens(samples: Sequence[Sample], targets: Ragged) -> BoolArray | None:
    """Whether each of the targets trains, for samples that have trained tokens; None = all do.

    `targets` are the computed parts of the responses, one sample after the other.
    """
    masks, lengths = [sample.trained for sample in samples], targets.length.tolist()
    if masks.count(None) == len(masks):
        return None
    trains = [(True,) * length if mask is None else mask[:length] for mask, length in zip(masks, lengths, strict=True)]
    return np.fromiter(chain.from_iterable(trains), dtype=np.bool_, count=len(targets.flat))


def label_units(samples: Sequence[Sample], unit: str) -> IntArray:
    """Label of each sample's unit (N), counted in order of first appearance.

    A unit is one sample, all samples of a step, or all of a trajectory.
    """
    names: dict[str, list[Hashable]] = {
        "sample": list(range(len(samples))),
        "step": [(sample.trajectory, sample.step) for sample in samples],
        "trajectory": [sample.trajectory for sample in samples],
    }
    if unit not in names:
        raise ConfigError(f"unknown unit {unit!r}; {nearest(unit, names)}")
    labels: dict[Hashable, int] = {}
    return np.array([labels.setdefault(name, len(labels)) for name in names[unit]], dtype=np.int64)


Holder = TypeVar("Holder", bound="DataclassInstance")


def to_device(holder: Holder, device: torch.device | str) -> Holder:
    moved: dict[str, Any] = {}
    for field in fields(holder):
        value = getattr(holder, field.name)
        if isinstance(value, torch.Tensor):
            moved[field.name] = value.to(device)
        elif isinstance(value, Predictions | Chains):
            moved[field.name] = to_device(value, device)
    return replace(holder, **moved)


def spread_over_tokens(layout: SampleLayout, values: Sequence[float | Sequence[float]]) -> torch.Tensor:
    """Values of samples as a column: one float32 per trained token (T), in the order of the layout.

    A sample has one number for all its tokens, or one per token: for two samples of two tokens in one pack,
    `spread_over_tokens(pack, [0.5, (1.0, 2.0)])` is [0.5, 0.5, 1.0, 2.0].
    """
    num_tokens = torch.bincount(layout.sample.cpu(), minlength=len(values)).tolist()
    listed: list[float] = []
    for number in layout.members:
        value = values[number]
        listed.extend(value if isinstance(value, Sequence) else [value] * num_tokens[number])
    return torch.tensor(listed, dtype=torch.float32, device=layout.sample.device)
