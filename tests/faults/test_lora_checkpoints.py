"""A run that begins from the checkpoint of an adapter goes on with that adapter, or is refused with a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from groupwise.data.seeds import seed_of
from groupwise.learner.protocol import hash_weights
from groupwise.models import PretrainedModel, TinyModel
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.faults.damaged_runs import flip_bit
from tests.unit.training.runs import small_config

WORDS = ("alpha", "bravo", "charlie", "delta", "say")


def write_model(folder: Path, *, hidden: int = 16, seed: int = 0, **how: Any) -> Path:
    model, tokenizer = TinyModel(hidden=hidden, layers=1, heads=2).open(words=WORDS, seed=seed)
    model.save_pretrained(folder, **how)
    tokenizer.save_pretrained(folder)
    return folder


def train_run(folder: Path, model: PretrainedModel, *, updates: int = 2, resume: bool = False) -> Run:
    run = open_run(small_config(updates=updates).model_copy(update={"model": model}), folder)
    train(run, resume=resume)
    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in `base`, and a run in `first` that trained an adapter on it."""
    folder = tmp_path_factory.mktemp("lora")
    write_model(folder / "base")
    train_run(folder / "first", PretrainedModel(path=str(folder / "base"), lora_rank=2))
    return folder


@pytest.fixture
def own(place: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(place / "first" / "checkpoints" / "0002", tmp_path / "adapter"))


def open_model(path: Path, **settings: Any) -> Any:
    return PretrainedModel(path=str(path), **settings).open(words=(), seed=0)[0]


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        open_model(path, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_goes_on_with_the_adapter_of_a_checkpoint(place: Path, tmp_path: Path) -> None:
    part = PretrainedModel(path=str(place / "base"), lora_rank=2)
    before, tokenizer = part.open(words=(), seed=seed_of(0, "model"))
    run = open_run(
        small_config(updates=2).model_copy(update={"model": part}),
        tmp_path / "first",
        model_and_tokenizer=(before, tokenizer),
    )
    train(run)
    checkpoint = PretrainedModel(path=str(tmp_path / "first" / "checkpoints" / "0002"))
    model = open_model(Path(checkpoint.path))
    assert hash_weights(model.state_dict()) == hash_weights(before.state_dict()), "base and adapter, to the bit"
    assert any(value.abs().sum() > 0 for name, value in model.named_parameters() if "lora_B" in name)
    trains = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trains == {name for name, value in before.named_parameters() if value.requires_grad}
    whole = train_run(tmp_path / "whole", checkpoint, updates=3)
    assert hash_weights(whole.learner.weights()) != hash_weights(run.learner.weights())
    train_run(tmp_path / "cut", checkpoint, updates=1)
    cut = train_run(tmp_path / "cut", checkpoint, updates=3, resume=True)
    assert hash_weights(cut.learner.weights()) == hash_weights(whole.learner.weights())


def test_the_same_settings_may_be_named_and_others_are_refused(place: Path) -> None:
    path = place / "first" / "checkpoints" / "0002"
    assert open_model(path, lora_rank=2, dtype="bfloat16").model.model.norm.weight.dtype == torch.bfloat16
    assert refusal(path, lora_rank=4) == (
        f"model.lora_rank: the adapter in {path} has 2, but 4 is asked for; leave lora_rank out to continue with that "
        "adapter, or give the folder of a whole model"
    )
    assert refusal(path, lora_rank=2, lora_scale=1.5).startswith(f"model.lora_scale: the adapter in {path} has 2, but")
    assert refusal(path, lora_rank=2, lora_targets=["q_proj"]) == (
        f"model.lora_targets: the adapter in {path} has one on model.layers.0.mlp.down_proj, but none there is asked "
        "for; leave lora_rank out to continue with that adapter, or give the folder of a whole model"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layers_to_transform", [0]),
        ("exclude_modules", ["q_proj"]),
        ("rank_pattern", {"q_proj": 4}),
        ("alpha_pattern", {"q_proj": 8}),
    ],
)
def test_an_adapter_whose_layers_differ_is_not_the_one_that_is_asked_for(own: Path, name: str, value: Any) -> None:
    content = json.loads((own / "adapter_config.json").read_text(encoding="utf-8"))
    (own / "adapter_config.json").write_text(json.dumps({**content, name: value}), encoding="utf-8")
    assert refusal(own, lora_rank=2) == (
        f"model.lora_rank: the adapter in {own} has {name} = {value}, but none is asked for; leave lora_rank out to "
        "continue with that adapter, or give the folder of a whole model"
    )


