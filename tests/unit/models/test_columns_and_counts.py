from __future__ import annotations

import torch

from groupwise.data.samples import count_totals
from groupwise.models.pack import pack, pad_rows, spread_over_tokens
from tests.unit.models.samples import sample

THREE = [sample((1,), (2, 3)), sample((1,), (4,), trains=False), sample((1,), (5, 6))]


def test_a_column_repeats_a_number_or_lists_one_a_token() -> None:
    values = [0.5, 9.0, (1.0, 2.0)]
    for layout in (*pack(THREE, token_budget=99), *pad_rows(THREE)):
        assert spread_over_tokens(layout, values).tolist() == [0.5, 0.5, 1.0, 2.0]
        assert spread_over_tokens(layout, values).dtype == torch.float32


def test_a_column_follows_the_pack_and_not_the_list() -> None:
    listed = [sample((9,), (1,)), sample((2,), (1,)), sample((9,), (3,))]
    packs = pack(listed, token_budget=1, gate=0.0)
    assert [spread_over_tokens(packed, [0.0, 1.0, 2.0]).tolist() for packed in packs] == [[1.0], [0.0, 2.0]]


def test_totals_count_what_trains() -> None:
    listed = [
        sample((1,), (2, 3), trajectory=0, step=0, group=0),
        sample((1,), (2,), trajectory=0, step=0, group=0),  # the rest of the same step
        sample((1,), (2, 3, 4), trajectory=0, step=1, group=0),
        sample((1,), (2,), trajectory=1, step=0, group=1, trains=False),
        sample((1,), (), trajectory=2, step=0, group=2),
        sample((1,), (2,), trajectory=3, step=0, group=0),
    ]
    totals = count_totals(listed, max_tokens=8)
    assert (totals.tokens, totals.samples, totals.steps, totals.trajectories, totals.groups) == (7, 4, 3, 2, 1)
    assert totals.max_tokens == 8
    assert totals.trajectory_tokens == (6, 0, 0, 1)
