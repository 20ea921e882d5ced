"""Micro-batches of packed tokens under a budget, each distinct prefix once.

The last token of a sequence predicts nothing, so a pack holds a sample's inputs only: the prompt, and the response
without its last token that trains and whatever comes after it.

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
    """Some samples of an update as tensors; `Pack` and `PaddedRows` say how their tokens lie.

    Worked example: the prompt (1, 2) with the response (3, 4), laid out as [1, 2, 3], has predictor [1, 2], target
    [3, 4], sample [0, 0], position [0, 1].
    """

    input_ids: torch.Tensor
    """Tokens as the model reads them, in rows."""
    position_ids: torch.Tensor
    """Position of each of them in every sample through it."""
    sample: torch.Tensor
    """Sample of each trained token (T), numbered as in the list handed in; ascending."""
    position: torch.Tensor
    """Position of each trained token in its response (T), from 0."""
    predictions: Predictions
    """Which places predict which of them, as the head reads it."""
    members: tuple[int, ...]
    """The samples it holds, ascending."""
    longest: int
    """Tokens of the longest sequence: the positions and the attention window a model must have."""
    largest_id: int
    """Largest token id: the vocabulary a model must have."""
    raw_tokens: int
    """Tokens of its samples, none shared and no padding."""

    @property
    def predictor(self) -> torch.Tensor:
        """Place in the flattened rows whose hidden state predicts each trained token (T)."""
        return self.predictions.node[self.predictions.row][self.predictions.back]

    @property
    def target(self) -> torch.Tensor:
        """Token id of each trained token (T)."""
        return self.predictions.target[self.predictions.back]

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)


GATE = 1.1
"""Raw tokens per distinct token from which sharing pays; below it, rows side by side need no copies of keys."""


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
    """Its chains, once it is on a GPU."""

    def __len__(self) -> int:
        return self.input_ids.shape[1]

    def to(self, device: torch.device | str) -> Self:
        """The same pack on a device; what a GPU reads it by is worked out before."""
        if self.chains is None and torch.device(device).type == "cuda":
            return to_device(replace(self, chains=Chains.of(self.position_ids[0].cpu().numpy())), device)
        return to_device(self, device)


def pack(
    samples: Sequence[Sample], *, token_budget: int, share: bool = True, gate: float = GATE, unit: str = "sample"
) -> list[Pack]:
    """Lay samples out as micro-batches of at most `token_budget` tokens each, distinct ones where prefixes are shared.

    Samples are sorted lexicographically and cut where the fewest tokens are computed twice. With `share` off, or where
    that leaves fewer than `gate` raw tokens per distinct one, they lie side by side in the order handed in. Samples
    that train on no token are in no pack.

    Args:
        samples: Every sample of a batch.
        token_budget: Most tokens of a pack; a unit that has more goes alone.
        share: Whether equal beginnings are computed once.
        gate: Raw tokens per distinct token from which sharing pays.
        unit: What lies whole in one pack: `sample`, `step` (all samples of a step) or `trajectory`.
    """
    trained = np.array(find_training(samples), dtype=np.int64)
    members = [samples[number] for number in trained.tolist()]
    responses = list_computed_responses(members)
    # The last token predicts nothing.
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
    """Cut a sorted list of sequences into batches that fit the budget, with the fewest nodes, then the fewest batches.

    Sequence i adds `length[i] - shared[i]` nodes to a batch, all of its `length[i]` where it begins one. Returned are
    the starts of the batches, and N. Going on only adds nodes to a batch, at either end: the starts from which a batch
    reaches i within the budget are a moving window, and the best of them is the front of a monotone queue, so that the
    optimum costs one pass. Cutting wherever the budget is full can cost half as many nodes again, where histories are
    long.
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
        # A single path may be longer than the budget: it cannot be cut.
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
    """Which sequences lie side by side, and what each takes over from its neighbour."""

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
        shared[starts[:-1]] = 0  # the first sequence of a batch shares with nobody
    batches = [slice(low, high) for low, high in pairwise(starts)]
    return _Plan(order=order, shared=shared, batches=batches, num_nodes=int((length - shared).sum()))


def deal_units(length: IntArray, shared: IntArray, unit: IntArray, token_budget: int) -> list[IntArray]:
    """Deal sorted sequences into batches that hold whole units and fit the budget: the places of each, ascending.

    Units come in the order of their first sequence, and a batch takes units for as long as they fit: the members of a
    unit lie apart in the order of the sequences, so that the best cuts are no longer a matter of one pass. A unit that
    is larger than the budget is a batch of its own.
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
    """What each of some sorted sequences shares with the one before it among them: the least of what lies between."""
    overlap = np.zeros(len(places), dtype=np.int64)
    if len(places) > 1:
        overlap[1:] = np.minimum.reduceat(shared[: places[-1] + 1], places[:-1] + 1)
    return overlap


def _make_pack(grown: Forest, members: IntArray, trained: IntArray, targets: Ragged, kept: BoolArray | None) -> Pack:
    """The pack of a forest whose paths are the inputs of `members`, as numbered among those that train.

    `kept` says which of the targets train; None = all.
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


# The chains of a pack: neighbouring nodes of which each is the first child of the one before, in pre-order.
#
# What a chain sees is its path and itself, causally. Samples side by side are chains without a path.
#
# Axes: L nodes, C chains, K keys: of each chain its path, then its own nodes.


