from __future__ import annotations

import dataclasses

import pytest

from groupwise.data.samples import count_totals
from groupwise.system.errors import RecordError
from tests.unit.models.samples import sample


def test_a_sample_knows_its_tokens_and_how_many_of_them_train() -> None:
    one = sample((7, 8, 9), (5, 2), logp_behaviour=(-0.1, -2.3))
    assert one.token_ids == (7, 8, 9, 5, 2)
    assert one.num_trained == 2
    assert dataclasses.replace(one, trains=False).num_trained == 0


def test_a_sample_is_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample((1,), (2,)).step = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        type(sample((1,), (2,)))((1,), (2,), 0.0)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"prompt_ids": ()},
            "sample of trajectory 4, step 1: the prompt is empty, so nothing predicts the first sampled token; begin "
            "it with a token such as the tokenizer's beginning-of-sequence token",
        ),
        (
            {"logp_behaviour": (-0.5,)},
            "sample of trajectory 4, step 1: logp_behaviour has 1 entries for 2 sampled tokens; "
            "record one per token, or none",
        ),
        (
            {"entropy": (0.1, 0.2, 0.3)},
            "sample of trajectory 4, step 1: entropy has 3 entries for 2 sampled tokens; record one per token, or none",
        ),
        (
            {"advantage": (0.5,)},
            "sample of trajectory 4, step 1: advantage has 1 entries for 2 sampled tokens; "
            "give one number, or one per token",
        ),
        (
            {"channels": {"tempo": 1.0, "economy": (0.5,)}},
            "sample of trajectory 4, step 1: channel 'economy' has 1 entries for 2 sampled tokens; "
            "give one number, or one per token",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused(changes: dict[str, object], message: str) -> None:
    whole = sample((1,), (2, 3), trajectory=4, step=1)
    with pytest.raises(RecordError) as raised:
        count_totals([dataclasses.replace(whole, **changes)], max_tokens=4)  # type: ignore[arg-type]
    assert str(raised.value) == message


def test_one_advantage_a_token_is_accepted() -> None:
    whole = sample((1,), (2, 3), advantage=(0.5, -0.5))  # type: ignore[arg-type]
    assert whole.advantage == (0.5, -0.5)
