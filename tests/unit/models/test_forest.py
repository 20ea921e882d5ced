"""The forest of prefixes: the worked vector, the slow trie, the interval rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

from groupwise.models.forest import merge_sequences
from groupwise.system.errors import RecordError
from tests.unit.models.samples import SEQUENCES

Trie = dict[int, "Trie"]

VECTOR = [[1, 2, 3, 4, 5], [1, 2, 3, 6, 7, 8], [1, 2, 9, 10], [1, 2, 9, 3, 5]]
"""Four sequences of 20 tokens, 12 of them distinct prefixes (worked by hand, children in ascending order)."""


def test_the_worked_vector() -> None:
    merged = merge_sequences(VECTOR)
    assert merged.token.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 5, 10]
    assert merged.depth.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 2, 3, 4, 3]
    # One past the last node of each subtree; the last ones are 11 11 7 4 4 7 7 7 11 10 10 11.
    assert merged.end.tolist() == [12, 12, 8, 5, 5, 8, 8, 8, 12, 11, 11, 12]
    paths = [merged.path(number).tolist() for number in range(4)]
    assert paths == [[0, 1, 2, 3, 4], [0, 1, 2, 5, 6, 7], [0, 1, 8, 11], [0, 1, 8, 9, 10]]
    assert merged.token_ratio == 20 / 12


def test_nodes_do_not_depend_on_the_order_of_the_sequences() -> None:
    expected = merge_sequences(VECTOR)
    for order in itertools.permutations(range(4)):
        merged = merge_sequences([VECTOR[number] for number in order])
        for name in ("token", "depth", "end"):
            assert getattr(merged, name).tolist() == getattr(expected, name).tolist()
        for place, number in enumerate(order):
            assert merged.path(place).tolist() == expected.path(number).tolist()


def test_equal_sequences_share_every_node_and_an_empty_one_has_none() -> None:
    merged = merge_sequences([[5, 6], [], [5, 6], [5]])
    assert merged.token.tolist() == [5, 6]
    assert [merged.path(number).tolist() for number in range(4)] == [[0, 1], [], [0, 1], [0]]


@pytest.mark.parametrize("sequences", [[], [[]], [[], []]])
def test_a_forest_of_nothing_is_empty(sequences: list[list[int]]) -> None:
    merged = merge_sequences(sequences)
    assert len(merged) == len(merged.node) == 0
    assert merged.token_ratio == 1.0


def test_sequences_that_differ_in_the_first_token_share_nothing() -> None:
    merged = merge_sequences([[1, 2, 3], [4, 2, 3]])
    assert merged.end.tolist() == [3, 3, 3, 6, 6, 6]


def test_ids_are_compared_as_numbers_not_as_text() -> None:
    assert merge_sequences([[256], [255], [65536], [2**32 - 1], [1]]).token.tolist() == [1, 255, 256, 65536, 2**32 - 1]


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_an_impossible_id_is_refused_with_its_sequence(wrong: int) -> None:
    with pytest.raises(RecordError) as raised:
        merge_sequences([[1, 2], [], [3, wrong]])
    assert str(raised.value) == f"sequence 2 has token id {wrong}; ids must be from 0 to 4294967295"
    assert raised.value.row == 2


@given(SEQUENCES)
def test_it_equals_a_trie_of_dicts(sequences: list[list[int]]) -> None:
    merged = merge_sequences(sequences)
    expected = _naive(sequences)
    for name in ("token", "depth", "end"):
        assert getattr(merged, name).tolist() == expected[name]
    assert [merged.path(number).tolist() for number in range(len(sequences))] == expected["paths"]


@given(SEQUENCES)
def test_the_interval_rule_is_being_an_ancestor(sequences: list[list[int]]) -> None:
    merged = merge_sequences(sequences)
    node = np.arange(len(merged))
    interval = (node[None, :] <= node[:, None]) & (node[:, None] < merged.end[None, :])
    parents = _naive(sequences)["parent"]
    assert interval.tolist() == [[key in _ancestors(parents, query) for key in node] for query in node]


@given(SEQUENCES)
def test_a_path_spells_its_sequence(sequences: list[list[int]]) -> None:
    merged = merge_sequences(sequences)
    for number, sequence in enumerate(sequences):
        path = merged.path(number)
        assert merged.token[path].tolist() == sequence
        assert merged.depth[path].tolist() == list(range(len(sequence)))


def _ancestors(parents: list[object], node: int) -> set[int]:
    ancestors = set()
    while node >= 0:
        ancestors.add(node)
        node = int(parents[node])  # type: ignore[call-overload]
    return ancestors


def _naive(sequences: list[list[int]]) -> dict[str, list[object]]:
    """Insert token by token into nested dicts, then walk them with children in ascending order."""
    root: Trie = {}
    for sequence in sequences:
        place = root
        for token in sequence:
            place = place.setdefault(token, {})
    forest: dict[str, list[object]] = {"token": [], "depth": [], "parent": [], "end": []}
    numbers: dict[tuple[int, ...], int] = {}

    def walk(place: Trie, prefix: tuple[int, ...], parent: int) -> None:
        for token in sorted(place):
            here = len(forest["token"])
            numbers[(*prefix, token)] = here
            forest["token"].append(token)
            forest["depth"].append(len(prefix))
            forest["parent"].append(parent)
            forest["end"].append(None)
            walk(place[token], (*prefix, token), here)
            forest["end"][here] = len(forest["token"])

    walk(root, (), -1)
    forest["paths"] = [[numbers[tuple(ids[: i + 1])] for i in range(len(ids))] for ids in sequences]
    return forest
