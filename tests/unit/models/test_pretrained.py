"""Pretrained models from a folder: whole or with an adapter, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.models import PretrainedModel, TinyModel
from groupwise.models.pretrained import find_layers, list_linear_layers
from tests.unit.models.gpt2 import write_gpt2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=16, layers=1).open(words=("alpha", "bravo"), seed=0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def open_model(folder: Path, **settings: Any) -> Any:
    return PretrainedModel(path=str(folder), **settings).open(words=(), seed=0)[0]


def test_without_an_adapter_every_weight_trains(folder: Path) -> None:
    assert {value.dtype for value in open_model(folder).parameters() if value.requires_grad} == {torch.float32}
    assert all(value.requires_grad for value in open_model(folder).parameters())


def test_with_an_adapter_it_alone_trains_in_float32_and_starts_as_nothing(folder: Path) -> None:
    model = open_model(folder, lora_rank=2, dtype="bfloat16")
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert all("lora_" in name for name in trained)
    assert {value.dtype for value in trained.values()} == {torch.float32}
    assert model.model.model.norm.weight.dtype == torch.bfloat16
    ids = torch.tensor([[2, 4, 5]])
    with torch.no_grad():
        adapted = model(input_ids=ids).logits
        with model.disable_adapter():
            assert torch.equal(model(input_ids=ids).logits, adapted)


def test_the_adapter_is_scaled_as_told_and_the_same_for_a_seed(folder: Path) -> None:
    first, second = (open_model(folder, lora_rank=2, lora_scale=3.0) for _ in range(2))
    layer = first.model.model.layers[0].mlp.up_proj
    assert layer.scaling["default"] == 3.0
    other = second.model.model.layers[0].mlp.up_proj
    assert torch.equal(layer.lora_A["default"].weight, other.lora_A["default"].weight)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "half"}, "PretrainedModel: dtype: expected 'float32' or 'bfloat16', found 'half'"),
        ({"lora_rank": -1}, "PretrainedModel: lora_rank: expected a number greater than or equal to 0, found -1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_anything_loads(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(path="nowhere", **settings)
    assert str(caught.value) == message


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"model\.path: there is no folder '.*nowhere'; give a local"):
        open_model(tmp_path / "nowhere")


@pytest.mark.parametrize("is_cached", [False, True], ids=["new", "cached"])
def test_a_name_without_an_owner_is_refused_wherever_it_is_read(
    is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = "config.json" if is_cached else None
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: cached)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda url: pytest.fail(f"asked for {url}"))
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(path="gpt2").check()
    assert str(caught.value) == (
        "model.path: there is no folder 'gpt2' here; give a local folder, or a name of the hub with its owner, "
        "OWNER/NAME"
    )


def test_a_name_that_the_hub_cannot_have_is_not_put_down_to_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda url: pytest.fail(f"asked for {url}"))
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(path="a b/c").open(words=(), seed=0)
    assert str(caught.value) == (
        "model.path: 'a b/c' is no folder here, and the hub has no names like that; give a local folder, or a name of "
        "the hub, OWNER/NAME, of letters, digits, '-', '_' and '.'"
    )


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(url: str) -> None:
        asked.append(url)
        raise ConnectionRefusedError("no route")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refuse)
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(path="nobody/base").open(words=(), seed=0)
    assert str(caught.value) == (
        "model.path: 'nobody/base' is no folder here, and the hub cannot be asked for it (no route); give a local "
        "folder, or see to the connection"
    )
    assert len(asked) == 1


def list_adapted(model: Any) -> set[str]:
    """Last names of the layers that an adapter sits on."""
    return {name.split(".lora_A.")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_A." in name}


def test_an_adapter_sits_on_the_layers_that_are_named(folder: Path) -> None:
    everywhere = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert list_adapted(open_model(folder, lora_rank=2)) == everywhere
    assert list_adapted(open_model(folder, lora_rank=2, lora_targets=["q_proj", "mlp.up_proj"])) == {
        "q_proj",
        "up_proj",
    }


@pytest.mark.parametrize("name", ["query", "proj", "lm_head", "embed_tokens", ""])
def test_a_name_that_no_layer_has_is_refused_with_those_there_are(folder: Path, name: str) -> None:
    part = PretrainedModel(path=str(folder), lora_rank=2, lora_targets=("q_proj", name))
    (folder / "model.safetensors").unlink()  # nothing of the weights is read before
    expected = (
        f"model.lora_targets: '{folder}' has no linear layer {name!r} for an adapter to sit on; it has q_proj, k_proj, "
        "v_proj, o_proj, gate_proj, up_proj, down_proj"
    )
    for refuse in (part.check, lambda: part.open(words=(), seed=0)):
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert str(caught.value) == expected


def test_no_targets_at_all_and_targets_without_an_adapter(folder: Path) -> None:
    with pytest.raises(ConfigError, match="lora_targets"):
        PretrainedModel(path=str(folder), lora_rank=2, lora_targets=())
    with pytest.raises(ConfigError, match="lora_targets names layers of an adapter, but lora_rank is 0"):
        PretrainedModel(path=str(folder), lora_targets=("q_proj",))


def test_linear_layers_of_another_class_are_counted(tmp_path: Path) -> None:
    """GPT-2 has Conv1D for linear layers."""
    write_gpt2(tmp_path)
    part = PretrainedModel(path=str(tmp_path), lora_rank=2, lora_targets=("c_attn",))
    part.check()
    assert list_linear_layers(str(tmp_path)) == [
        f"transformer.h.0.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    ]
    assert find_layers(list_linear_layers(str(tmp_path)), ["c_attn"]) == {"transformer.h.0.attn.c_attn"}