def test_a_run_with_named_targets_trains_resumes_and_is_compared_with_its_adapter(place: Path, tmp_path: Path) -> None:
    part = PretrainedModel(path=str(place / "base"), lora_rank=2, lora_targets=("q_proj", "v_proj"))
    whole = train_run(tmp_path / "whole", part, updates=2)
    assert {name.split(".")[-4] for name in whole.learner.weights()} == {"q_proj", "v_proj"}
    train_run(tmp_path / "cut", part, updates=1)
    cut = train_run(tmp_path / "cut", part, updates=2, resume=True)
    assert hash_weights(cut.learner.weights()) == hash_weights(whole.learner.weights())
    path = tmp_path / "whole" / "checkpoints" / "0002"
    assert open_model(path, lora_rank=2, lora_targets=["v_proj", "q_proj"]) is not None
    assert refusal(path, lora_rank=2).startswith(
        f"model.lora_targets: the adapter in {path} has none on model.layers.0.mlp.down_proj, but one there is asked"
    )


def test_an_adapter_loads_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model was named by a path from where the user stood."""
    write_model(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    run = train_run(Path("run"), PretrainedModel(path="base", lora_rank=2), updates=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = open_model(Path("../run/checkpoints/0001"))
    adapter = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert hash_weights(adapter) == hash_weights(run.learner.weights())
    train_run(Path("next"), PretrainedModel(path="../run/checkpoints/0001"), updates=1)
    named = json.loads(Path("next/checkpoints/0001/adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == str(tmp_path / "base"), "and what it writes names the model, not the adapter"


def change(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_relative_path_is_looked_for_beside_the_adapter_too(own: Path, place: Path) -> None:
    from safetensors.torch import load_file

    moved = write_model(own.parent / "moved", seed=1)
    change(own, base_model_name_or_path="../moved")
    model = open_model(own)
    under, name = model.get_base_model(), "model.embed_tokens.weight"
    beside, before = (load_file(folder / "model.safetensors")[name] for folder in (moved, place / "base"))
    assert torch.equal(under.get_parameter(name), beside)
    assert not torch.equal(beside, before)
    adapter = {name.replace(".default", ""): value for name, value in model.named_parameters() if value.requires_grad}
    assert hash_weights(adapter) == hash_weights(load_file(own / "adapter_model.safetensors"))


def test_a_model_that_is_gone_is_a_sentence(own: Path, tmp_path: Path) -> None:
    change(own, base_model_name_or_path=str(tmp_path / "gone"))
    assert refusal(own).startswith(
        f"model.path: the adapter in {own} sits on '{tmp_path / 'gone'}', which cannot be loaded (there is no folder "
    )
    assert refusal(own).endswith(f"); put it there, or name where it is in {own / 'adapter_config.json'}")


def test_a_model_of_another_shape_is_a_sentence(own: Path, tmp_path: Path) -> None:
    change(own, base_model_name_or_path=str(write_model(tmp_path / "wide", hidden=32)))
    said = refusal(own)
    assert said.startswith(f"model.path: the adapter in {own} does not fit its model '{tmp_path / 'wide'}' (")
    assert said.endswith(f"; name the model that it was trained on in {own / 'adapter_config.json'}")


def test_an_adapter_that_lacks_a_matrix_is_a_sentence(own: Path) -> None:
    change(own, target_modules=["q_proj"])
    assert "(only one of the two has 'base_model.model.model.layers.0.mlp." in refusal(own)


@pytest.mark.parametrize("base", [None, "", 5])
def test_an_adapter_that_names_no_model_is_a_sentence(own: Path, base: object) -> None:
    change(own, base_model_name_or_path=base)
    assert refusal(own) == (
        f"model.path: {own / 'adapter_config.json'} does not say which model the adapter sits on; name its folder "
        "there under 'base_model_name_or_path', or merge the adapter into its model first"
    )


def test_an_adapter_on_a_model_made_from_scratch_resumes_and_is_refused_as_a_start(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")

    def build() -> tuple[Any, Any]:
        model, tokenizer = TinyModel(hidden=16, layers=1, heads=2).open(words=WORDS, seed=0)
        torch.manual_seed(1)
        return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear")), tokenizer

    for updates, resume in ((1, False), (2, True)):
        run = open_run(small_config(updates=updates), tmp_path / "run", model_and_tokenizer=build())
        train(run, resume=resume)
    assert "does not say which model the adapter sits on" in refusal(tmp_path / "run" / "checkpoints" / "0002")


def test_an_adapter_on_an_adapter_is_a_sentence(own: Path, place: Path) -> None:
    change(own, base_model_name_or_path=str(place / "first" / "checkpoints" / "0001"))
    assert "which cannot be loaded (it is an adapter itself)" in refusal(own)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"peft_type": "IA3"}, "holds an adapter that is not LoRA"),
        ({"r": "2"}, "holds an adapter that is not LoRA"),
        ({"modules_to_save": ["lm_head"]}, "sets 'modules_to_save', which is more than plain LoRA"),
        ({"use_dora": True}, "sets 'use_dora', which is more than plain LoRA"),
        ({"megatron_config": {"a": 1}, "megatron_core": "hostile"}, "which is more than plain LoRA"),
        ({"something_new": True}, "sets 'something_new', which is more than plain LoRA"),
    ],
)
def test_what_is_more_than_plain_lora_is_a_sentence(
    own: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], what: str
) -> None:
    (own.parent / "hostile.py").write_text(f"open({str(own.parent / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(own.parent))
    change(own, **changes)
    assert what in refusal(own)
    assert not (own.parent / "ran").exists()


def test_a_damaged_adapter_is_a_sentence(own: Path) -> None:
    flip_bit(own / "adapter_model.safetensors", 0.9)
    assert refusal(own) == (
        f"model.path: {own} is a damaged checkpoint (adapter_model.safetensors is not as it was written); give another "
        "one"
    )
    (own / "adapter_model.safetensors").unlink()
    (own / "state.json").unlink()
    assert "names an adapter but has no adapter_model.safetensors" in refusal(own)
    (own / "adapter_config.json").write_text("{")
    assert "adapter_config.json cannot be read (" in refusal(own)


def test_a_resumed_run_with_another_rank_is_a_sentence(place: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(place / "first", tmp_path / "run"))
    model = PretrainedModel(path=str(place / "base"), lora_rank=4)
    with pytest.raises(ConfigError, match=r"^model\.lora_rank cannot change in a resumed run: it was 2, is 4; "):
        train_run(folder, model, updates=3, resume=True)
    (folder / "config.toml").unlink()  # without it, the checkpoint says so
    with pytest.raises(
        TrainingError, match=r"0002 is of another model: .* has the shape \[2, 48\] there and \[4, 48\]"
    ):
        train_run(folder, model, updates=3, resume=True)
    with pytest.raises(TrainingError, match="0002 is of another model: it has 'base_model"):
        train_run(folder, PretrainedModel(path=str(place / "base")), updates=3, resume=True)
    train_run(folder, PretrainedModel(path=str(place / "base"), lora_rank=2), updates=3, resume=True)


def test_a_model_in_several_files_is_a_start_and_is_gone_on_with(place: Path, tmp_path: Path) -> None:
    split = write_model(tmp_path / "split", max_shard_size="8KB")
    assert len(list(split.glob("model-*-of-*.safetensors"))) > 1
    whole = train_run(tmp_path / "whole", PretrainedModel(path=str(place / "base")))
    cut = train_run(tmp_path / "cut", PretrainedModel(path=str(split)), updates=1)
    cut = train_run(tmp_path / "cut", PretrainedModel(path=str(split)), updates=2, resume=True)
    assert hash_weights(cut.learner.weights()) == hash_weights(whole.learner.weights())
    next(split.glob("model-*-of-*.safetensors")).unlink()
    assert refusal(split).startswith(f"model.path: cannot load '{split}' (")


def test_a_checkpoint_of_a_whole_model_is_a_start_unless_it_is_damaged(place: Path, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", PretrainedModel(path=str(place / "base")), updates=1)
    path = tmp_path / "run" / "checkpoints" / "0001"
    assert hash_weights(open_model(path).named_parameters()) == hash_weights(run.learner.weights())
    flip_bit(path / "model.safetensors", 0.9)
    assert "is a damaged checkpoint (model.safetensors is not as it was written)" in refusal(path)


def test_a_model_that_lacks_weights_is_a_sentence(place: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(place / "base", tmp_path / "base"))
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert refusal(folder) == f"model.path: '{folder}' has no weights for 'model.norm.weight'; give a whole model"
