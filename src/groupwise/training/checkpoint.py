"""Checkpoints: a folder that holds everything a run needs to go on, written whole or not at all. No pickle anywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from groupwise.core.errors import TrainingError
from groupwise.training.learner import Learner

LATEST = "latest"
ADAPTER = "adapter_model.safetensors"

logging.disable_progress_bar()  # a bar per checkpoint would break up the run's own display


def save_checkpoint(
    folder: Path, number: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> Path:
    """Write checkpoint `number`: model and tokenizer as Hugging Face reads them, optimiser, and the run's own state.

    It is written beside its place and moved there when complete; `latest` then names it. A write that fails (a full
    disk) leaves the earlier checkpoints untouched.
    """
    target, draft = folder / f"{number:04d}", folder / f".{number:04d}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        learner.model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        save_file(_optimiser_tensors(learner), draft / "optimiser.safetensors")
        content = {**state, "update": number, "learner_steps": learner.steps}
        (draft / "state.json").write_text(json.dumps(content, indent=2))
        for path in draft.iterdir():
            _flush(path)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        _point(folder, target.name)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        shutil.rmtree(draft, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"checkpoint {target} could not be written ({reason}); the earlier ones are untouched. "
            "Free some space, then go on with --resume"
        ) from error
    return target


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Load weights and optimiser into a learner; the run's own state is returned."""
    try:
        weights = _stored_weights(path)
        tensors = load_file(path / "optimiser.safetensors")
        state: dict[str, Any] = json.loads((path / "state.json").read_text())
        _load_weights(learner.model, weights)
        _load_optimiser(learner, tensors)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise TrainingError(f"checkpoint {path} is damaged ({error}); {_advice(path)}") from error
    learner.steps = int(state["learner_steps"])
    return state


def checkpoint_weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint by the model's own names; of a model with an adapter, the adapter's."""
    try:
        return _stored_weights(path)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"checkpoint {path} is damaged ({error}); {_advice(path)}") from error


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that `latest` names; None where there is none yet."""
    pointer = folder / LATEST
    if not pointer.exists():
        return None
    found = folder / pointer.read_text().strip()
    if not found.is_dir():
        raise TrainingError(f"{pointer} names {found.name}, which is not there; {_advice(found)}")
    return found


def _advice(path: Path) -> str:
    others = sorted(other.name for other in path.parent.glob("[0-9]*") if other.is_dir() and other.name < path.name)
    if not others:
        return "there is no earlier one: start the run again"
    return f"the one before it is {others[-1]}: write `{others[-1]}` into {path.parent / LATEST} and resume"


def _optimiser_tensors(learner: Learner) -> dict[str, torch.Tensor]:
    names = [name for name, value in learner.model.named_parameters() if value.requires_grad]
    state = learner.optimiser.state_dict()["state"]
    return {
        f"{names[number]}/{key}": value if isinstance(value, torch.Tensor) else torch.tensor(value)
        for number, entries in state.items()
        for key, value in entries.items()
    }


def _load_optimiser(learner: Learner, tensors: Mapping[str, torch.Tensor]) -> None:
    names = [name for name, value in learner.model.named_parameters() if value.requires_grad]
    place = {name: number for number, name in enumerate(names)}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        state.setdefault(place[name], {})[entry] = value
    content = learner.optimiser.state_dict()
    learner.optimiser.load_state_dict({**content, "state": state})


def _stored_weights(path: Path) -> dict[str, torch.Tensor]:
    if not (path / ADAPTER).exists():
        return load_file(path / "model.safetensors")
    # On the disk, peft leaves out the name that an adapter has in the model.
    stored = load_file(path / ADAPTER)
    return {re.sub(r"\.(lora_[AB])\.weight$", r".\1.default.weight", name): value for name, value in stored.items()}


def _load_weights(model: PreTrainedModel, weights: Mapping[str, torch.Tensor]) -> None:
    # Tied weights are stored once; whatever else is missing or unknown is a different model.
    missing, unknown = model.load_state_dict(weights, strict=False)
    lacking = set(missing) - set(getattr(model, "_tied_weights_keys", None) or {})
    if hasattr(model, "peft_config"):  # the model that an adapter sits on is not in the checkpoint
        lacking &= {name for name, value in model.named_parameters() if value.requires_grad}
    if unknown or lacking:
        raise ValueError(f"weights of another model: missing {sorted(lacking)[:3]}, unknown {unknown[:3]}")


def _flush(path: Path) -> None:
    if path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _point(folder: Path, name: str) -> None:
    draft = folder / f".{LATEST}.tmp"
    draft.write_text(name + "\n")
    _flush(draft)
    draft.replace(folder / LATEST)
