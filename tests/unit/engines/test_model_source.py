"""What an engine is opened with."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.model_source import ModelSource
from tests.unit.engines.small_models import family


def test_a_copy_lies_where_the_learner_will_compute_and_the_model_stays_where_it_is() -> None:
    model = family("llama")
    copied = ModelSource(model=model, tokenizer=None, path=None, device=torch.device("meta")).copy_model()
    assert {value.device.type for value in copied.parameters()} == {"meta"}
    assert {value.device.type for value in model.parameters()} == {"cpu"}
    beside = ModelSource(model=model, tokenizer=None, path=None).copy_model()
    assert {value.device.type for value in beside.parameters()} == {"cpu"}
