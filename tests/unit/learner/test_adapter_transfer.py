"""LoRA adapters handed over through folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from safetensors.torch import load_file

from groupwise.engines.model_source import read_adapter_settings
from groupwise.engines.vllm.in_process import write_model_folder
from groupwise.learner.weight_sync import Adapter
from groupwise.models.folder import find_adapter, load_adapter, load_model
from groupwise.system.errors import ConfigError, TrainingError
from tests.unit.engines.small_models import family

PAIR = torch.tensor([[3, 4, 5, 6, 7]])


class AdapterReader:
    """An engine that keeps what lies in the folder it is told."""

    def __init__(self, settings: Mapping[str, Any] | None) -> None:
        self.adapter_settings = settings
        self.taken: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = []

    def load_adapter(self, folder: Path, *, version: int) -> None:
        config = json.loads((folder / "adapter_config.json").read_text())
        self.taken.append((folder.name, version, config, load_file(folder / "adapter_model.safetensors")))


@pytest.fixture(scope="module")
def adapted() -> Any:
    """A model with an adapter whose both halves count."""
    model = peft.get_peft_model(family("llama"), peft.LoraConfig(r=4, lora_alpha=12, target_modules="all-linear"))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for name, value in model.named_parameters():
            if ".lora_" in name:
                value.normal_(std=0.1)
    return model.eval()


def list_weights(model: Any) -> dict[str, Any]:
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def test_an_adapter_goes_through_a_folder_named_by_its_version_which_is_gone_afterwards(
    tmp_path: Path, adapted: Any
) -> None:
    engine = AdapterReader(read_adapter_settings(adapted))
    Adapter().open(tmp_path / "weights").sync(list_weights(adapted), engine, version=7)  # type: ignore[arg-type]
    [(folder, version, config, weights)] = engine.taken
    assert (folder, version, config["r"], config["lora_alpha"]) == ("0007", 7, 4, 12)
    assert not any("default" in name for name in weights)
    assert len(weights) == len(list_weights(adapted))
    assert list(tmp_path.iterdir()) == []


def test_what_goes_over_is_the_adapter_that_peft_computes_with(tmp_path: Path, adapted: Any) -> None:
    write_model_folder(adapted, tmp_path / "base")
    settings = {**(read_adapter_settings(adapted) or {}), "base_model_name_or_path": str(tmp_path / "base")}
    folder = tmp_path / "kept"

    class Keeper(AdapterReader):
        def load_adapter(self, place: Path, *, version: int) -> None:
            place.rename(folder)

    Adapter().open(None).sync(list_weights(adapted), Keeper(settings), version=1)  # type: ignore[arg-type]
    stored = find_adapter(str(folder))
    assert stored is not None
    again = load_adapter(stored, load_model(stored.base, dtype=torch.float32)).eval()
    below = load_model(str(tmp_path / "base"), dtype=torch.float32).eval()
    with torch.no_grad():
        expected, held, plain = (model(input_ids=PAIR).logits for model in (adapted, again, below))
    assert torch.equal(held, expected)
    assert not torch.allclose(plain, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "prefix"), [(None, "base_model.model.lora_A.default"), ({"r": 4}, "model.layers.0")]
)
def test_a_model_without_an_adapter_is_refused(settings: Any, prefix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Adapter().open(None).sync({f"{prefix}.weight": torch.zeros(2)}, AdapterReader(settings), version=1)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "training.weight_sync: the model has no LoRA adapter, or more than the adapter trains; set "
        "model.lora_rank, or use through_file"
    )


def test_an_engine_that_takes_no_adapters_is_refused(adapted: Any) -> None:
    with pytest.raises(ConfigError, match=r"training\.weight_sync: the engine object cannot load adapters; use in_mem"):
        Adapter().open(None).sync(list_weights(adapted), object(), version=1)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, adapted: Any) -> None:
    (tmp_path / "taken").write_text("a file")
    engine = AdapterReader(read_adapter_settings(adapted))
    with pytest.raises(
        TrainingError, match=r"the adapter could not be written to .*taken/0001 \(Not a directory\); fr"
    ):
        Adapter(folder=str(tmp_path / "taken")).open(None).sync(list_weights(adapted), engine, version=1)  # type: ignore[arg-type]


def test_a_model_without_an_adapter_is_written_whole(tmp_path: Path) -> None:
    model = family("llama")
    write_model_folder(model, tmp_path)
    with torch.no_grad():
        assert torch.equal(load_model(str(tmp_path), dtype=torch.float32)(PAIR).logits, model(PAIR).logits)
    assert read_adapter_settings(model) is None
