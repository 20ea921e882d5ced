"""Run where vLLM is: vLLM in one process is put to the rules, compared with transformers, handed weights and adapters.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Request
from groupwise.engines.model_source import ModelSource
from groupwise.engines.vllm.in_process import VllmEngine, open_vllm_engine
from groupwise.system.errors import EngineFault
from tests.vllm.environment import (
    CONTEXT,
    MAX_GAP,
    VOCABULARY,
    find_gap,
    list_weights,
    make_model,
    make_prompts,
    score_with_transformers,
)


def open_engine(model: Any) -> VllmEngine:
    """VLLM for a model."""
    return open_vllm_engine(ModelSource(model=model, tokenizer=None, path=None), context=CONTEXT)


def find_gaps(engine: VllmEngine, model: Any, temperature: float) -> tuple[float, float]:
    """How far sampled and scored log-probs are from those of transformers."""
    prompts = make_prompts()
    requests = [
        Request(prompt_ids=prompt, seed=i, max_tokens=40, temperature=temperature, session=str(i))
        for i, prompt in enumerate(prompts)
    ]
    answers = engine.generate(requests)
    pairs = [(prompt, answer.response_ids) for prompt, answer in zip(prompts, answers, strict=True)]
    expected = [score_with_transformers(model, *pair, temperature=temperature) for pair in pairs]
    sampled = max(find_gap(answer.logp, logps) for answer, logps in zip(answers, expected, strict=True))
    return sampled, max(map(find_gap, engine.score(pairs, temperature=temperature), expected))


def ask_whole_weights() -> dict[str, Any]:
    """Everything that is asked of an engine with whole weights."""
    first, second = make_model(0), make_model(77)
    engine = open_engine(first)
    gaps = {f"{temperature:g}": find_gaps(engine, first, temperature) for temperature in (1.0, 0.7)}
    prompt = make_prompts()[4]
    pair = (prompt[:64], prompt[64:69])
    engine.score([pair])  # which the cache now has
    with patch.object(engine._llm, "reset_prefix_cache", lambda: True):
        engine.load(list_weights(second), version=1)
    stale = find_gap(engine.score([pair])[0], score_with_transformers(second, *pair))
    engine.load(list_weights(second), version=1)
    fresh = find_gap(engine.score([pair])[0], score_with_transformers(second, *pair))
    engine.load(list_weights(first), version=0)
    rules = check_engine(engine, token_ids=range(3, VOCABULARY), weights=list_weights(second), max_gap=MAX_GAP)
    try:
        engine.load({"of.another.model": next(iter(list_weights(first).values()))}, version=9)
        refusal = ""
    except EngineFault as fault:
        refusal = str(fault)
    engine.close()
    statuses = {rule.rule: f"{rule.status}: {rule.found}" for rule in rules}
    return {"gaps": gaps, "stale": stale, "fresh": fresh, "rules": statuses, "refusal": refusal}


def ask_tied_weights() -> dict[str, Any]:
    """The gap after a weight sync of a model whose head is its embeddings, of which a CPU keeps a packed copy."""
    first, second = make_model(0, is_tied=True), make_model(77, is_tied=True)
    engine = open_engine(first)
    engine.load(list_weights(second), version=1)
    gaps = find_gaps(engine, second, 1.0)
    engine.close()
    return {"tied": gaps}


def ask_adapters() -> dict[str, Any]:
    """The gap to an adapter's product, merged by hand, of two adapters in turn."""
    import torch
    from safetensors.torch import save_file

    base = make_model()
    base.peft_config = {"default": FakeSettings()}
    base.get_base_model = lambda: base
    engine = open_engine(base)
    names = [name for name, value in base.named_parameters() if name.endswith("_proj.weight") and value.ndim == 2]
    gaps = []
    for version in (1, 2):
        draw, merged, tensors = torch.Generator().manual_seed(version), make_model(), {}
        weights = dict(merged.named_parameters())
        for name in names:
            rows, columns = weights[name].shape
            down, up = (0.1 * torch.randn(shape, generator=draw) for shape in ((4, columns), (rows, 4)))
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            tensors |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
            with torch.no_grad():
                weights[name] += 2.0 * up @ down
        with tempfile.TemporaryDirectory() as place:
            save_file(tensors, Path(place) / "adapter_model.safetensors")
            (Path(place) / "adapter_config.json").write_text(json.dumps(FakeSettings().to_dict()))
            engine.load_adapter(Path(place), version=version)
        assert engine.version == version
        gaps.append(find_gaps(engine, merged, 0.7))
    engine.close()
    return {"adapters": gaps}


class FakeSettings:
    """What peft would say of an adapter; peft itself is not here."""

    def to_dict(self) -> dict[str, Any]:
        """The content of adapter_config.json."""
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        return {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": targets, "bias": "none"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({**ask_whole_weights(), **ask_tied_weights(), **ask_adapters()}) + "\n")