@dataclass(frozen=True, eq=False, kw_only=True)
class Chains:
    """The chains of a pack.

    Worked example: the nodes 0-1-2 and 0-1-3 have depths [0, 1, 2, 2] and the chains [0, 1, 2] and [3], so that queries
    is [0, 3, 4], keys [0, 3, 6], source [0, 1, 2, 0, 1, 3], order [0, 3, 1, 4, 2, 5] and begins [0, 2, 4, 5].
    """

    queries: torch.Tensor
    """Where each chain begins, and L (C + 1)."""
    keys: torch.Tensor
    """Where the keys of each chain begin, and K (C + 1)."""
    source: torch.Tensor
    """Node of each key (K)."""
    order: torch.Tensor
    """The keys by node, those of a node as they come (K)."""
    begins: torch.Tensor
    """Where the keys of each node begin in that order (L)."""
    max_queries: int
    """Nodes of the longest chain."""
    max_keys: int
    """Keys of the chain that has the largest number."""

    @classmethod
    def of(cls, depth: IntArray) -> Chains:
        """The chains of nodes in pre-order at the given depths (L)."""
        queries = np.append(np.flatnonzero(np.diff(depth, prepend=depth[0]) != 1), len(depth))
        # The path of a node is what came last at each depth.
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
        """Whether no node has two children, so that the nodes are the keys."""
        return len(self.source) == len(self.begins)

    @property
    def inputs(self) -> dict[str, Any]:
        """How attention finds its way, in the words of transformers."""
        return {
            # Without any, transformers would write one out for the whole pack, by the positions that begin anew.
            "attention_mask": self.queries.new_zeros((1, 1, 1, 1)),
            "cu_seq_lens_q": self.queries,
            "cu_seq_lens_k": self.keys,
            "max_length_q": self.max_queries,
            "max_length_k": self.max_keys,
            **({} if self.is_plain else {"key_copies": [self.source, self.order, self.begins]}),
        }


# Which hidden states predict which tokens, worked out on the host: asking a device would mean waiting for it.
#
# Axes: U predicting nodes, T trained tokens (several may be predicted by one node).


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """The trained tokens of a layout, sorted by the node that predicts them; each such node is a row of the head.

    Worked example: predictor [1, 2, 1, 2] and target [3, 4, 3, 5] have node [1, 2], row [0, 0, 1, 1], target
    [3, 3, 4, 5], back [0, 2, 1, 3], first [0, 2], others [1, 3] and starts [0, 2, 4].
    """

    node: torch.Tensor
    """Place of each predicting state in the flattened rows, ascending (U)."""
    row: torch.Tensor
    """Which of them predicts each token, ascending (T)."""
    target: torch.Tensor
    """Token id of each token (T)."""
    back: torch.Tensor
    """Where each trained token, in the order of the layout, stands in this one (T)."""
    first: torch.Tensor
    """Where the tokens of each row begin (U)."""
    others: torch.Tensor
    """Where the tokens stand that are not the first of their row."""
    starts: IntArray
    """Where the tokens of each row begin, and T (U + 1); on the host."""

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
        arrays = {"node": node, "row": row[order], "target": target[order], "back": back, "first": starts[:-1]}
        arrays |= {"others": np.flatnonzero(is_other)}
        return cls(**{name: torch.from_numpy(array) for name, array in arrays.items()}, starts=starts)


def find_trained_tokens(samples: Sequence[Sample], targets: Ragged) -> BoolArray | None:
    """Whether each of the targets trains, for samples that each train; None = all do.

    `targets` are the samples' responses as far as they are computed, one sample after the other.
    """
    masks, lengths = [sample.trained for sample in samples], targets.length.tolist()
    if masks.count(None) == len(masks):
        return None
    trains = [(True,) * length if mask is None else mask[:length] for mask, length in zip(masks, lengths, strict=True)]
    return np.fromiter(chain.from_iterable(trains), dtype=np.bool_, count=len(targets.flat))


def label_units(samples: Sequence[Sample], unit: str) -> IntArray:
    """Label of each sample's unit (N), equal within a unit, in the order they first come.

    A unit lies whole in one micro-batch: a single sample, all samples of a step, or of a trajectory.
    """
    names: dict[str, list[Hashable]] = {
        "sample": list(range(len(samples))),
        "step": [(sample.trajectory, sample.step) for sample in samples],
        "trajectory": [sample.trajectory for sample in samples],
    }
    if unit not in names:
        raise ConfigError(f"there is no unit {unit!r}; {nearest(unit, names)}")
    labels: dict[Hashable, int] = {}
    return np.array([labels.setdefault(name, len(labels)) for name in names[unit]], dtype=np.int64)


Holder = TypeVar("Holder", bound="DataclassInstance")


def to_device(holder: Holder, device: torch.device | str) -> Holder:
    """The same dataclass with its tensors on a device, and with those of the dataclasses in it."""
    moved: dict[str, Any] = {}
    for field in fields(holder):
        value = getattr(holder, field.name)
        if isinstance(value, torch.Tensor):
            moved[field.name] = value.to(device)
        elif isinstance(value, Predictions | Chains):
            moved[field.name] = to_device(value, device)
    return replace(holder, **moved)


def spread_over_tokens(layout: SampleLayout, values: Sequence[float | Sequence[float]]) -> torch.Tensor:
    """Values of samples as a column: one float32 a trained token (T), in the order of the layout.

    Args:
        layout: Samples as tensors.
        values: For each sample handed to the layout (N), a number for all its tokens or one for each of them.

    For two samples of two tokens in one pack, `column(pack, [0.5, (1.0, 2.0)])` is [0.5, 0.5, 1.0, 2.0].
    """
    num_tokens = torch.bincount(layout.sample.cpu(), minlength=len(values)).tolist()
    listed: list[float] = []
    for number in layout.members:
        value = values[number]
        listed.extend(value if isinstance(value, Sequence) else [value] * num_tokens[number])
    return torch.tensor(listed, dtype=torch.float32, device=layout.sample.device)
