"""Checkpoints: a folder that holds everything a run needs to go on, written whole or not at all. No pickle anywhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from groupwise.core.errors import TrainingError
from groupwise.core.safe_text import quote_line
from groupwise.training.checkpoint_state import check_files, damaged, point_to, read_state, write_state
from groupwise.training.learner import Learner

ADAPTER = "adapter_model.safetensors"
MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Which of several files a weight is in, where a model is too large for one."""
OPTIMISER = "optimiser.safetensors"
UNREADABLE = (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError)
"""What reading a file raises that is not what its name says."""

logging.disable_progress_bar()  # a bar per checkpoint would break up the run's own display


def save_checkpoint(
    folder: Path, number: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> Path:
    """Write checkpoint `number`: model and tokenizer as Hugging Face reads them, optimiser, and the run's own state.

    It is written beside its place, with the digest of every file, and moved there when complete; `latest` then names
    it. A write that fails (a full disk) leaves the earlier checkpoints untouched.
    """
    target, draft = folder / f"{number:04d}", folder / f".{number:04d}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        learner.model.save_pretrained(draft)
        save_tokenizer(tokenizer, draft)
        save_file(_optimiser_tensors(learner), draft / OPTIMISER)
        write_state(draft, {**state, "update": number, "learner_steps": learner.steps})
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        point_to(folder, target.name)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        shutil.rmtree(draft, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"checkpoint {target} could not be written ({reason}); the earlier ones are untouched. "
            "Free some space, then go on with --resume"
        ) from error
    return target


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer; OSError where the disk does not take it."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # what the tokenizers' own library makes of a full disk has no class of its own
        raise OSError(str(error)) from error


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Load weights and optimiser into a learner; the run's own state is returned.

    Every file is compared with its digest, and every weight with the learner's, before anything is loaded.
    """
    state = read_state(path)
    try:
        unknown = sorted(set(_weight_files(path)) - state["files"].keys())
        if unknown:  # a file that was added would be taken for the weights
            raise ValueError(f"{unknown[0]} was not written with it")
        weights, tensors = _stored_weights(path), load_file(path / OPTIMISER)
    except UNREADABLE as error:
        raise damaged(path, str(error)) from error
    difference = _find_other_weight(learner.model, weights) or _find_other_moment(learner.model, tensors)
    if difference:
        raise TrainingError(
            f"checkpoint {path} is of another model: {difference}; give the section [model] that the run began with, "
            "which its config.toml has, or start a new run in another folder"
        )
    learner.model.load_state_dict(weights, strict=False)
    _load_optimiser(learner, tensors)
    learner.steps = int(state["learner_steps"])
    return state


def checkpoint_weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint by the model's own names; of a model with an adapter, the adapter's."""
    try:
        if (path / INDEX).exists():
            check_files(path, [INDEX])  # before it is asked which files there are
        check_files(path, _weight_files(path))
        return _stored_weights(path)
    except TrainingError:
        raise
    except UNREADABLE as error:
        raise damaged(path, str(error)) from error


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


def _weight_files(path: Path) -> list[str]:
    """The files that hold the weights, and the index of them where there are several."""
    if (path / ADAPTER).exists():
        return [ADAPTER]
    if not (path / INDEX).exists():
        return [MODEL]
    return [INDEX, *_shards(path)]


def _shards(path: Path) -> list[str]:
    found = sorted(set(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    strange = next((name for name in found if Path(name).name != name), None)
    if strange is not None:
        raise ValueError(f"{INDEX} names {strange!r}, which is no file of the folder")
    return found


def _stored_weights(path: Path) -> dict[str, torch.Tensor]:
    files = _weight_files(path)
    if files == [ADAPTER]:
        # On the disk, peft leaves out the name that an adapter has in the model.
        stored = load_file(path / ADAPTER)
        return {re.sub(r"\.(lora_[AB])\.weight$", r".\1.default.weight", name): value for name, value in stored.items()}
    return {name: value for file in files if file != INDEX for name, value in load_file(path / file).items()}


def _find_other_weight(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> str | None:
    """The first weight in which a checkpoint and a model differ, in words; None where they fit."""
    own = model.state_dict()
    for name, value in weights.items():
        if name not in own:
            return f"it has {quote_line(name)!r}, which this model has not"
        if own[name].shape != value.shape:
            return f"{name!r} has the shape {list(value.shape)} there and {list(own[name].shape)} in this model"
    # Tied weights are stored once; the model that an adapter sits on is not in the checkpoint.
    needed = {name for name, value in model.named_parameters() if value.requires_grad}
    if not hasattr(model, "peft_config"):
        needed = own.keys() - set(getattr(model, "_tied_weights_keys", None) or {})
    lacking = sorted(needed - weights.keys())
    return f"it has no {lacking[0]!r}" if lacking else None


def _find_other_moment(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The first entry of a stored optimiser that this one cannot go on with, in words."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        if name not in trained:
            return f"its optimiser trained {quote_line(name)!r}, which does not train here"
        if entry not in ("step", "exp_avg", "exp_avg_sq"):
            return f"its optimiser remembers {quote_line(entry)!r}, which AdamW does not"
        if entry != "step" and trained[name].shape != value.shape:
            return f"its optimiser remembers {name!r} with the shape {list(value.shape)}"
    return None
