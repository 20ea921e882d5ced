"""Packed = padded = prefix-shared for the loss of every recipe, whatever it clips, corrects, penalises or averages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupwise.batching import pack, pad_rows, pad_within_budget
from groupwise.recipes import RECIPES
from tests.equivalence.models import build
from tests.equivalence.recipe_losses import apart, update
from tests.equivalence.rollouts import make_tangled_samples, with_token_credit

WITH_LOSS = [name for name, recipe in RECIPES.items() if recipe().loss is not None]


def test_hardly_a_recipe_has_no_loss() -> None:
    assert {"grpo", "gigpo", "hgpo", "dapo", "gspo", "r3"} <= set(WITH_LOSS)


@pytest.mark.parametrize("by_token", [False, True], ids=["by step", "by token"])
@pytest.mark.parametrize("name", WITH_LOSS)
def test_every_layout_gives_the_same_loss_and_gradient(name: str, by_token: bool) -> None:
    # Some samples come from another policy, as replayed ones do.
    samples = [replace(sample, off_policy=sample.trajectory % 4 == 1) for sample in make_tangled_samples()]
    samples = with_token_credit(samples) if by_token else samples
    loss, model = RECIPES[name]().loss, build("llama")
    assert loss is not None
    expected_loss, expected = update(model, loss, samples, pad_rows(samples))
    layouts = {
        "padded": pad_within_budget(samples, token_budget=60, unit=loss.unit),
        "packed": pack(samples, token_budget=60, share=False, unit=loss.unit),
        "shared": pack(samples, token_budget=60, gate=0.0, unit=loss.unit),
        "all shared": pack(samples, token_budget=10_000),
    }
    assert expected.norm() > 0
    for layout, laid in layouts.items():
        total, gradient = update(model, loss, samples, laid)
        assert total == pytest.approx(expected_loss, rel=1e-5, abs=1e-6), layout
        assert apart(gradient, expected) < 1e-5, layout
