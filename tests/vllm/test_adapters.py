"""LoRA adapters on a real vLLM server, against peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from groupwise.engines.engine import Request, VersionSpan
from groupwise.engines.model_source import ModelSource
from groupwise.learner import Adapter
from groupwise.learner.weight_check import WeightCheck
from groupwise.models.folder import load_model
from tests.measured_numbers import Numbers
from tests.vllm.environment import (
    MAX_GAP,
    find_gap,
    list_weights,
    make_model,
    make_prompts,
    score_with_transformers,
    serve,
)


def make_adapted(base: str) -> Any:
    """A model with an adapter of its own, over the base in a folder."""
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", base_model_name_or_path=base)
    return peft.get_peft_model(load_model(base, dtype=torch.float32), settings).eval()


def fill_adapter(model: Any, seed: int) -> None:
    """Make another adapter of a model's: both halves count."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in list_weights(model).values():
            value.copy_(0.1 * torch.randn(value.shape, generator=draw))


class Learner:
    """Who owns the weights, as far as the weight check asks."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def logps(self, pairs: Any) -> list[tuple[float, ...]]:
        return [score_with_transformers(self._model, prompt, response) for prompt, response in pairs]


def test_adapters_named_by_version_are_those_of_peft(tmp_path: Path, numbers: Numbers) -> None:
    base = tmp_path / "base"
    make_model().save_pretrained(base)
    model = make_adapted(str(base))
    source = ModelSource(model=model, tokenizer=None, path=str(base), folder=tmp_path / "servers")
    transfer = Adapter().open(tmp_path / "weights")
    prompts, gaps, answers_before = make_prompts(), [], None
    with serve(source) as engine:
        weight_check = WeightCheck(prompts[4][:64], prompts[4][64:69])
        for version in range(4):
            fill_adapter(model, seed=version)
            transfer.sync(list_weights(model), engine, version=version)
            [replica] = engine.replicas
            assert weight_check.check(replica, Learner(model), version=version) <= MAX_GAP  # type: ignore[arg-type]
            requests = [
                Request(prompt_ids=prompt, seed=i, max_tokens=12, temperature=0.7, session=str(i))
                for i, prompt in enumerate(prompts)
            ]
            answers = engine.generate(requests)
            assert {answer.versions for answer in answers} == {(VersionSpan(version, 12),)}
            assert answers != answers_before
            answers_before = answers
            pairs = [(prompt, answer.response_ids) for prompt, answer in zip(prompts, answers, strict=True)]
            expected = [score_with_transformers(model, *pair, temperature=0.7) for pair in pairs]
            gaps.append(max(find_gap(a.logp, logps) for a, logps in zip(answers, expected, strict=True)))
            assert max(map(find_gap, engine.score(pairs, temperature=0.7), expected)) <= MAX_GAP
    numbers.measured["adapters: gap to peft, of four adapters in turn"] = gaps
    assert max(gaps) <= MAX_GAP
    assert not (tmp_path / "weights").exists(), "nothing stays behind"
