"""A sharded model: each rank holds a shard of every weight, and layers are gathered while they run (FSDP2)."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from groupwise.data.samples import Sample, find_longest
from groupwise.learner import local_files
from groupwise.learner.config import ShardedLearnerConfig
from groupwise.learner.critic import save_critic
from groupwise.learner.ranks import Ranks
from groupwise.models.causal_lm import CausalLM
from groupwise.models.folder import save_model
from groupwise.models.forward import Forward, Result, find_layers, find_packing_fault
from groupwise.models.pack import Pack, PaddedRows, pack
from groupwise.system.errors import ConfigError, TrainingError


class ShardedForward(Forward):
    """Runs a model with sharded weights; every rank must run as often as the others."""

    def __init__(
        self,
        outline: PreTrainedModel,
        weights: dict[str, torch.Tensor],
        settings: ShardedLearnerConfig,
        ranks: Ranks,
        *,
        keeps_whole: bool,
    ) -> None:
        super().__init__(outline, settings)
        self._keeps_whole = keeps_whole
        divide(outline, weights, ranks, keeps_whole=keeps_whole)
        self._shares = [module for module in outline.modules() if isinstance(module, FSDPModule)]
        self.set_divisor(1.0)
        self._check_packing()

    @torch.no_grad()
    def _check_packing(self) -> None:
        """Fail if the model cannot read packs; every rank checks the same tokens, in the precision of training."""
        with self._autocast():
            fault = self.run(find_packing_fault, longest=1)
        self.drop_whole()
        if fault is not None:
            # Padded rows would give each rank other micro-batches, and need the memory that sharding saves.
            raise ConfigError(f"training.learner: {fault}; a sharded learner reads packs only, take the local learner")

    def lay_out(self, samples: Sequence[Sample], *, token_budget: int, unit: str) -> list[Pack | PaddedRows]:
        CausalLM.of(self.model).check_tree(find_longest(samples))
        share = self._settings.share_prefixes
        packs = pack(samples, token_budget=token_budget, share=share, unit=unit)
        return [layout.to(self.device) for layout in packs]

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Run a function of the model while the weights outside its layers are gathered."""
        result: Result = getattr(self.model, ENTRY)(function, *args, **kwargs)
        return result

    def set_last(self, is_last: bool) -> None:
        """Set whether the next backward pass is the optimizer step's last: then gradients are summed over ranks."""
        if not self._keeps_whole and torch.distributed.get_world_size() > 1:
            return  # gradients are summed after each pass; a single rank may wait, because its shards are whole
        root: Any = self.model
        root.set_requires_gradient_sync(is_last)
        root.set_is_last_backward(is_last)
        if self._keeps_whole:
            root.set_reshard_after_backward(is_last)

    def drop_whole(self) -> None:
        """Free gathered weights; after passes without gradient, before weights change."""
        for module in self._shares:
            module.reshard()

    @contextmanager
    def alike_on_all_ranks(self) -> Iterator[None]:
        """Average gradients over ranks instead of summing them, while every rank computes the same."""
        self.set_divisor(None)
        try:
            yield
        finally:
            self.set_divisor(1.0)

    def set_divisor(self, divisor: float | None) -> None:
        """Set the divisor of gradient sums over ranks; None = the number of ranks."""
        world = torch.distributed.get_world_size()
        if world == 1:  # dividing by 1 is a pass over all gradients
            return
        for module in self._shares:
            module.set_gradient_divide_factor(float(world) if divisor is None else divisor)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum


def put_together(value: torch.Tensor) -> torch.Tensor:
    """Gather a weight; all ranks call it together."""
    whole: torch.Tensor = value.detach()
    return whole.full_tensor() if isinstance(whole, DTensor) else whole


@torch.no_grad()
def take_share(value: torch.Tensor, whole: torch.Tensor) -> None:
    """Copy this rank's shard of a whole tensor, which every rank has, into a weight."""
    if isinstance(value, DTensor):
        whole = distribute_tensor(
            whole.to(value.device, value.dtype), value.device_mesh, value.placements, src_data_rank=None
        )
    value.copy_(whole)


