"""Dividing a model: rank 0 has it whole, every rank gets its share, and nobody else ever holds more than a layer of it.

Rank 0 takes the weights out of its model and sends what is left, an *outline*: modules, buffers, and weights that have
a shape and no numbers. Then layer by layer the weights go from rank 0's memory to all devices, where each rank keeps
its part. So a device holds its shares and one layer, and memory the model once, whatever the number of ranks.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import PreTrainedModel

from groupwise.core.errors import ConfigError
from groupwise.models.forward import find_layers
from groupwise.training.learner.sharded.ranks import Ranks

Result = TypeVar("Result")
ENTRY = "run_with_whole_weights"
"""Name under which FSDP knows our way into a model, which runs its body and its head apart."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """A model without its weights, as every rank has it before it is divided."""

    model: PreTrainedModel
    """The modules: their weights have a shape and no numbers."""
    weights: dict[str, torch.Tensor]
    """On rank 0 the weights, by name; nothing on the others."""
    written: bytes
    """On rank 0 the outline once more, as `read_outline` reads it."""


def share_outline(model: PreTrainedModel | None, ranks: Ranks) -> Outline:
    """Send the outline of rank 0's model to all ranks; rank 0's own becomes one. The others give none."""
    if not ranks.is_leader:
        return Outline(model=read_outline(ranks.broadcast(None), ranks.device), weights={}, written=b"")
    assert model is not None, "rank 0 has opened the model"
    weights = take_out_weights(model)
    written = write_outline(model)
    ranks.broadcast(written)
    return Outline(model=model, weights=weights, written=written)


def take_out_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Take the weights out of a model, by name; it keeps their shapes and types."""
    for name, value in model.named_parameters():
        if type(value) is not nn.Parameter or not value.is_floating_point():
            raise ConfigError(
                f"training.learner: {name} is a {type(value).__name__} of {str(value.dtype).removeprefix('torch.')}, "
                'which cannot be divided; load the model unquantised, or take the local learner (kind = "local")'
            )
    weights = {name: value.detach() for name, value in model.named_parameters()}
    _replace_weights(model, lambda name, value: value.detach().to("meta"), is_due=lambda value: not value.is_meta)
    return weights


def write_outline(model: nn.Module) -> bytes:
    """An outline as bytes, for processes of this run: it is a pickle."""
    buffer = io.BytesIO()
    try:
        torch.save(model, buffer)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"training.learner: {type(model).__name__} cannot be sent to the other ranks ({reason}); take the local "
            'learner (kind = "local"), or a model whose classes can be imported by their names'
        ) from None
    return buffer.getvalue()


def read_outline(content: bytes, device: torch.device) -> PreTrainedModel:
    """The outline that `write_outline` wrote, its buffers on a device."""
    # From our own processes, never from a file.
    outline: PreTrainedModel = torch.load(io.BytesIO(content), map_location=device, weights_only=False)
    return outline


def divide(model: PreTrainedModel, weights: dict[str, torch.Tensor], ranks: Ranks, *, keeps_whole: bool) -> None:
    """Give this rank its share of an outline's weights.

    Args:
        model: the outline, the same on every rank.
        weights: rank 0's, by name, which are let go one by one; nothing on the others.
        ranks: all of them.
        keeps_whole: whether a layer stays together after its forward pass.
    """
    for module in model.modules():
        module._buffers.update(
            {key: value.to(ranks.device) for key, value in module._buffers.items() if value is not None}
        )
    for layer in find_layers(model):
        _receive(model, layer, weights, ranks)
        fully_shard(layer, mesh=ranks.mesh, reshard_after_forward=not keeps_whole)
    _receive(model, model, weights, ranks)
    # The root keeps embeddings and head: the backward pass begins with them.
    fully_shard(model, mesh=ranks.mesh, reshard_after_forward=False)
    setattr(model, ENTRY, MethodType(_call, model))
    register_fsdp_forward_method(model, ENTRY)


def fill_outline(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Put weights back into an outline, by name."""
    _replace_weights(model, lambda name, _: weights[name])


def _receive(model: nn.Module, part: nn.Module, weights: dict[str, torch.Tensor], ranks: Ranks) -> None:
    """Put the weights of a part of the model, as rank 0 has them, on this rank's device."""

    def receive(name: str, value: torch.Tensor) -> torch.Tensor:
        if ranks.is_leader:
            whole = weights.pop(name).to(ranks.device).contiguous()
        else:
            whole = torch.empty_like(value, device=ranks.device)
        if ranks.world > 1:
            with ranks.name_faults():
                dist.broadcast(whole, src=0)
        return whole

    _replace_weights(model, receive, part=part)


def _replace_weights(
    model: nn.Module,
    make: Callable[[str, torch.Tensor], torch.Tensor],
    *,
    part: nn.Module | None = None,
    is_due: Callable[[torch.Tensor], bool] = lambda value: value.is_meta,
) -> None:
    """Replace the weights that are due, of a model or of a part of it, by what is made of them; tied ones stay tied."""
    names = {id(value): name for name, value in model.named_parameters()}
    made: dict[int, nn.Parameter] = {}
    for module in (part or model).modules():
        for key, value in module._parameters.items():
            if value is None or not is_due(value):
                continue
            if id(value) not in made:
                made[id(value)] = nn.Parameter(make(names[id(value)], value), requires_grad=value.requires_grad)
            module._parameters[key] = made[id(value)]


def _call(model: nn.Module, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    return function(model, *args, **kwargs)
