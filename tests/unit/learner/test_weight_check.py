"""The weight check: what it allows depends on the engine's precision."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.open_engine import open_engine
from groupwise.learner.weight_check import TOLERANCES, WeightCheck, choose_tolerance
from groupwise.system.errors import TrainingError
from tests.unit.engines.small_models import family

PROMPT, RESPONSE = (3, 4, 5, 6, 7, 8), (9, 10, 11)


class Asked:
    """What the weight check asks of a learner, of a bare model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def logps(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
        return [tuple(scores(self.model, prompt, response)) for prompt, response in pairs]


@torch.no_grad()
def scores(model: Any, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
    ids = torch.tensor([[*prompt, *response]])
    every = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
    logps: list[float] = every.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
    return logps


def move_weights(model: torch.nn.Module, size: float) -> dict[str, torch.Tensor]:
    """Move a model in place; its weights."""
    with torch.no_grad():
        for value in model.parameters():
            value += size * torch.sin(1000 * value)
    return {name: value.detach() for name, value in model.named_parameters()}


def test_a_bfloat16_engine_passes_under_its_own_bounds_and_fails_under_those_of_float32() -> None:
    model = family("llama")
    engine = open_engine(copy.deepcopy(model), precision="bfloat16")
    gap = WeightCheck(PROMPT, RESPONSE, tolerance=TOLERANCES["bfloat16"]).check(engine, Asked(model), version=0)
    assert 1e-3 < gap < 1.0
    with pytest.raises(TrainingError, match=r"disagree by .* nats on a fixed prompt \(allowed 0\.001;"):
        WeightCheck(PROMPT, RESPONSE).check(engine, Asked(model), version=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_engine_that_stays_behind_is_found_in_either_precision(precision: str) -> None:
    model = family("llama")
    engine = open_engine(copy.deepcopy(model), precision=precision)
    weight_check = WeightCheck(PROMPT, RESPONSE, tolerance=TOLERANCES[precision])
    weight_check.check(engine, Asked(model), version=0)
    engine.load(move_weights(model, 0.02), version=1)
    weight_check.check(engine, Asked(model), version=1)
    move_weights(model, 0.1)
    engine.load({}, version=2)
    with pytest.raises(TrainingError, match="after the weight sync of version 2, the engine and the learner disagree"):
        weight_check.check(engine, Asked(model), version=2)


def test_an_engine_that_says_the_same_to_the_last_bit_has_stayed_behind_however_noisy_it_was() -> None:
    """Once an honest difference was large, no difference is large enough to tell: standing still is."""

    class Still:
        version = 0

        def __init__(self, said: list[float]) -> None:
            self.said = said

        def score(self, sequences: object) -> list[tuple[float, ...]]:
            return [tuple(self.said)]

    model = family("llama")
    weight_check = WeightCheck(PROMPT, RESPONSE, tolerance=TOLERANCES["bfloat16"])
    engine = Still([each + 0.28 for each in scores(model, PROMPT, RESPONSE)])
    assert weight_check.check(engine, Asked(model), version=0) == pytest.approx(0.28, abs=1e-5)  # type: ignore[arg-type]
    weight_check.check(engine, Asked(model), version=0)  # type: ignore[arg-type]  # the learner has not moved either
    move_weights(model, 0.03)
    with pytest.raises(TrainingError, match="The engine did not load the weights"):
        weight_check.check(engine, Asked(model), version=0)  # type: ignore[arg-type]


def test_a_bfloat16_engine_that_moved_may_be_as_far_from_the_learner_as_the_update_moved_it() -> None:
    """What was met on a GPU: 0.165 nats apart after an update of 0.138, where the version before agreed to 0.01."""

    class Fixed:
        version = 0

        def __init__(self) -> None:
            self.logps_now = [-3.0, -4.0, -5.0]

        def logps(self, pairs: object) -> list[tuple[float, ...]]:
            return [tuple(self.logps_now)]

        def score(self, sequences: object) -> list[tuple[float, ...]]:
            return self.logps(sequences)

    engine, learner = Fixed(), Fixed()
    weight_check = WeightCheck(PROMPT, RESPONSE, tolerance=TOLERANCES["bfloat16"])
    engine.logps_now[0] += 0.01
    weight_check.check(engine, learner, version=0)  # type: ignore[arg-type]
    learner.logps_now[0] += 0.138
    engine.logps_now[0] = learner.logps_now[0] + 0.165
    assert weight_check.check(engine, learner, version=0) == pytest.approx(0.165)  # type: ignore[arg-type]
    learner.logps_now[0] += 0.95
    engine.logps_now[1] += 0.001  # it says something else, but nothing of what was learnt
    with pytest.raises(TrainingError, match="The engine did not load the weights"):
        weight_check.check(engine, learner, version=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, 1])
def test_a_log_prob_that_is_not_a_number_is_no_agreement(place: int) -> None:
    class Broken:
        version = 0

        def score(self, sequences: object) -> list[tuple[float, ...]]:
            return [tuple(float("nan") if i == place else -1.0 for i in range(len(RESPONSE)))]

    with pytest.raises(TrainingError, match="disagree by nan nats"):
        WeightCheck(PROMPT, RESPONSE).check(Broken(), Asked(family("llama")), version=0)  # type: ignore[arg-type]


def test_a_model_that_was_loaded_narrow_is_allowed_what_its_rounding_takes() -> None:
    assert choose_tolerance("float32", family("llama")) == TOLERANCES["float32"]
    assert choose_tolerance("bfloat16", family("llama")) == TOLERANCES["bfloat16"]
    assert choose_tolerance("float32", family("llama").bfloat16()) == TOLERANCES["bfloat16"]
