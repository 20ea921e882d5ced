"""Weights and tokenizers from folders and the hub, as data: no code from a folder is run, and no pickle is read."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.store.run_folder import STATE
from groupwise.system.errors import ConfigError, find_near, list_names
from groupwise.system.files import find_change
from groupwise.system.text import quote_line

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"
"""The key of adapter_config.json with an adapter's base model."""
AS_DATA = {"trust_remote_code": False}
ADAPTER_SETTINGS = (
    "r",
    "lora_alpha",
    "use_rslora",
    "lora_dropout",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "fan_in_fan_out",
)
"""Settings of adapter_config.json that are passed to peft. Others import modules by name, or change the model."""
NOT_LOADED = (BASE, "peft_type", "task_type", "inference_mode", "auto_mapping", "revision", "peft_version")
"""Settings that do not affect the weights."""


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """A LoRA adapter in a folder, as its adapter_config.json describes it."""

    folder: Path
    rank: int
    scale: float
    """Factor of the adapter: alpha / rank, or alpha / sqrt(rank) with rsLoRA."""
    base: str
    """Its base model: an absolute path, or a name on the hub."""
    settings: Mapping[str, Any]
    """What is passed to peft."""
    others: Mapping[str, Any]
    """What is not passed: each must have peft's default value."""

    @property
    def tokenizer_path(self) -> str:
        has_tokenizer = (self.folder / "tokenizer_config.json").is_file()
        return str(self.folder) if has_tokenizer else self.base


def resolve_path(path: str) -> str:
    """Make the path of a folder absolute; a name on the hub is unchanged.

    A folder is searched beside the run file, then in the working directory: a name such as `model` may be in both.
    """
    folder = Path(make_absolute(path))
    for place in (folder, Path(path).expanduser()):
        if os.path.isdir(place):  # a name that is too long for a path is no folder, and Path.is_dir would raise
            return str(place.resolve())
    return str(folder) if _must_be_folder(path, folder) else path


ModelPath = Annotated[str, resolve_by(resolve_path)]
"""A field that holds the folder of a model, or its name on the hub."""


def check_folder(path: str, *, may_be_adapter: bool = True) -> None:
    """Fail at once if a path must be a folder and there is none: asking the hub would take a minute.

    Old names on the hub without an owner fail too: whether they load depends on the machine.
    """
    folder = Path(path).expanduser()
    if os.path.isdir(folder):
        return _check_content(folder)
    if "/" not in path:
        raise ConfigError(
            f"model.path: there is no folder {path!r} here; give a local folder, or a name of the hub with its owner, "
            "OWNER/NAME"
        )
    if not _must_be_folder(path, folder):
        return None
    models = [
        beside.name
        for beside in folder.parent.glob("*/")
        if (may_be_adapter if (beside / ADAPTER_CONFIG).is_file() else (beside / CONFIG).is_file())
    ]
    offer = "give a local folder or a hub name"
    if models:
        near = find_near(folder.name, models)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        offer = f"in {str(folder.parent)!r} there are: {list_names(sorted(models))}{hint}"
    raise ConfigError(f"model.path: there is no folder {path!r}; {offer}")


def _must_be_folder(path: str, folder: Path) -> bool:
    """Whether a path can only be a folder, because no name on the hub looks like it."""
    return path.startswith((".", "~", "/")) or path.count("/") > 1 or ("/" in path and os.path.isdir(folder.parent))


