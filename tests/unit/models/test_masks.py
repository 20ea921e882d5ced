from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.samples import Sample
from groupwise.models.attention import TreeMask, make_attention_mask, make_dense_mask
from groupwise.models.pack import Pack, pack
from groupwise.system.errors import ConfigError
from tests.unit.models.samples import sample, samples


def _fork() -> Pack:
    (packed,) = pack([sample((1, 2), (9,)), sample((1, 3), (9,)), sample((7,), (9,))], token_budget=9, gate=0.0)
    return packed


def test_a_token_sees_its_ancestors_and_itself() -> None:
    assert make_dense_mask(_fork().end).int().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]]]


def test_the_additive_mask_is_nought_where_a_token_is_seen() -> None:
    mask = make_dense_mask(_fork().end, dtype=torch.float32)
    lowest = torch.finfo(torch.float32).min
    assert mask[0, 0, 2].tolist() == [0.0, lowest, 0.0, lowest]
    assert make_dense_mask(_fork().end, dtype=torch.bfloat16).dtype == torch.bfloat16


@given(samples(), st.integers(1, 30), st.booleans())
def test_the_mask_shows_each_predictor_its_sample_and_nothing_else(
    listed: list[Sample], budget: int, share: bool
) -> None:
    for packed in pack(listed, token_budget=budget, share=share, gate=0.0):
        mask = make_dense_mask(packed.end)[0, 0]
        assert bool(mask.diagonal().all())  # no row is masked throughout
        for node, number, position in zip(
            packed.predictor.tolist(), packed.sample.tolist(), packed.position.tolist(), strict=True
        ):
            seen = packed.input_ids[0][mask[node]].tolist()
            expected = listed[number]
            assert tuple(seen) == expected.token_ids[: len(expected.prompt_ids) + position]


def test_each_implementation_gets_its_own_form() -> None:
    mask = make_attention_mask(_fork(), implementation="sdpa", dtype=torch.float32)
    assert isinstance(mask, TreeMask)
    assert torch.equal(mask.write_out(), make_dense_mask(_fork().end))
    assert make_attention_mask(_fork(), implementation="eager", dtype=torch.float64).dtype == torch.float64


def test_an_implementation_without_a_mask_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        make_attention_mask(_fork(), implementation="flash_attention_2", dtype=torch.float32)
    assert str(raised.value) == (
        "the model runs 'flash_attention_2' attention, which cannot use the mask of a pack; load it with "
        "attn_implementation='sdpa' or 'eager', or use padded rows, one per sample"
    )
