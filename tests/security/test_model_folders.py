"""Model folders are data: code that one brings is not run, a pickle is not read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.models import PretrainedModel, TinyModel
from groupwise.system.errors import ConfigError


class Hostile:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=16, layers=1).open(words=("alpha", "bravo"), seed=0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(path: Path | str) -> str:
    with pytest.raises(ConfigError) as caught:
        PretrainedModel(path=str(path)).open(words=(), seed=0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("relative", [False, True])
def test_a_pickle_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(folder.parent / "ran")))
    monkeypatch.chdir(folder.parent)
    assert refusal("model" if relative else folder) == (
        f"model.path: {folder} has its weights in pytorch_model.bin, a pickle, which can run code when it is read; "
        "convert them to safetensors"
    )
    assert not (folder.parent / "ran").exists()


def test_a_pickle_beside_safetensors_is_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Hostile(folder.parent / "ran")))
    PretrainedModel(path=str(folder)).open(words=(), seed=0)
    assert not (folder.parent / "ran").exists()


@pytest.mark.parametrize(
    ("file", "auto_map", "changes"),
    [
        ("config.json", {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, {}),
        ("config.json", {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, {"model_type": "evil"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Tokenizer", None]}, {}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Tokenizer", None]}, {"tokenizer_class": "Evil"}),
    ],
)
def test_code_that_a_folder_brings_is_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, auto_map: Any, changes: dict[str, Any]
) -> None:
    (folder / "evil.py").write_text(f"open({str(folder.parent / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(folder)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, **changes, "auto_map": auto_map}))
    assert refusal(folder) == (
        f"model.path: '{folder}' contains code of its own (auto_map), which groupwise does not run; use a model that "
        "transformers supports, and remove auto_map from its config files"
    )
    assert not (folder.parent / "ran").exists()


def test_transformers_itself_is_told_to_run_no_code_and_to_read_no_pickle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    settings_by_class: dict[str, dict[str, Any]] = {}
    for name in ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"):
        real = getattr(transformers, name).from_pretrained

        def listen(path: str, *rest: Any, real: Any = real, name: str = name, **settings: Any) -> Any:
            settings_by_class.setdefault(name, settings)
            return real(path, *rest, **settings)

        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", listen)
    PretrainedModel(path=str(folder)).open(words=(), seed=0)
    assert {name: settings["trust_remote_code"] for name, settings in settings_by_class.items()} == {
        "AutoConfig": False,
        "AutoTokenizer": False,
        "AutoModelForCausalLM": False,
    }
    assert settings_by_class["AutoModelForCausalLM"]["use_safetensors"] is True


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_files_that_are_no_settings_are_a_sentence(folder: Path, name: str) -> None:
    (folder / name).write_text("[" * 5000)
    assert refusal(folder).startswith("model.path: ")
