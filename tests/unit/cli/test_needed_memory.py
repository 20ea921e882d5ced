"""A model that does not fit in memory is refused in one sentence, before any of its weights is there."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, T5Config

from groupwise import methods
from groupwise.cli import doctor as machine
from groupwise.engines.server.served_model import open_served_model
from groupwise.models import TinyModel
from groupwise.models import causal_lm as device
from groupwise.models.folder import save_model
from groupwise.models.outline import plan_model
from groupwise.models.pretrained import PretrainedModel
from groupwise.parts.part import Part
from groupwise.parts.slots import Loss
from groupwise.store.run_folder import RunPaths
from groupwise.system import processes
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import load_run
from groupwise.training.doctor import hardware
from groupwise.training.needed_memory import check_memory, count_shares
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small

AVAILABLE = 8e9
SETTINGS = ("--set", "model.hidden=100000", "--set", "model.layers=1000", "--set", "model.heads=2")
WEIGHTS = 1000 * (13 * 100_000**2 + 2 * 100_000) * 4
"""Bytes of the layers: four matrices of attention, three of the feed-forward part, two norms."""
TOO_LARGE = (
    "model: at least 2.6 PB of memory are needed (weights 520.0 TB, gradients 520.0 TB, optimizer 1.0 PB, engine 520.0 "
    "TB), but 8.0 GB are available; "
)


class Elsewhere(Part, slot="learner"):
    """A learner that keeps gradients and moments in another place."""

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Any:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _eight_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_available(monkeypatch, AVAILABLE)
    monkeypatch.setattr(hardware, "list_gpus", list)


@pytest.fixture
def _no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where large weights are made, or any are read, before the machine runs out of memory."""
    build = TinyModel.build

    def build_small(self: TinyModel, *arguments: Any, **options: Any) -> Any:
        assert self.hidden < 1000, "weights were made"
        return build(self, *arguments, **options)

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(TinyModel, "build", build_small)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", refuse)


def set_available(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    for place in (processes, machine):
        monkeypatch.setattr(place, "read_free_memory", lambda: size)


def write_pretrained(folder: Path) -> Path:
    model, tokenizer = TinyModel(hidden=16, layers=1, heads=2).open(words=("say", "one", "two"), seed=0)
    save_model(model, folder)
    tokenizer.save_pretrained(folder)
    return folder


def enlarge(folder: Path, **sizes: int) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **sizes}))


def write_large(folder: Path) -> Path:
    """A folder whose config.json says how large its model is."""
    enlarge(write_pretrained(folder), hidden_size=100_000, head_dim=50_000, intermediate_size=300_000)
    enlarge(folder, num_hidden_layers=1000)
    return folder


def write_run(folder: Path, *settings: str) -> str:
    """A run file with other settings of the model."""
    content = (folder / small(folder)).read_text(encoding="utf-8")
    for setting in settings:
        name, _, value = setting.removeprefix("model.").partition("=")
        lines = [line for line in content.splitlines() if not line.startswith(f"{name} =")]
        content = "\n".join(f"{line}\n{name} = {value}" if line == "[model]" else line for line in lines)
    (folder / "large.toml").write_text(content, encoding="utf-8")
    return "large.toml"


def write_pretrained_run(folder: Path, model: Path) -> None:
    before, _, _ = (folder / small(folder)).read_text(encoding="utf-8").partition("[model]")
    sections = f'[model]\nkind = "pretrained"\npath = "{model}"\n\n[rollout]\nmax_tokens = 1\n'
    (folder / "large.toml").write_text(before + sections, encoding="utf-8")


@pytest.mark.usefixtures("_no_weights")
def test_a_model_from_scratch(groupwise: Run, tmp_path: Path) -> None:
    assert round(WEIGHTS / 1e12, 1) == 520.0
    file = write_run(tmp_path, *SETTINGS[1::2])
    ran = groupwise("train", file)
    # On a busy machine counting 1000 layers takes long enough for a line on progress.
    assert (ran.status, ran.err) == (2, f"error: {TOO_LARGE}lower model.hidden or model.layers\n")
    assert not RunPaths(tmp_path / "runs" / "large").journal.exists()
    examined = groupwise("doctor", file)
    assert examined.status == 1
    assert f" broken   large.toml: {TOO_LARGE}lower model.hidden or model.layers\n" in examined.out


@pytest.mark.more
@pytest.mark.usefixtures("_no_weights")
def test_a_pretrained_model(groupwise: Run, tmp_path: Path) -> None:
    folder = write_large(tmp_path / "model")
    write_pretrained_run(tmp_path, folder)
    remedy = 'use a smaller model, or set model.lora_rank or model.dtype = "bfloat16"'
    assert groupwise("train", "large.toml").err == f"error: {TOO_LARGE}{remedy}\n"
    examined = groupwise("doctor", "large.toml")
    assert examined.status == 1
    assert f" broken   large.toml: {TOO_LARGE}{remedy}\n" in examined.out


@pytest.mark.usefixtures("_no_weights")
def test_sizes_that_no_number_holds(groupwise: Run, tmp_path: Path) -> None:
    file = write_run(tmp_path, "model.hidden=10000000000", "model.heads=2")
    for command in ("train", "doctor", "preview"):
        ran = groupwise(command, file)
        assert ran.status in (1, 2)
        assert (
            "model: its sizes are beyond what any memory holds (Storage size calculation overflowed with "
            "sizes=[10000000000, 10000000000]); use a smaller model"
        ) in ran.out + ran.err


