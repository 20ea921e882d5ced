"""Layers in four bits below an adapter: gradients, runs, merging, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, open_run, train
from groupwise.learner.protocol import hash_weights
from groupwise.models import PretrainedModel, TinyModel
from groupwise.models.folder import load_model
from groupwise.training.config.run_config import RunConfig
from tests.unit.models.gpt2 import write_gpt2
from tests.unit.training.runs import small_config

IDS = torch.tensor([[2, 4, 5, 3, 6, 4]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=64, layers=2, heads=2).open(words=small_config().words(), seed=0)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def plan_run(model: dict[str, Any], **sections: Any) -> RunConfig:
    return RunConfig.model_validate({**dict(small_config(updates=2)), "model": model, **sections})


def name_model(folder: Path, **settings: Any) -> dict[str, Any]:
    return {"kind": "pretrained", "path": str(folder), "lora_rank": 2, "quantise": "4bit", **settings}


def refusal(config: RunConfig, place: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        open_run(config, place)
    return str(caught.value)


def test_without_the_package_it_is_one_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    words = refusal(plan_run(name_model(folder)), tmp_path / "run")
    assert words.startswith("model.quantise: bitsandbytes, which quantises, is not installed (")
    assert words.endswith("); pip install 'groupwise[qlora]', or leave model.quantise out")


def test_what_cannot_have_four_bits_is_refused_before_anything_opens(folder: Path, tmp_path: Path) -> None:
    assert refusal(plan_run(name_model(folder, lora_rank=0)), tmp_path / "run") == (
        "model.quantise: all weights would train, and four bits cannot; set model.lora_rank, or leave model.quantise "
        "out"
    )
    servers = plan_run(name_model(folder), engine={"kind": "server"})
    assert refusal(servers, tmp_path / "run") == (
        "model.quantise: the engine ServerEngineConfig would not load the learner's 4-bit weights; use the engine of "
        'this process ([engine] kind = "local"), or leave model.quantise out'
    )
    shares = plan_run(name_model(folder), training={"learner": {"kind": "sharded"}})
    assert refusal(shares, tmp_path / "run") == (
        "model.quantise: 4-bit layers cannot be sharded; use the local learner, or leave model.quantise out"
    )


def open_quantised(folder: Path, **settings: Any) -> Any:
    pytest.importorskip("bitsandbytes")
    part = PretrainedModel(**{key: value for key, value in name_model(folder, **settings).items() if key != "kind"})
    model = part.open(words=(), seed=0)[0].to("cpu").eval()
    draw = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=draw) * 0.1
    return model


def test_a_model_without_layers_that_four_bits_can_hold_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    write_gpt2(tmp_path)
    part = PretrainedModel(path=str(tmp_path), lora_rank=2, quantise="4bit")
    with pytest.raises(ConfigError) as caught:
        part.open(words=(), seed=0)
    assert str(caught.value) == (
        "model.quantise: GPT2LMHeadModel has no layers of torch's Linear, which alone can be kept in four bits; leave "
        "model.quantise out, or take another model"
    )


def test_gradients_are_those_of_the_numbers_that_four_bits_stand_for(folder: Path) -> None:
    narrow = open_quantised(folder)
    from bitsandbytes.functional import dequantize_4bit

    wide = PretrainedModel(path=str(folder), lora_rank=2).open(words=(), seed=0)[0].eval()
    own = dict(narrow.named_parameters())
    sizes = {str(value.dtype) for name, value in own.items() if "base_layer" in name}
    assert sizes == {"torch.uint8"}
    for name, value in wide.named_parameters():
        state = getattr(own[name], "quant_state", None)
        value.data = own[name].data.clone() if state is None else dequantize_4bit(own[name].data, state)
    for model in (narrow, wide):
        with torch.no_grad():
            model(input_ids=IDS)  # a pass without gradients comes before those that have them
        model(input_ids=IDS).logits.log_softmax(-1)[0, :, 3].sum().backward()
    trained = {name: value.grad for name, value in wide.named_parameters() if value.requires_grad}
    assert len(trained) == 2 * 7 * 2
    for name, expected in trained.items():
        torch.testing.assert_close(own[name].grad, expected, rtol=1e-4, atol=1e-5)
        assert expected.norm() > 1e-4


def test_a_run_trains_and_resumes_and_its_checkpoint_is_the_adapter(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = plan_run(name_model(folder, dtype="bfloat16", lora_targets=["q_proj", "down_proj"]))
    run = open_run(config, tmp_path / "whole")
    before = hash_weights(run.learner.weights())
    train(run)
    assert hash_weights(run.learner.weights()) != before
    stored = {path.name for path in (tmp_path / "whole" / "checkpoints" / "0002").glob("*.safetensors")}
    assert stored == {"adapter_model.safetensors", "optimizer.safetensors"}
    first = config.model_copy(update={"training": config.training.model_copy(update={"updates": 1})})
    train(open_run(first, tmp_path / "cut"))
    cut = open_run(config, tmp_path / "cut")
    train(cut, resume=True)
    assert hash_weights(cut.learner.weights()) == hash_weights(run.learner.weights())
    goes_on = PretrainedModel(path=str(tmp_path / "cut" / "checkpoints" / "0002"), quantise="4bit", dtype="bfloat16")
    assert goes_on.open(words=(), seed=0)[0].to("cpu").is_loaded_in_4bit


def test_a_merged_model_says_what_the_quantised_one_said(folder: Path, tmp_path: Path) -> None:
    model = open_quantised(folder)
    run = open_run(plan_run(name_model(folder)), tmp_path / "run")
    run.learner.model.get_base_model().generation_config.repetition_penalty = 1.25  # type: ignore[attr-defined]
    own = dict(run.learner.model.named_parameters())  # type: ignore[attr-defined]
    for name, value in model.named_parameters():
        if value.requires_grad:
            own[name].data.copy_(value.data)
    run.learner.export(tmp_path / "merged")
    run.host.shutdown()
    whole = load_model(str(tmp_path / "merged"), dtype=torch.float32).eval()
    assert whole.generation_config.repetition_penalty == 1.25
    with torch.no_grad():
        torch.testing.assert_close(whole(input_ids=IDS).logits, model(input_ids=IDS).logits, rtol=1e-4, atol=1e-4)