def check_reachable(path: str) -> None:
    """Ask the hub once for a model that is neither a folder nor cached; transformers would retry for a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    if os.path.isdir(Path(path).expanduser()):
        return
    with suppress(ValueError):  # not a valid name on the hub
        if isinstance(try_to_load_from_cache(path, CONFIG), str):
            return
    try:
        get_hf_file_metadata(hf_hub_url(path, CONFIG))
    except (HfHubHTTPError, OfflineModeIsEnabled):  # transformers reports these at once
        return
    except HFValidationError:
        raise ConfigError(
            f"model.path: {path!r} is no folder here, and the hub has no names like that; give a local folder, or a "
            "name of the hub, OWNER/NAME, of letters, digits, '-', '_' and '.'"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"model.path: {path!r} is no folder here, and the hub cannot be asked for it ({_read_first_line(error)}); "
            "give a local folder, or see to the connection"
        ) from None


def find_adapter(path: str) -> StoredAdapter | None:
    """The adapter in a folder; None if it has a whole model, or if the path is a name on the hub."""
    folder = Path(path).expanduser()
    if not (folder / ADAPTER_CONFIG).is_file():
        return None
    content = _read_json(folder / ADAPTER_CONFIG)
    rank: Any = content.get("r")
    alpha: Any = content.get("lora_alpha")
    is_lora = content.get("peft_type") == "LORA" and isinstance(rank, int) and isinstance(alpha, int | float)
    if not is_lora or rank < 1 or not math.isfinite(alpha):
        raise ConfigError(f"model.path: {path} holds an adapter that is not LoRA; give a LoRA adapter or a whole model")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(
            f"model.path: {path} names an adapter but has no {ADAPTER_WEIGHTS}; give the folder of a whole adapter, "
            "with its weights as safetensors"
        )
    root = math.sqrt(rank) if content.get("use_rslora") else rank
    settings = {name: content[name] for name in ADAPTER_SETTINGS if name in content}
    others = {name: value for name, value in content.items() if name not in (*ADAPTER_SETTINGS, *NOT_LOADED)}
    return StoredAdapter(
        folder=folder,
        rank=rank,
        scale=alpha / root,
        base=_find_base(folder, content.get(BASE)),
        settings=settings,
        others=others,
    )


def _find_base(folder: Path, named: object) -> str:
    """The base model of an adapter; a relative path is searched in the working directory and beside the adapter."""
    if not named or not isinstance(named, str):
        raise ConfigError(
            f"model.path: {folder / ADAPTER_CONFIG} does not say which model the adapter sits on; name its folder "
            f"there under {BASE!r}, or merge the adapter into its model first"
        )
    beside = folder / Path(named).expanduser()
    base = str(beside.resolve()) if not Path(named).expanduser().is_dir() and beside.is_dir() else resolve_path(named)
    try:
        check_folder(base, may_be_adapter=False)
        if (Path(base) / ADAPTER_CONFIG).is_file():
            raise ConfigError("it is an adapter itself")
    except ConfigError as error:
        reason, place = str(error).removeprefix("model.path: "), folder / ADAPTER_CONFIG
        raise ConfigError(
            f"model.path: the adapter in {folder} sits on {quote_line(named)!r}, which cannot be loaded ({reason}); "
            f"put it there, or name where it is in {place}"
        ) from None
    return base


def load_model(path: str, *, dtype: Any) -> Any:
    """Load the causal language model of a folder or a hub name; no weight may be missing."""
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained  # its annotation lacks the second result
    read_config(path)
    try:
        with quietly():
            model, loading_info = read(path, dtype=dtype, use_safetensors=True, output_loading_info=True, **AS_DATA)
    except Exception as error:  # transformers, safetensors and the hub have no common class
        raise explain_unloadable(path, error) from None
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError(f"model.path: {path!r} brings an adapter; give the folder of a whole model, or the adapter's")
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise ConfigError(f"model.path: {path!r} has no weights for {missing[0]!r}; give a whole model")
    return model


def load_tokenizer(path: str) -> Any:
    from transformers import AutoTokenizer

    check_reachable(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **AS_DATA)
    except Exception as error:  # the tokenizers library raises plain exceptions
        raise explain_unloadable(path, error) from None
    _check_auto_map(path, tokenizer.init_kwargs.get("auto_map"))
    return tokenizer


def read_config(path: str) -> Any:
    from transformers import AutoConfig

    check_reachable(path)
    try:
        config = AutoConfig.from_pretrained(path, **AS_DATA)
    except Exception as error:
        raise explain_unloadable(path, error) from None
    _check_auto_map(path, getattr(config, "auto_map", None))
    return config


def name_as_stored(name: str) -> str:
    """The name of an adapter's parameter in files; in the model, peft adds the adapter's name, `default`."""
    return name.replace(".default.", ".")


def load_adapter(adapter: StoredAdapter, model: Any) -> Any:
    from peft import LoraConfig, PeftModel
    from safetensors import safe_open

    place, usual = adapter.folder / ADAPTER_CONFIG, asdict(LoraConfig())
    for name, value in adapter.others.items():
        if value and value != usual.get(name):
            raise ConfigError(
                f"model.path: {place} sets {quote_line(name)!r}, which is more than plain LoRA; merge the adapter into "
                "its model first"
            )
    try:
        lora = LoraConfig(**adapter.settings, base_model_name_or_path=adapter.base)
        with quietly():
            adapted = PeftModel.from_pretrained(model, str(adapter.folder), config=lora, is_trainable=True)
        with safe_open(adapter.folder / ADAPTER_WEIGHTS, framework="pt") as stored:
            unlike = set(stored.keys()) ^ {
                name_as_stored(name) for name, value in adapted.named_parameters() if value.requires_grad
            }
        if unlike:
            raise ValueError(f"only one of the two has {min(unlike)!r}")
    except Exception as error:  # peft raises several classes if shapes or names do not fit
        raise ConfigError(
            f"model.path: the adapter in {adapter.folder} does not fit its model {adapter.base!r} "
            f"({_read_first_line(error)}); name the model that it was trained on in {place}"
        ) from None
    return adapted


def _check_content(folder: Path) -> None:
    """Fail if a folder has pickled weights or code of its own, or if a checkpoint's weights were changed."""
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
    state = folder / STATE
    files = _read_json(state).get("files") if state.is_file() else None
    if isinstance(files, dict):  # a checkpoint of a run
        change = find_change(folder, {name: digest for name, digest in files.items() if name.endswith(".safetensors")})
        if change:
            raise ConfigError(f"model.path: {folder} is a damaged checkpoint ({change}); give another one")


