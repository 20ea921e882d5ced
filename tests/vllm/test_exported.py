"""The policy of docs/learn/idea_to_model.md, merged, is served by vLLM as it is: the tokens of our own engine."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from groupwise.engines.model_source import ModelSource
from tests.end_to_end.idea_to_model import Reader
from tests.vllm.environment import serve


def test_vllm_serves_the_folder_that_the_pages_lead_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    reader.follow()
    policy = tmp_path / "policy"
    merged = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    source = ModelSource(model=merged, tokenizer=None, path=str(policy), folder=tmp_path / "servers")
    with serve(source) as engine:
        served = [answer.response_ids for answer in engine.generate(reader.names["asked"])]
    assert [tuple(ids) for ids in served] == [tuple(ids) for ids in reader.names["answers"]]
