"""A policy that was exported, its adapter merged, is served by vLLM as it is: the tokens of our own engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import AutoModelForCausalLM  # noqa: E402

from groupwise import load_run, train  # noqa: E402
from groupwise.engines.engine import Request  # noqa: E402
from groupwise.engines.model_source import ModelSource  # noqa: E402
from groupwise.export.write_folder import export_run  # noqa: E402
from groupwise.training.checkpoints.run_checkpoints import open_run_at  # noqa: E402
from tests.vllm.environment import serve  # noqa: E402

PROMPTS = ((2, 5, 7), (2, 9, 11, 6, 8), (4,) * 12)
SETTINGS: dict[str, Any] = {
    "algorithm": {"recipe": "grpo"},
    "env": {"kind": "identity", "num_words": 4, "length": 1},
    "model": {"kind": "tiny", "hidden": 64, "heads": 2, "context": 512},  # vLLM wants heads of 32 or more
    "warm_start": {"tasks": 4, "epochs": 6, "learning_rate": 0.02},
    "rollout": {"max_tokens": 2, "plan": {"kind": "flat", "attempts": 16}},
    "training": {"updates": 2, "tasks": 4, "learner": {"learning_rate": 0.01}},
    "evaluation": {"tasks": 0},
}


def test_vllm_serves_an_exported_policy(tmp_path: Path) -> None:
    train(SETTINGS, tmp_path / "whole")
    base = export_run(tmp_path / "whole", tmp_path / "base").folder
    model = {"kind": "pretrained", "path": str(base), "lora_rank": 4, "lora_scale": 8.0}
    train({**SETTINGS, "model": model, "warm_start": None}, tmp_path / "adapted")
    policy = export_run(tmp_path / "adapted", tmp_path / "policy", merge=True).folder
    asked = [Request(prompt_ids=ids, max_tokens=12, temperature=0.0, seed=0) for ids in PROMPTS]
    with open_run_at(load_run(tmp_path / "adapted"), tmp_path / "adapted", read_only=True) as run:
        ours = [tuple(answer.response_ids) for answer in run.engine.generate(asked)]
    merged = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    source = ModelSource(model=merged, tokenizer=None, path=str(policy), folder=tmp_path / "servers")
    with serve(source) as engine:
        assert [tuple(answer.response_ids) for answer in engine.generate(asked)] == ours
