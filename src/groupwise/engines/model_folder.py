"""Weights and tokenizers from folders and hubs, as data only: no code that a folder brings is run, no pickle is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core.digests import find_change
from groupwise.core.errors import ConfigError, nearest
from groupwise.core.safe_text import quote_line

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"
"""Where adapter_config.json names the model that an adapter sits on."""
AS_DATA = {"trust_remote_code": False}


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter in a folder, as its adapter_config.json describes it."""

    folder: Path
    rank: int
    scale: float
    """What its part is multiplied by: alpha over rank, or over its root where the file says so."""
    base: str
    """The model that it sits on: an absolute path, or a name that the hub knows."""


def resolve(path: str) -> str:
    """A folder as an absolute path, which means the same wherever it is read; a name of the hub as it is."""
    folder = Path(path).expanduser()
    return str(folder.resolve()) if folder.is_dir() else path


def check_folder(path: str) -> None:
    """Refuse at once what can only be meant as a folder and is none: the hub would be asked for it for a minute."""
    folder = Path(path).expanduser()
    is_folder = path.startswith((".", "~")) or folder.is_absolute() or path.count("/") > 1
    is_folder = is_folder or ("/" in path and folder.parent.is_dir())
    if not is_folder:
        return
    if folder.is_dir():
        return _check_content(folder)
    beside = [str(each) for each in folder.parent.glob("*/")] if folder.parent.is_dir() else []
    advice = nearest(path, beside) if beside else "give a local folder or a hub name"
    raise ConfigError(f"model.path: there is no folder {path!r}; {advice}")


def find_adapter(path: str) -> Adapter | None:
    """The adapter that a folder holds; None where it holds a whole model, or is a name of the hub."""
    folder = Path(path).expanduser()
    if not (folder / ADAPTER_CONFIG).is_file():
        return None
    content = _read_json(folder / ADAPTER_CONFIG)
    rank, alpha = content.get("r"), content.get("lora_alpha")
    if content.get("peft_type") != "LORA" or type(rank) is not int or rank < 1 or not isinstance(alpha, int | float):
        raise ConfigError(f"model.path: {path} holds an adapter that is not LoRA; give a LoRA adapter or a whole model")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(
            f"model.path: {path} names an adapter but has no {ADAPTER_WEIGHTS}; give the folder of a whole adapter, "
            "with its weights as safetensors"
        )
    root = math.sqrt(rank) if content.get("use_rslora") else rank
    return Adapter(folder=folder, rank=rank, scale=alpha / root, base=_find_base(folder, content.get(BASE)))


def _find_base(folder: Path, named: object) -> str:
    """The model that an adapter sits on; a relative path is looked for where we stand and where the adapter is."""
    if not named or not isinstance(named, str):
        raise ConfigError(
            f"model.path: {folder / ADAPTER_CONFIG} does not say which model the adapter sits on; name its folder there "
            f"under {BASE!r}, or merge the adapter into its model first"
        )
    beside = folder / Path(named).expanduser()
    base = str(beside.resolve()) if not Path(named).expanduser().is_dir() and beside.is_dir() else resolve(named)
    try:
        check_folder(base)
    except ConfigError as error:
        raise ConfigError(
            f"model.path: the adapter in {folder} sits on {quote_line(named)!r}, which cannot be loaded "
            f"({str(error).removeprefix('model.path: ')}); put it there, or name where it is in {folder / ADAPTER_CONFIG}"
        ) from None
    return base


def load_model(path: str, *, dtype: Any) -> Any:
    """The causal language model of a folder or a hub name."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(path, **AS_DATA)
        _check_auto_map(path, getattr(config, "auto_map", None))
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, use_safetensors=True, **AS_DATA)
    except Exception as error:  # transformers, safetensors and the hub have no class in common
        raise _unloadable(path, error) from None
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError(f"model.path: {path!r} is an adapter on the hub; download it and give the folder")
    return model


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a folder or a hub name."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **AS_DATA)
    except Exception as error:  # the tokenizers' own library raises what has no class of its own
        raise _unloadable(path, error) from None
    _check_auto_map(path, tokenizer.init_kwargs.get("auto_map"))
    return tokenizer


def load_adapter(adapter: Adapter, model: Any) -> Any:
    """A model with an adapter on it, which goes on training."""
    from peft import PeftModel

    try:
        found = PeftModel.from_pretrained(model, str(adapter.folder), is_trainable=True)
    except Exception as error:  # peft says with several classes that shapes or names do not fit
        raise ConfigError(
            f"model.path: the adapter in {adapter.folder} does not fit its model {adapter.base!r} "
            f"({_first_line(error)}); name the model that it was trained on in {adapter.folder / ADAPTER_CONFIG}"
        ) from None
    trained = [name for name, value in found.named_parameters() if value.requires_grad]
    strange = next(
        (name for name in trained if not name.endswith(("lora_A.default.weight", "lora_B.default.weight"))), None
    )
    if strange is not None:
        raise ConfigError(
            f"model.path: the adapter in {adapter.folder} trains {strange!r} besides LoRA's own matrices, which no "
            "checkpoint here holds; merge it into its model first"
        )
    found.peft_config["default"].base_model_name_or_path = adapter.base
    return found


def _check_content(folder: Path) -> None:
    """Refuse a folder whose weights are pickled, that brings code, or whose weights are not as they were written."""
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _check_auto_map(str(folder), _read_json(folder / name).get("auto_map"))
    pickled = next(
        (path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern)), None
    )
    if pickled is not None and not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"model.path: {folder} has its weights in {pickled}, a pickle, which can run code when it is read; convert "
            "them to safetensors"
        )
    state = folder / "state.json"
    files = _read_json(state).get("files") if state.is_file() else None
    if isinstance(files, dict):  # a checkpoint of a run
        change = find_change(folder, {name: digest for name, digest in files.items() if name.endswith(".safetensors")})
        if change:
            raise ConfigError(f"model.path: {folder} is a damaged checkpoint ({change}); give another one")


def _check_auto_map(path: str, auto_map: object) -> None:
    if auto_map:
        raise ConfigError(
            f"model.path: {path!r} brings code of its own (auto_map), which is not run; give a model that transformers "
            "knows by itself, or take auto_map out of its config files where it does"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"model.path: {path} cannot be read ({_first_line(error)}); give a whole folder") from None
    if not isinstance(content, dict):
        raise ConfigError(f"model.path: {path} is not an object of settings; give a whole folder")
    return content


def _unloadable(path: str, error: Exception) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    return ConfigError(f"model.path: cannot load {path!r} ({_first_line(error)}); give a local folder or a hub name")


def _first_line(error: Exception) -> str:
    return quote_line(str(error).strip(), limit=300) or type(error).__name__
