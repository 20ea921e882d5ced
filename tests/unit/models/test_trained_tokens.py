"""Samples of which only some tokens train: what is computed, counted, and predicted."""

from __future__ import annotations

import dataclasses

import pytest

from groupwise.data.samples import count_totals, find_training, keep_trained, list_computed_responses
from groupwise.models.pack import pack, pad_rows, pad_within_budget, spread_over_tokens
from groupwise.system.errors import RecordError
from tests.unit.models.samples import sample, unpack

MIDDLE = sample((1, 2), (3, 4, 5, 6), trained=(False, True, True, False))
WHOLE = sample((1, 2), (3, 7), trajectory=1)


def test_a_sample_knows_which_of_its_tokens_train() -> None:
    assert MIDDLE.num_trained == 2
    assert keep_trained([MIDDLE] * 3 + [WHOLE], [(0.1, 0.2, 0.3, 0.4), 0.5, (), (0.1, 0.2)]) == [
        (0.2, 0.3),
        0.5,
        (),
        (0.1, 0.2),
    ]
    idle, masked = dataclasses.replace(MIDDLE, trains=False), dataclasses.replace(MIDDLE, trained=(False,) * 4)
    assert idle.num_trained == 0
    assert find_training([idle, MIDDLE, masked, WHOLE]) == [1, 3]
    assert list_computed_responses([MIDDLE, masked, WHOLE]) == [(3, 4, 5), (), (3, 7)]


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(RecordError) as raised:
        count_totals([sample((1,), (2, 3), trained=(True,))], max_tokens=4)
    assert str(raised.value) == (
        "sample of trajectory 0, step 0: trained has 1 entries for 2 sampled tokens; give one boolean per token (True "
        "= it trains), or leave it out"
    )


def test_a_pack_holds_nothing_after_the_last_token_that_trains() -> None:
    (packed,) = pack([MIDDLE, WHOLE], token_budget=100)
    # 6 trains nothing and 5 is only a target; token 3 is computed once, and trains in the second sample alone.
    assert packed.input_ids.tolist() == [[1, 2, 3, 4]]
    assert packed.target.tolist() == [4, 5, 3, 7]
    assert packed.predictor.tolist() == [2, 3, 1, 2]
    assert packed.sample.tolist() == [0, 0, 1, 1]
    assert packed.position.tolist() == [1, 2, 0, 1]
    assert unpack(packed) == {0: ((1, 2), (3, 4, 5)), 1: ((1, 2), (3, 7))}


def test_only_states_that_predict_a_trained_token_reach_the_head() -> None:
    (packed,) = pack([MIDDLE], token_budget=100)
    assert packed.predictions.node.tolist() == [2, 3]
    (rows,) = pad_rows([MIDDLE])
    assert rows.predictions.node.tolist() == [2, 3]


def test_rows_end_with_the_last_token_that_trains() -> None:
    for layout in (*pad_rows([MIDDLE, WHOLE]), *pad_within_budget([MIDDLE, WHOLE], token_budget=10)):
        assert layout.input_ids.tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 7, 0]]
        assert layout.target.tolist() == [4, 5, 3, 7]
        assert layout.predictor.tolist() == [2, 3, 6, 7]
        assert layout.position.tolist() == [1, 2, 0, 1]


def test_a_column_takes_the_values_of_the_tokens_that_train() -> None:
    (packed,) = pack([MIDDLE, WHOLE], token_budget=100)
    values = keep_trained([MIDDLE, WHOLE], [(0.1, 0.25, 0.5, 0.4), 2.0])
    assert spread_over_tokens(packed, values).tolist() == [0.25, 0.5, 2.0, 2.0]


def test_masked_tokens_leave_every_denominator() -> None:
    idle = sample((1,), (2, 3), trained=(False, False), trajectory=2, step=0, group=1)
    totals = count_totals([MIDDLE, WHOLE, idle], max_tokens=8)
    assert (totals.tokens, totals.samples, totals.steps, totals.trajectories, totals.groups) == (4, 2, 2, 2, 1)
    assert totals.trajectory_tokens == (2, 2, 0)
    assert pack([idle], token_budget=8) == []
    assert pad_rows([idle]) == []
