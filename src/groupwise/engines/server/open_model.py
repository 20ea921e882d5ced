"""Loading what a server serves: a model's folder, an adapter's, or a name of the hub."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import torch

from groupwise.engines.engine import Engine
from groupwise.engines.open_engine import open_engine
from groupwise.engines.server.routes import ModelCard, ServedModel
from groupwise.models import folder as folders
from groupwise.models.causal_lm import choose_device, read_free_memory
from groupwise.models.outline import plan_model
from groupwise.models.pretrained import ALL_LINEAR, PretrainedModel
from groupwise.system.memory import check_fits


def open_served_model(options: argparse.Namespace) -> ServedModel:
    """Load a model as the options of the command say, and open an engine over it."""
    device = choose_device(options.device)
    folders.check_folder(options.model)
    _check_memory(options, device)
    model = _load(options).to(device)
    for weight in model.parameters():
        # Loaded weights lie in the mapped file, wherever that puts them; where a number lies can decide its last bit,
        # and a run's own engine has copies.
        weight.data = weight.data.clone()

    def open_in_thread() -> Engine:
        if options.threads:
            torch.set_num_threads(options.threads)
        return open_engine(
            model,
            precision=options.precision,
            decoding=options.decoding,
            rows=options.rows,
            memory=options.memory,
            compile_parts=options.compile_parts,
            batch_tokens=options.batch_tokens,
        )

    def list_parameters() -> Mapping[str, torch.Tensor]:
        return dict(model.named_parameters())

    card = ModelCard(
        name=options.name,
        root=folders.resolve_path(options.model),
        precision=options.precision,
        dtype=options.precision if options.precision == "bfloat16" else options.dtype,
        vocabulary=model.get_input_embeddings().weight.shape[0],
    )
    return ServedModel(open_in_thread, list_parameters, card)


def _check_memory(options: argparse.Namespace, device: torch.device) -> None:
    """Refuse a model whose weights do not fit on a device, before any is read."""
    plan = plan_model(PretrainedModel(path=options.model, dtype=options.dtype), words=())
    assert plan is not None
    size = sum(value.nbytes for value in plan.sketch().parameters())
    check_fits(
        {"weights": size}, read_free_memory(device), remedy="take a smaller model, or a machine with more memory"
    )


def _load(options: argparse.Namespace) -> Any:
    """The model of a folder or a hub name; with an adapter where the folder holds one, or weights of one will come."""
    dtype = getattr(torch, options.dtype)
    adapter = folders.find_adapter(options.model)
    if adapter is not None:
        return folders.load_adapter(adapter, folders.load_model(adapter.base, dtype=dtype))
    if options.lora_rank:
        adapted = PretrainedModel(
            path=options.model,
            dtype=options.dtype,
            lora_rank=options.lora_rank,
            lora_scale=options.lora_scale,
            lora_targets=tuple(options.lora_targets.split(",")) if options.lora_targets else ALL_LINEAR,
        )
        return adapted.open(words=(), seed=0)[0]
    return folders.load_model(folders.resolve_path(options.model), dtype=dtype)
