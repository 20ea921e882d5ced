"""Servers that a run starts for itself: the folder that they load the run's model from, and their commands."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from groupwise.core.errors import EngineFault
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.model_source import ModelSource
from groupwise.engines.remote.processes import SERVED_NAME, Command, MakeCommand, start_servers
from groupwise.engines.remote.replica import StartedServer
from groupwise.engines.remote.server.command import groupwise_command
from groupwise.engines.vllm.command import vllm_command
from groupwise.launch.launched_on import read_launched_on
from groupwise.models.folder import find_adapter
from groupwise.models.quietly import save_model

MODEL = "model"
"""The folder of a model that had none, in the place for what an engine writes."""


def start_own_servers(
    source: ModelSource, *, replicas: int, gpus: Sequence[str], start_timeout: float, options: Mapping[str, object]
) -> list[StartedServer]:
    """Start servers of our own for a run's model, on its device, in its types, with as many threads.

    Args:
        source: the run's model.
        replicas: how many.
        gpus: what each sees of the machine's GPUs, one entry a server; empty = all.
        start_timeout: seconds until all must be healthy.
        options: further options of the command, by name.
    """
    import torch

    place = _find_place(source)
    model = str(_find_own_model(source, place))
    weight = next(source.model.parameters())
    settings: dict[str, object] = {
        "name": SERVED_NAME,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": "cuda" if gpus else str(source.device or weight.device),
        # Sums are split among threads: another number of them gives other bits.
        "threads": torch.get_num_threads(),
        **options,
    }

    def make_command(port: int) -> Command:
        return groupwise_command(model, port=port, options=settings)

    return _start(make_command, source, place, replicas=replicas, start_timeout=start_timeout, gpus=gpus)


def start_vllm_servers(  # noqa: PLR0913 - what servers are started with
    source: ModelSource,
    *,
    replicas: int,
    gpus: Sequence[str],
    start_timeout: float,
    precision: str,
    max_model_len: int | None,
    python: str,
    gpu_memory: float | None,
    extra: Sequence[str],
) -> list[StartedServer]:
    """Start vLLM servers for a run's model; one with an adapter is served without, and the adapter comes after.

    Args:
        source: the run's model.
        replicas: how many.
        gpus: what each sees of the machine's GPUs, one entry a server; empty = all.
        start_timeout: seconds until all must be healthy.
        precision: what they compute in.
        max_model_len: tokens that a prompt and its response may have together; None = what the model allows.
        python: the interpreter of an environment with vLLM.
        gpu_memory: share of a GPU's memory that each may take; None = on the CPU.
        extra: further flags of vLLM.
    """
    place = _find_place(source)
    model, rank = _find_whole_model(source, place)

    def make_command(port: int) -> Command:
        return vllm_command(
            model,
            port=port,
            served_model_name=SERVED_NAME,
            dtype=precision,
            max_model_len=max_model_len,
            python=python,
            lora_rank=rank,
            gpu_memory=gpu_memory,
            extra=extra,
        )

    return _start(make_command, source, place, replicas=replicas, start_timeout=start_timeout, gpus=gpus)


def _start(
    make_command: MakeCommand,
    source: ModelSource,
    place: Path,
    *,
    replicas: int,
    start_timeout: float,
    gpus: Sequence[str],
) -> list[StartedServer]:
    """Start servers here, or on the cluster that the run was launched on; a temporary place goes with them."""
    cluster = read_launched_on()
    start: Callable[..., Sequence[StartedServer]] = start_servers
    if cluster is not None:
        from groupwise.engines.remote.placed_servers import start_placed_servers

        start = partial(start_placed_servers, cluster=cluster)
    servers = start(make_command, replicas=replicas, folder=place, start_timeout=start_timeout, gpus=gpus)
    if source.folder is None:
        weakref.finalize(servers[0], shutil.rmtree, place, ignore_errors=True)
    return list(servers)


def _find_place(source: ModelSource) -> Path:
    """Where servers' files go: the run's own place, or a temporary one that is gone with the servers."""
    return source.folder or Path(mkdtemp(prefix="groupwise-servers-"))


def _find_own_model(source: ModelSource, place: Path) -> Path | str:
    """What a server of ours loads: the run's folder or hub name, or else the model, written here."""
    is_adapted = hasattr(source.model, "peft_config")
    if source.path is not None and (find_adapter(source.path) is not None) == is_adapted:
        return source.path
    return _write_model(source, source.model, place)


def _find_whole_model(source: ModelSource, place: Path) -> tuple[Path, int]:
    """The folder of the whole model that vLLM loads, and the rank of the adapter that will come; 0 = none."""
    settings = getattr(source.model, "peft_config", {}).get("default")
    rank = 0 if settings is None else int(settings.r)
    named = source.path if settings is None else settings.base_model_name_or_path
    if named and Path(named).expanduser().is_dir():
        return Path(named).expanduser().resolve(), rank
    if named:
        from transformers.utils.hub import cached_file

        config = cached_file(named, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
        if config is not None:
            return Path(config).parent, rank
    if settings is not None:
        raise EngineFault(
            f"the model {quote_line(str(named))!r} that the run's adapter sits on is no folder; give model.path a "
            "local folder"
        )
    return _write_model(source, source.model, place), rank


def _write_model(source: ModelSource, model: Any, place: Path) -> Path:
    """Write a model and its tokenizer for servers to load."""
    folder = (place / MODEL).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(model, folder)
        source.tokenizer.save_pretrained(folder)
    except Exception as error:  # transformers and safetensors have no class in common for a disk that is full
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
        raise EngineFault(
            f"the model could not be written to {folder} for servers ({reason}); free some space"
        ) from None
    return folder