def _check_auto_map(path: str, auto_map: object) -> None:
    if auto_map:
        raise ConfigError(
            f"model.path: {path!r} contains code of its own (auto_map), which groupwise does not run; use a model that "
            "transformers supports, and remove auto_map from its config files"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"model.path: {path} cannot be read ({_read_first_line(error)}); give a whole folder"
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(f"model.path: {path} is not an object of settings; give a whole folder")
    return content


def explain_unloadable(path: str, error: Exception) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    return ConfigError(
        f"model.path: cannot load {path!r} ({_read_first_line(error)}); give a local folder or a hub name"
    )


def _read_first_line(error: Exception) -> str:
    return quote_line(str(error).strip(), limit=300) or type(error).__name__


# Loading and saving without the progress bars and the warnings of transformers and peft.

NOT_OURS = (
    "`is_gradient_checkpointing` is deprecated",  # peft 0.21 reads it; transformers renamed it in 5.23
    "Cannot disable progress bars",  # HF_HUB_DISABLE_PROGRESS_BARS=0 keeps those of the hub
)
"""Beginnings of warnings that a user of groupwise cannot fix."""


@contextmanager
def quietly() -> Iterator[None]:
    """Switch progress bars off for a while; afterwards the user's setting is restored."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public only by its documentation
        are_progress_bars_disabled,
        disable_progress_bars,
    )
    from transformers.utils import logging

    had_bars, hub_had_none = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    with warnings.catch_warnings():
        for beginning in NOT_OURS:
            warnings.filterwarnings("ignore", message=beginning)
        if had_bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            if had_bars:
                logging.enable_progress_bar()  # those of the hub too
                if hub_had_none:
                    disable_progress_bars()


def save_model(model: Any, folder: Path, **options: Any) -> None:
    with quietly():
        model.save_pretrained(folder, **options)