# Sharding a model. Rank 0 takes the weights out of its model and sends the rest, an *outline*: modules, buffers, and
# weights that have a shape but no numbers. Then the weights go layer by layer from rank 0's memory to all devices, and
# each rank keeps its shards. So a device holds its shards and one layer, and only rank 0 ever holds the whole model.

ENTRY = "run_with_whole_weights"
"""The method name that FSDP wraps; it runs the model's body and head separately."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """A model without its weights, as every rank has it before sharding."""

    model: PreTrainedModel
    """The modules; their weights have a shape but no numbers."""
    weights: dict[str, torch.Tensor]
    written: bytes
    """On rank 0, the outline as bytes for `read_outline`."""


def share_outline(model: PreTrainedModel | None, ranks: Ranks) -> Outline:
    """Turn rank 0's model into an outline and send it to all ranks; the other ranks pass no model."""
    if not ranks.is_leader:
        return Outline(model=read_outline(ranks.broadcast(None), ranks.device), weights={}, written=b"")
    assert model is not None, "rank 0 has opened the model"
    weights = take_out_weights(model)
    written = write_outline(model)
    ranks.broadcast(written)
    return Outline(model=model, weights=weights, written=written)


def take_out_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Take the weights out of a model; it keeps their shapes and types."""
    for name, value in model.named_parameters():
        if type(value) is not nn.Parameter or not value.is_floating_point():
            raise ConfigError(
                f"training.learner: {name} is a {type(value).__name__} of {str(value.dtype).removeprefix('torch.')}, "
                'which cannot be divided; load the model unquantised, or take the local learner (kind = "local")'
            )
    weights = {name: value.detach() for name, value in model.named_parameters()}
    _replace_weights(model, lambda name, value: value.detach().to("meta"), only_empty=False)
    return weights


def write_outline(model: nn.Module) -> bytes:
    """An outline as bytes (a pickle), for processes of this run."""
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
    """The outline that `write_outline` wrote, with its buffers on a device."""
    # From our own processes, never from a file.
    outline: PreTrainedModel = torch.load(io.BytesIO(content), map_location=device, weights_only=False)
    return outline


def divide(model: PreTrainedModel, weights: dict[str, torch.Tensor], ranks: Ranks, *, keeps_whole: bool) -> None:
    """Shard the weights of an outline; rank 0 has them by name and releases them one by one.

    With `keeps_whole` a layer stays gathered after its forward pass.
    """
    for module in model.modules():
        module._buffers.update(
            {key: value.to(ranks.device) for key, value in module._buffers.items() if value is not None}
        )
    for layer in find_layers(model):
        _receive(model, layer, weights, ranks)
        fully_shard(layer, mesh=ranks.mesh, reshard_after_forward=not keeps_whole)
    _receive(model, model, weights, ranks)
    # The root keeps embeddings and head gathered: the backward pass begins with them.
    fully_shard(model, mesh=ranks.mesh, reshard_after_forward=False)
    setattr(model, ENTRY, MethodType(_call, model))
    register_fsdp_forward_method(model, ENTRY)


def _receive(model: nn.Module, part: nn.Module, weights: dict[str, torch.Tensor], ranks: Ranks) -> None:
    """Copy rank 0's weights of a part of the model to this rank's device."""

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
    only_empty: bool = True,
) -> None:
    """Replace the weights of a model, or of a part of it, by the results of `make`; tied weights stay tied."""
    names = {id(value): name for name, value in model.named_parameters()}
    made: dict[int, nn.Parameter] = {}
    for module in (part or model).modules():
        for key, value in module._parameters.items():
            if value is None or (only_empty and not value.is_meta):
                continue
            if id(value) not in made:
                made[id(value)] = nn.Parameter(make(names[id(value)], value), requires_grad=value.requires_grad)
            module._parameters[key] = made[id(value)]


def _call(model: nn.Module, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    return function(model, *args, **kwargs)


# Checkpoints of sharded weights: the same files as the local learner's, so any number of ranks can load them.


def write_whole(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer | None, ranks: Ranks) -> None:
    """Gather weights one after the other, let rank 0 write them, then do the same with the optimizer state.

    While rank 0 writes, the other ranks wait in `agree`, which has no short timeout. If they already gathered the
    optimizer state, they would wait at most the learner's `timeout`.
    """
    weights = _collect(ranks, dict(model.state_dict()))
    ranks.agree(_try_to_write(folder, ranks, lambda: save_model(model, folder, state_dict=weights)))
    weights.clear()  # before the optimizer state, which takes twice their memory
    if optimizer is not None:
        moments = _collect(ranks, local_files.name_optimizer_tensors(model, optimizer))
        ranks.agree(_try_to_write(folder, ranks, lambda: local_files.save_optimizer(folder, moments)))


def write_merged(folder: Path, model: PreTrainedModel, outline: bytes, ranks: Ranks) -> None:
    """Gather all weights and let rank 0 write the model with its adapter merged."""
    weights = _collect(ranks, dict(model.named_parameters()))

    def write() -> None:
        whole: Any = read_outline(outline, torch.device("cpu"))
        _replace_weights(whole, lambda name, _: weights[name])
        save_model(whole.merge_and_unload(), folder)

    ranks.agree(_try_to_write(folder, ranks, write))


def write_critic(folder: Path, tensors: dict[str, torch.Tensor], ranks: Ranks) -> None:
    """Gather the critic's tensors and let rank 0 write them."""
    whole = _collect(ranks, tensors)
    ranks.agree(_try_to_write(folder, ranks, lambda: save_critic(folder, whole)))


