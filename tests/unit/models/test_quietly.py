"""What transformers and peft print while a model is loaded or saved does not reach the user, whose settings stay."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import check_trainable
from groupwise.models import PretrainedModel, TinyModel
from groupwise.models.folder import find_adapter, load_adapter, load_model, save_model
from groupwise.models.forward import Forward
from groupwise.system.errors import ConfigError
from tests.fresh_interpreter import fresh


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=16, layers=1).open(words=("alpha", "bravo"), seed=0)
    save_model(model, tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def bars() -> Iterator[None]:
    """Bars of transformers and of the hub, switched on by the user."""
    was_on, hub_was_off = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    logging.enable_progress_bar()
    yield
    (logging.enable_progress_bar if was_on else logging.disable_progress_bar)()
    if hub_was_off:
        disable_progress_bars()


def open_adapted(folder: Path) -> Any:
    return PretrainedModel(path=str(folder), lora_rank=2).open(words=(), seed=0)[0]


def load_saved_adapter(folder: Path) -> Any:
    adapter = find_adapter(str(folder))
    assert adapter is not None
    return load_adapter(adapter, load_model(adapter.base, dtype=torch.float32))


@pytest.mark.usefixtures("bars")
def test_loading_and_saving_show_no_bars(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    adapted = open_adapted(folder)
    save_model(adapted, folder.parent / "adapter")
    merged = load_saved_adapter(folder.parent / "adapter").merge_and_unload()
    save_model(merged, folder.parent / "merged", max_shard_size="2KB")
    assert len([*(folder.parent / "merged").glob("*.safetensors")]) > 1
    assert capfd.readouterr().err == ""
    AutoModelForCausalLM.from_pretrained(folder)
    assert "Loading weights" in capfd.readouterr().err, "transformers would show one"


@pytest.mark.usefixtures("bars")
def test_the_users_bars_are_on_again_afterwards_also_after_an_error(folder: Path) -> None:
    load_model(str(folder), dtype=torch.float32)
    assert (logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == (True, False)
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError):
        load_model(str(folder), dtype=torch.float32)
    assert (logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == (True, False)


@pytest.mark.usefixtures("bars")
@pytest.mark.parametrize("switch", ["transformers", "hub"])
def test_what_the_user_switched_off_stays_off(folder: Path, switch: str) -> None:
    (logging.disable_progress_bar if switch == "transformers" else disable_progress_bars)()
    before = logging.is_progress_bar_enabled()
    load_model(str(folder), dtype=torch.float32)
    assert (logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == (before, True)


@pytest.mark.more
def test_importing_the_trainer_changes_no_setting() -> None:
    lines = (
        "from transformers.utils import logging",
        "logging.enable_progress_bar()",
        "import groupwise.learner.local_files",
        "print(logging.is_progress_bar_enabled())",
    )
    assert fresh("\n".join(lines)) == "True\n"


@pytest.fixture
def _renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of transformers 5.23, which warns of the old ones; peft 0.21 still reads one of those."""
    new = getattr(PreTrainedModel, "activation_checkpointing_enable", None)
    enable = new or PreTrainedModel.gradient_checkpointing_enable

    def warn(self: Any, *_: Any) -> Any:
        warnings.warn(
            "`is_gradient_checkpointing` is deprecated and will be removed in v6.", FutureWarning, stacklevel=1
        )
        return any(getattr(module, "gradient_checkpointing", False) for module in self.modules())

    def warn_and_enable(self: Any, *arguments: Any) -> None:
        warnings.warn("`gradient_checkpointing_enable` is deprecated", FutureWarning, stacklevel=1)

    monkeypatch.setattr(PreTrainedModel, "is_gradient_checkpointing", property(warn))
    monkeypatch.setattr(PreTrainedModel, "gradient_checkpointing_enable", warn_and_enable)
    monkeypatch.setattr(
        PreTrainedModel, "activation_checkpointing_enable", lambda self, options: enable(self, options), raising=False
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("_renamed")
def test_names_that_transformers_gave_up_bring_no_warning(folder: Path) -> None:
    adapted = open_adapted(folder)
    save_model(adapted, folder.parent / "adapter")
    assert sum(value.requires_grad for value in load_saved_adapter(folder.parent / "adapter").parameters()) == 14
    model = load_model(str(folder), dtype=torch.float32)
    check_trainable(model, LearnerConfig())
    Forward(model, LearnerConfig(checkpoint_layers=True))
    assert [layer.gradient_checkpointing for layer in model.model.layers] == [True]
    with pytest.raises(ConfigError, match="gradient checkpointing is on for the whole model"):
        check_trainable(model, LearnerConfig())
