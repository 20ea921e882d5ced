"""Packs: the way there and back, the budget, the best cuts, the gate."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.samples import Sample
from groupwise.models.forest import merge_sequences
from groupwise.models.pack import find_cuts, pack, pad_rows
from groupwise.system.errors import ConfigError, RecordError
from tests.unit.models.samples import SEQUENCES, sample, samples, unpack


def test_shared_response_tokens_are_computed_once_and_train_twice() -> None:
    (packed,) = pack([sample((1, 2), (3, 4)), sample((1, 2), (3, 5))], token_budget=100)
    assert packed.input_ids.tolist() == [[1, 2, 3]]
    assert packed.position_ids.tolist() == [[0, 1, 2]]
    assert packed.end.tolist() == [3, 3, 3]
    assert packed.predictor.tolist() == [1, 2, 1, 2]
    assert packed.target.tolist() == [3, 4, 3, 5]
    assert packed.sample.tolist() == [0, 0, 1, 1]
    assert packed.position.tolist() == [0, 1, 0, 1]
    assert (packed.members, packed.longest, packed.largest_id, packed.raw_tokens) == ((0, 1), 3, 5, 6)


def test_without_sharing_samples_lie_side_by_side_in_their_order() -> None:
    (packed,) = pack([sample((9, 2), (3,)), sample((1, 2), (3, 5))], token_budget=100, share=False)
    assert packed.input_ids.tolist() == [[9, 2, 1, 2, 3]]
    assert packed.position_ids.tolist() == [[0, 1, 0, 1, 2]]
    assert packed.end.tolist() == [2, 2, 5, 5, 5]
    assert packed.predictor.tolist() == [1, 3, 4]
    assert packed.raw_tokens == len(packed) == 5


def test_samples_that_train_on_nothing_are_in_no_pack() -> None:
    listed = [sample((1,), ()), sample((1,), (2,), trains=False), sample((3,), (4,))]
    (packed,) = pack(listed, token_budget=100)
    assert packed.members == (2,)
    assert packed.sample.tolist() == [2]
    assert pack(listed[:2], token_budget=100) == []
    assert pack([], token_budget=100) == []


def test_a_sample_longer_than_the_budget_has_a_pack_of_its_own() -> None:
    listed = [sample((1,), (2,)), sample((5, 5, 5, 5, 5), (1, 1)), sample((2,), (2,))]
    packs = pack(listed, token_budget=3, gate=0.0)
    assert [packed.members for packed in packs] == [(0, 2), (1,)]
    assert [len(packed) for packed in packs] == [2, 6]


def test_a_long_sample_takes_along_the_samples_it_contains() -> None:
    listed = [sample((1, 1), (1,)), sample((1, 1, 1, 1), (1, 1)), sample((1,), (1,))]
    (packed,) = pack(listed, token_budget=2, gate=0.0)
    assert len(packed) == 5


@pytest.mark.parametrize("share", [True, False])
def test_sharing_needs_the_gate(share: bool) -> None:
    # Inputs (1, 2, 3) and (1, 2, 4): six raw tokens, four distinct, ratio 1.5.
    listed = [sample((1, 2, 3), (5,)), sample((1, 2, 4), (5,))]
    assert [len(packed) for packed in pack(listed, token_budget=9, share=share, gate=1.5)] == [4 if share else 6]
    assert [len(packed) for packed in pack(listed, token_budget=9, share=share, gate=1.51)] == [6]


def test_the_gate_looks_at_what_the_budget_leaves_of_the_sharing() -> None:
    # No pack of 3 tokens holds both, so that nothing is shared.
    listed = [sample((1, 2, 4), (5,)), sample((1, 2, 3), (5,))]
    packs = pack(listed, token_budget=3, gate=1.3)
    assert [packed.members for packed in packs] == [(0,), (1,)]  # as handed in, not sorted


def test_cuts_go_where_the_least_is_shared() -> None:
    # Two tasks of two long samples; filling the first pack to the brim would cut through the second task.
    length, shared = np.array([10, 10, 10, 10]), np.array([0, 8, 1, 8])
    assert find_cuts(length, shared, 22) == [0, 2, 4]  # 12 + 12 nodes; [0, 3, 4] would be 21 + 10
    assert find_cuts(length, shared, 23) == [0, 4]


@given(SEQUENCES, st.integers(1, 12))
def test_cuts_are_the_best_of_all_cuts(sequences: list[list[int]], budget: int) -> None:
    listed = sorted(ids for ids in sequences if ids)[:7]
    shared = [0] + [_common(ids, other) for ids, other in itertools.pairwise(listed)]
    starts = find_cuts(
        np.array([len(ids) for ids in listed], dtype=int), np.array(shared[: len(listed)], dtype=int), budget
    )
    assert _cost(listed, starts, budget) == min(_cost(listed, tried, budget) for tried in _all_cuts(len(listed)))


@given(samples(), st.integers(1, 30), st.booleans(), st.sampled_from((0.0, 1.3)))
def test_unpacking_gives_back_the_samples(listed: list[Sample], budget: int, share: bool, gate: float) -> None:
    packs = pack(listed, token_budget=budget, share=share, gate=gate)
    unpacked = [(number, *tokens) for packed in packs for number, tokens in unpack(packed).items()]
    expected = [
        (number, drawn.prompt_ids, drawn.response_ids) for number, drawn in enumerate(listed) if drawn.num_trained
    ]
    assert sorted(unpacked) == expected


@given(samples(), st.integers(1, 30), st.booleans())
def test_every_trained_token_is_predicted_from_the_token_before_it(
    listed: list[Sample], budget: int, share: bool
) -> None:
    for packed in pack(listed, token_budget=budget, share=share, gate=0.0):
        assert packed.sample.tolist() == sorted(packed.sample.tolist())
        columns = (packed.predictor, packed.target, packed.sample, packed.position)
        for node, token, number, position in zip(*(column.tolist() for column in columns), strict=True):
            drawn = listed[number]
            place = len(drawn.prompt_ids) + position
            assert drawn.token_ids[place] == token
            assert drawn.token_ids[place - 1] == packed.input_ids[0, node]
            assert packed.position_ids[0, node] == place - 1


@given(samples(), st.integers(1, 30))
def test_packs_keep_the_budget_and_count_distinct_tokens(listed: list[Sample], budget: int) -> None:
    for packed in pack(listed, token_budget=budget, gate=0.0):
        inputs = [listed[number].token_ids[:-1] for number in packed.members]
        assert len(packed) == len(merge_sequences(inputs))
        assert len(packed) <= budget or len(packed) == max(map(len, inputs))
        assert packed.raw_tokens == sum(map(len, inputs))
        assert packed.longest == max(map(len, inputs))
        assert packed.largest_id == max(max(listed[number].token_ids) for number in packed.members)


def test_the_samples_of_a_trajectory_stay_together_where_asked() -> None:
    # Inputs of 2, 2, 3 and 3 tokens; those of trajectory 0 stand first and last in the order of their tokens.
    listed = [
        sample((1, 1), (5,), trajectory=0),
        sample((2, 2), (5,), trajectory=1),
        sample((3, 3, 3), (5,), trajectory=2),
        sample((9, 9, 9), (5,), trajectory=0, step=1),
    ]
    apart = pack(listed, token_budget=5, gate=0.0)
    assert [packed.members for packed in apart] == [(0,), (1, 2), (3,)]
    together = pack(listed, token_budget=5, gate=0.0, unit="trajectory")
    assert [packed.members for packed in together] == [(0, 3), (1, 2)]


def test_a_unit_larger_than_the_budget_goes_alone() -> None:
    listed = [sample((n, n, n), (5,), trajectory=n // 2, step=n % 2) for n in range(1, 6)]
    packs = pack(listed, token_budget=4, unit="trajectory")
    assert [packed.members for packed in packs] == [(0,), (1, 2), (3, 4)]
    assert [len(packed) for packed in packs] == [3, 6, 6]


def test_members_of_a_unit_share_what_they_have_in_common_with_each_other() -> None:
    # 0 and 2 share two tokens; 1, which lies between them in order, is of another trajectory.
    listed = [sample((1, 1, 2), (5,)), sample((1, 1, 3), (5,), trajectory=1), sample((1, 1, 4), (5,), step=1)]
    packs = pack(listed, token_budget=4, gate=0.0, unit="trajectory")
    assert [(packed.members, packed.input_ids.tolist()) for packed in packs] == [
        ((0, 2), [[1, 1, 2, 4]]),
        ((1,), [[1, 1, 3]]),
    ]


def test_the_samples_of_a_step_stay_together_where_asked() -> None:
    listed = [sample((n, n), (5,), trajectory=n // 4, step=n % 4 // 2) for n in range(8)]
    packs = pack(listed, token_budget=3, unit="step")
    assert [packed.members for packed in packs] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        pack([sample((1,), (2,))], token_budget=9, unit="rank")
    assert str(raised.value) == "unknown unit 'rank'; Valid: sample, step, trajectory"


UNITS = {
    "sample": lambda drawn, number: number,
    "step": lambda drawn, number: (drawn.trajectory, drawn.step),
    "trajectory": lambda drawn, number: drawn.trajectory,
}


@given(samples(), st.integers(1, 30), st.booleans(), st.sampled_from(sorted(UNITS)))
def test_every_unit_lies_whole_in_one_pack_within_the_budget(
    listed: list[Sample], budget: int, share: bool, unit: str
) -> None:
    listed = [dataclasses.replace(drawn, trajectory=number % 3, step=number % 2) for number, drawn in enumerate(listed)]
    packs = pack(listed, token_budget=budget, share=share, gate=0.0, unit=unit)
    homes = [{UNITS[unit](listed[number], number) for number in packed.members} for packed in packs]
    assert sum(map(len, homes)) == len(set().union(*homes))
    unpacked = [(number, *tokens) for packed in packs for number, tokens in unpack(packed).items()]
    assert sorted(unpacked) == [
        (i, drawn.prompt_ids, drawn.response_ids) for i, drawn in enumerate(listed) if drawn.num_trained
    ]
    for packed, home in zip(packs, homes, strict=True):
        inputs = [listed[number].token_ids[:-1] for number in packed.members]
        assert len(packed) == (len(merge_sequences(inputs)) if share else sum(map(len, inputs)))
        # A path longer than the budget takes along what it contains, whosever it is.
        assert len(packed) <= budget or len(home) == 1 or len(packed) == max(map(len, inputs))


def test_to_moves_every_tensor() -> None:
    (packed,) = pack([sample((1, 2), (3, 4))], token_budget=9)
    moved = packed.to("meta")
    names = ("input_ids", "position_ids", "end", "predictor", "target", "sample", "position")
    assert {getattr(moved, name).device.type for name in names} == {"meta"}
    assert moved.members == packed.members


def _common(sequence: list[int], other: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(sequence, other, strict=False)) if a != b), min(len(sequence), len(other))
    )


def _all_cuts(num: int) -> list[list[int]]:
    inner = range(1, num)
    chosen = (set(some) for size in range(num) for some in itertools.combinations(inner, size))
    return [sorted({0, num} | some) for some in chosen] if num else [[0]]


def _cost(listed: list[list[int]], starts: list[int], budget: int) -> tuple[float, int]:
    """Nodes of all runs and their number; infinite where a run breaks the budget without being a single path."""
    nodes = 0.0
    for low, high in itertools.pairwise(starts):
        run = len(merge_sequences(listed[low:high]))
        nodes += run if run <= max(budget, max(map(len, listed[low:high]))) else float("inf")
    return nodes, len(starts) - 1


@pytest.mark.parametrize("lay", [lambda samples: pack(samples, token_budget=9, share=False), pad_rows])
def test_ids_that_are_none_are_refused_in_every_layout(lay: Any) -> None:
    with pytest.raises(RecordError, match="sequence 1 has token id -2; ids must be from 0 to"):
        lay([sample((1, 2), (3,)), sample((4, -2), (5,))])