def _try_to_write(folder: Path, ranks: Ranks, write: Callable[[], None]) -> str | None:
    """Let rank 0 write; returns the error message if it fails."""
    if ranks.is_leader:
        try:
            write()
        except (OSError, SafetensorError) as error:  # safetensors raises the latter if the disk is full
            return f"{folder} could not be written: {error}"
    return None


def load_shares(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, ranks: Ranks) -> None:
    """Let rank 0 read and check the files, then send each rank its shards, one tensor after the other."""
    weights, moments, fault = dict[str, torch.Tensor](), dict[str, torch.Tensor](), None
    if ranks.is_leader:
        try:
            weights, moments = local_files.read_checkpoint_tensors(folder, model)
        except TrainingError as error:
            fault = str(error)
    ranks.agree(fault)
    own = model.state_dict()
    for name, whole in spread_tensors(ranks, weights):
        take_share(own[name], whole)
    parameters, shares = dict(model.named_parameters()), dict[str, torch.Tensor]()
    for key, whole in spread_tensors(ranks, moments):
        name, _, entry = key.rpartition("/")
        if entry == "step":
            shares[key] = whole.cpu()
        else:
            share = torch.zeros_like(parameters[name])
            take_share(share, whole)
            shares[key] = share.detach()
    local_files.put_optimizer_tensors(model, optimizer, shares)


def _collect(ranks: Ranks, tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Gather tensors in rank 0's CPU memory; the other ranks get nothing."""
    collected = {}
    for name, value in tensors.items():
        whole = put_together(value)
        if ranks.is_leader:
            collected[name] = whole.cpu()
    return collected


def spread_tensors(ranks: Ranks, tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each of rank 0's tensors on every rank, one at a time."""
    table = ranks.broadcast([(name, tuple(value.shape), value.dtype) for name, value in tensors.items()])
    for name, shape, dtype in table:
        whole = (
            tensors[name].to(ranks.device) if ranks.is_leader else torch.empty(shape, dtype=dtype, device=ranks.device)
        )
        with ranks.name_faults():
            dist.broadcast(whole, src=0)
        yield name, whole