@pytest.mark.usefixtures("_no_weights")
def test_a_server(tmp_path: Path) -> None:
    options = argparse.Namespace(model=str(write_large(tmp_path / "model")), dtype="bfloat16", device="cpu")
    with pytest.raises(ConfigError) as caught:
        open_served_model(options)
    assert str(caught.value) == (
        "model: at least 260.0 TB of memory are needed (weights 260.0 TB), but 8.0 GB are available; use a smaller "
        "model, or a machine with more memory"
    )


@pytest.mark.usefixtures("_no_weights")
def test_a_preview_counts_and_makes_no_weights(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("preview", write_run(tmp_path, "model.hidden=100000", "model.heads=2"))
    assert ran.status == 0, ran.err
    assert "memory: about 2.6 TB (130,0" in ran.out, "five times the 0.52 TB of a layer, whatever is available"


def test_playing_needs_less_than_learning(groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = small(tmp_path)
    assert groupwise("train", file).status == 0
    config = load_run(tmp_path / file)
    model, _ = config.model.open(words=config.words(), seed=0)
    size = sum(value.nbytes for value in model.parameters())
    set_available(monkeypatch, 2 * size)  # the weights and the engine's
    evaluated = groupwise("evaluate", "runs/small", "--seeds", "1")
    assert evaluated.status == 0, evaluated.err
    resumed = groupwise("train", "runs/small", "--resume", "--set", "training.updates=3")
    assert resumed.err.splitlines()[-1].startswith("error: model: at least ")
    set_available(monkeypatch, 2 * size - 1)
    refused = groupwise("evaluate", "runs/small", "--seeds", "1")
    assert refused.err.splitlines()[-1].endswith("are available; lower model.hidden or model.layers")
    set_available(monkeypatch, 5 * size)  # gradients, and two moments
    assert groupwise("train", "runs/small", "--resume", "--set", "training.updates=3").status == 0


@pytest.mark.parametrize(
    ("learner", "engine", "shares", "times"),
    [
        ({}, {}, 1, 5),
        ({}, {"share_weights": True}, 1, 4),
        ({}, {"precision": "bfloat16"}, 1, 4.5),
        ({"apply_gradients": "as_they_come", "max_grad_norm": "off"}, {}, 1, 4),
        ({"kind": "sharded", "ranks": 4}, {}, 4, 2),
        ({"kind": "tests.unit.cli.test_needed_memory:Elsewhere"}, {}, 1, 2),
    ],
)
def test_what_is_kept_is_counted(
    tmp_path: Path, learner: dict[str, Any], engine: dict[str, Any], shares: int, times: float
) -> None:
    plain = load_run(tmp_path / small(tmp_path))
    training = {**plain.training.config(), "learner": learner}
    config = type(plain)(**{**plain.config(), "training": training, "engine": engine})
    plan = plan_model(config.model, words=config.words())
    assert plan is not None
    model, _ = config.model.open(words=config.words(), seed=0)
    size = times * sum(value.nbytes for value in model.parameters())
    assert count_shares(config) == shares
    check_memory(config, plan, available=size, shares=shares)
    with pytest.raises(ConfigError, match="at least"):
        check_memory(config, plan, available=size - 1, shares=shares)


@pytest.mark.parametrize(("learner", "times"), [({}, 6), ({"kind": "sharded", "ranks": 2}, 3.5)])
def test_a_reference_is_counted_and_divided_like_the_weights(
    tmp_path: Path, learner: dict[str, Any], times: float
) -> None:
    plain = load_run(tmp_path / small(tmp_path))
    training = {**plain.training.config(), "learner": learner}
    config = type(plain)(**{**plain.config(), "training": training, "algorithm": methods.rloo(kl_in_reward=0.03)})
    plan = plan_model(config.model, words=config.words())
    assert plan is not None
    size = times * sum(value.nbytes for value in plan.sketch().parameters())
    check_memory(config, plan, available=size, shares=count_shares(config) or 1)
    with pytest.raises(ConfigError, match="at least"):
        check_memory(config, plan, available=size - 1, shares=count_shares(config) or 1)


def test_an_adapter_needs_gradients_for_itself_alone(tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model")
    plain = load_run(tmp_path / small(tmp_path))
    lora = PretrainedModel(path=str(folder), lora_rank=2, dtype="bfloat16")
    config = type(plain)(**{**plain.config(), "model": lora})
    plan = plan_model(lora, words=())
    assert plan is not None
    weights = list(lora.open(words=(), seed=0)[0].parameters())
    trained = sum(value.nbytes for value in weights if value.requires_grad)
    size = 2 * sum(value.nbytes for value in weights) + 3 * trained
    check_memory(config, plan, available=size, shares=1)
    with pytest.raises(ConfigError) as caught:
        check_memory(config, plan, available=size - 1, shares=1)
    assert str(caught.value).endswith("are available; use a smaller model")


def test_of_a_gpu_what_torch_keeps_for_later_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"mem_get_info": (3e9, 8e9), "memory_reserved": 2e9, "memory_allocated": 0.5e9}
    for name, value in known.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert device.read_free_memory(torch.device("cuda")) == 4.5e9
    assert device.read_free_memory(torch.device("cpu")) == AVAILABLE
    monkeypatch.setattr(processes, "read_free_memory", lambda: None)
    assert device.read_free_memory(torch.device("cpu")) == device.read_memory_size(torch.device("cpu"))


def test_a_config_of_no_causal_language_model(groupwise: Run, tmp_path: Path) -> None:
    folder = write_pretrained(tmp_path / "model")
    T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2).save_pretrained(folder)
    write_pretrained_run(tmp_path, folder)
    examined = groupwise("doctor", "large.toml")
    assert examined.status == 1
    assert " large.toml: model: transformers cannot make a model with its settings (Unrecognized con" in examined.out
    assert "); take a config.json of a causal language model\n" in examined.out
    assert "error: model: transformers cannot make a model" in groupwise("train", "large.toml").err
