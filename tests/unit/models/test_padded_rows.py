from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise.models.pack import label_units, pad_rows, pad_within_budget
from tests.equivalence.rollouts import make_tangled_samples
from tests.unit.models.samples import sample

TWO = [sample((1, 2), (3,)), sample((4,), (5, 6, 7))]


def test_rows_are_padded_on_the_right() -> None:
    (rows,) = pad_rows(TWO, pad_id=9)
    assert rows.input_ids.tolist() == [[1, 2, 3, 9], [4, 5, 6, 7]]
    assert rows.attention_mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert rows.predictor.tolist() == [1, 4, 5, 6]
    assert rows.target.tolist() == [3, 5, 6, 7]
    assert rows.sample.tolist() == [0, 1, 1, 1]
    assert rows.position.tolist() == [0, 0, 1, 2]
    assert (rows.members, rows.longest, rows.largest_id, rows.raw_tokens, len(rows)) == ((0, 1), 4, 7, 7, 8)


def test_width_and_rows_of_a_micro_batch_are_free() -> None:
    first, second = pad_rows(TWO, num_rows=1, width=6)
    assert first.input_ids.tolist() == [[1, 2, 3, 0, 0, 0]]
    assert second.input_ids.tolist() == [[4, 5, 6, 7, 0, 0]]
    assert second.sample.tolist() == [1, 1, 1]
    assert second.predictor.tolist() == [0, 1, 2]


def test_samples_that_train_on_nothing_have_no_row() -> None:
    (rows,) = pad_rows([sample((1,), ()), TWO[0], sample((1,), (2,), trains=False)])
    assert rows.members == (1,)
    assert rows.sample.tolist() == [1]
    assert pad_rows([]) == []
    assert pad_rows([sample((1,), ())]) == []


def test_to_moves_every_tensor() -> None:
    (rows,) = pad_rows(TWO)
    moved = rows.to("meta")
    names = ("input_ids", "attention_mask", "position_ids", "predictor", "target", "sample", "position")
    assert {getattr(moved, name).device.type for name in names} == {"meta"}


@given(budget=st.integers(1, 200), unit=st.sampled_from(["sample", "step", "trajectory"]))
def test_rows_within_a_budget_hold_whole_units_and_every_sample_once(budget: int, unit: str) -> None:
    samples = make_tangled_samples()
    batches = pad_within_budget(samples, token_budget=budget, unit=unit)
    members = [number for rows in batches for number in rows.members]
    assert sorted(members) == [number for number, sample in enumerate(samples) if sample.num_trained]
    for rows in batches:
        units = {label_units(samples, unit)[number] for number in rows.members}
        assert len(rows) <= budget or len(units) == 1
        others = set(members) - set(rows.members)
        assert units.isdisjoint({label_units(samples, unit)[number] for number in others})
