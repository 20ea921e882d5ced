"""The local learner's files in a checkpoint: the model in the Hugging Face layout and optimizer state. No pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from groupwise.learner.optimizers import plan_state
from groupwise.models.folder import ADAPTER_WEIGHTS
from groupwise.store.checkpoint_files import check_files, damage_error
from groupwise.store.run_folder import CONFIG
from groupwise.system.errors import TrainingError
from groupwise.system.text import quote_line

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Lists which file each weight is in, if a model is too large for one file."""
OPTIMIZER = "optimizer.safetensors"
UNREADABLE = (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError)


def save_optimizer(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    save_file(dict(tensors), folder / OPTIMIZER)


def read_checkpoint_tensors(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer | None = None
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Read weights and optimizer state by name, and compare them with the model and the optimizer; None = torch's
    AdamW."""
    try:
        weights, tensors = _read_stored_weights(folder), load_file(folder / OPTIMIZER)
    except UNREADABLE as error:
        raise damage_error(folder, str(error)) from error
    other_model, other_optimizer = _find_other_moment(model, tensors, optimizer)
    for difference, kind, section in (
        (_find_other_weight(model, weights) or other_model, "model", "model"),
        (other_optimizer, "optimizer", "training.learner"),
    ):
        if difference:
            raise TrainingError(
                f"checkpoint {folder} is of another {kind}: {difference}; use the section [{section}] of the run's "
                f"{CONFIG}, or start a new run in another folder"
            )
    return weights, tensors


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a checkpoint by the model's names, and compare each file with its digest.

    If the model has an adapter, only the adapter's weights. Other files of the checkpoint may be missing.
    """
    try:
        if (path / INDEX).exists():
            check_files(path, [INDEX])  # before it is read
        check_files(path, _list_weight_files(path))
        return _read_stored_weights(path)
    except TrainingError:
        raise
    except UNREADABLE as error:
        raise damage_error(path, str(error)) from error


def name_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    names = [*list_trained(model)]
    state = optimizer.state_dict()["state"]
    return {
        f"{names[number]}/{key}": value if isinstance(value, torch.Tensor) else torch.tensor(value)
        for number, entries in state.items()
        for key, value in entries.items()
    }


def put_optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]
) -> None:
    place = {name: number for number, name in enumerate(list_trained(model))}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        state.setdefault(place[name], {})[entry] = value
    content = optimizer.state_dict()
    optimizer.load_state_dict({**content, "state": state})


def _list_weight_files(path: Path) -> list[str]:
    if (path / ADAPTER_WEIGHTS).exists():
        return [ADAPTER_WEIGHTS]
    if not (path / INDEX).exists():
        return [MODEL]
    shards = sorted(set(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    strange = next((name for name in shards if Path(name).name != name), None)
    if strange is not None:
        raise ValueError(f"{INDEX} names {strange!r}, which is not a file in the folder")
    return [INDEX, *shards]


def _read_stored_weights(path: Path) -> dict[str, torch.Tensor]:
    files = _list_weight_files(path)
    if files == [ADAPTER_WEIGHTS]:
        # In files, peft leaves out the name of the adapter.
        stored = load_file(path / ADAPTER_WEIGHTS)
        return {re.sub(r"\.(lora_[AB])\.weight$", r".\1.default.weight", name): value for name, value in stored.items()}
    return {name: value for file in files if file != INDEX for name, value in load_file(path / file).items()}


def _find_other_weight(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> str | None:
    """The first difference between the weights of a checkpoint and of a model, as text; None if there is none."""
    own = model.state_dict()
    for name, value in weights.items():
        if name not in own:
            return f"it has {quote_line(name)!r}, which this model does not have"
        if own[name].shape != value.shape:
            return f"{name!r} has the shape {list(value.shape)} there and {list(own[name].shape)} in this model"
        if own[name].dtype != value.dtype:
            kinds = [str(dtype).removeprefix("torch.") for dtype in (value.dtype, own[name].dtype)]
            return f"{name!r} is {kinds[0]} there and {kinds[1]} in this model"
    # Tied weights are stored once; the base model of an adapter is not in the checkpoint.
    needed = {name for name, value in model.named_parameters() if value.requires_grad}
    if not hasattr(model, "peft_config"):
        needed = own.keys() - set(getattr(model, "_tied_weights_keys", None) or {})
    lacking = sorted(needed - weights.keys())
    return f"it has no {lacking[0]!r}" if lacking else None


def _find_other_moment(
    model: nn.Module, tensors: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer | None
) -> tuple[str | None, str | None]:
    """The first difference of a stored optimizer state, as text: in the model, or else in the kind of optimizer."""
    trained, stored = list_trained(model), dict[str, set[str]]()
    for key, value in tensors.items():
        name, _, entry = key.rpartition("/")
        if name not in trained:
            return f"its optimizer trained {quote_line(name)!r}, which does not train here", None
        plan = plan_state(optimizer, trained[name])
        if entry in plan and plan[entry][0] != value.shape:
            return f"its optimizer holds {name!r} with the shape {list(value.shape)}", None
        stored.setdefault(name, set()).add(entry)
    for name, entries in stored.items():
        planned = plan_state(optimizer, trained[name]).keys()
        strange, lacking = sorted(entries - planned), sorted(planned - entries)
        if strange:
            return None, f"its optimizer holds {quote_line(strange[0])!r}, which this run's does not"
        if lacking:
            return None, f"its optimizer holds no {lacking[0]!r} of {name!r}, which this run's does"
    return None, None


def list_trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}
