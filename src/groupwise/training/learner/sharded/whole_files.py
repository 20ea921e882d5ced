"""Checkpoints of weights in shares: the same files as the local learner's, so that any number of ranks reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from groupwise.core.errors import TrainingError
from groupwise.models.quietly import save_model
from groupwise.training.learner.local_files import (
    name_optimiser_tensors,
    put_optimiser_tensors,
    read_checkpoint_tensors,
    save_optimiser,
)
from groupwise.training.learner.sharded.division import fill_outline, read_outline
from groupwise.training.learner.sharded.ranks import Ranks
from groupwise.training.learner.sharded.shards import put_together, take_share


def write_whole(folder: Path, model: PreTrainedModel, optimiser: torch.optim.Optimizer | None, ranks: Ranks) -> None:
    """Put weights together, one after the other, and let rank 0 write them; then the same with the moments.

    While rank 0 writes, the others wait in `agree`, for as long as it takes: in the moments' shares they would wait no
    longer than the learner's `timeout`.
    """
    weights = _collect(ranks, dict(model.state_dict()))
    ranks.agree(_try_to_write(folder, ranks, lambda: save_model(model, folder, state_dict=weights)))
    weights.clear()  # before the moments, which take twice their memory
    if optimiser is not None:
        moments = _collect(ranks, name_optimiser_tensors(model, optimiser))
        ranks.agree(_try_to_write(folder, ranks, lambda: save_optimiser(folder, moments)))


def write_merged(folder: Path, model: PreTrainedModel, outline: bytes, ranks: Ranks) -> None:
    """Put all weights together and let rank 0 write the model with its adapter merged into it."""
    weights = _collect(ranks, dict(model.named_parameters()))

    def write() -> None:
        whole: Any = read_outline(outline, torch.device("cpu"))
        fill_outline(whole, weights)
        save_model(whole.merge_and_unload(), folder)

    ranks.agree(_try_to_write(folder, ranks, write))


def _try_to_write(folder: Path, ranks: Ranks, write: Callable[[], None]) -> str | None:
    """Let rank 0 write something; what went wrong, in words."""
    if ranks.is_leader:
        try:
            write()
        except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
            return f"{folder} could not be written: {error}"
    return None


def load_shares(folder: Path, model: PreTrainedModel, optimiser: torch.optim.Optimizer, ranks: Ranks) -> None:
    """Let rank 0 read and compare what was stored; then give each rank its shares, one tensor after the other."""
    weights, moments, fault = dict[str, torch.Tensor](), dict[str, torch.Tensor](), None
    if ranks.is_leader:
        try:
            weights, moments = read_checkpoint_tensors(folder, model)
        except TrainingError as error:
            fault = str(error)
    ranks.agree(fault)
    own = model.state_dict()
    for name, whole in spread_tensors(ranks, weights):
        take_share(own[name], whole)
    put_optimiser_tensors(model, optimiser, dict(_share_moments(ranks, model, moments)))


def _collect(ranks: Ranks, tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors as wholes in rank 0's memory; nothing on the others, which give their shares."""
    collected = {}
    for name, value in tensors.items():
        whole = put_together(value)
        if ranks.is_leader:
            collected[name] = whole.cpu()
    return collected


def spread_tensors(ranks: Ranks, tensors: dict[str, torch.Tensor]) -> Any:
    """Each of rank 0's tensors on every rank, one at a time."""
    table = ranks.broadcast([(name, tuple(value.shape), value.dtype) for name, value in tensors.items()])
    for name, shape, dtype in table:
        whole = (
            tensors[name].to(ranks.device) if ranks.is_leader else torch.empty(shape, dtype=dtype, device=ranks.device)
        )
        with ranks.name_faults():
            dist.broadcast(whole, src=0)
        yield name, whole


def _share_moments(ranks: Ranks, model: nn.Module, moments: dict[str, torch.Tensor]) -> Any:
    parameters = dict(model.named_parameters())
    for key, whole in spread_tensors(ranks, moments):
        name, _, entry = key.rpartition("/")
        if entry == "step":
            yield key, whole.cpu()
            continue
        share = torch.zeros_like(parameters[name])
        take_share(share, whole)
        yield key, share.detach()
