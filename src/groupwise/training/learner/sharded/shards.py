"""A model in shares: each rank holds a part of every weight, and puts a layer together while it runs (FSDP2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from groupwise.batching.pack import Pack, pack
from groupwise.batching.padded_rows import PaddedRows
from groupwise.core.errors import ConfigError
from groupwise.core.sample import Sample
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward
from groupwise.models.layout_choice import find_packing_fault
from groupwise.models.logps import compute_token_logps
from groupwise.training.learner.sharded.config import ShardedLearnerConfig
from groupwise.training.learner.sharded.division import ENTRY, divide
from groupwise.training.learner.sharded.ranks import Ranks

Result = TypeVar("Result")


class ShardedForward(Forward):
    """Runs a model whose weights are in shares; every rank must run as often as the others."""

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
        """Refuse a model that cannot be packed; every rank compares the same tokens, as they will be computed."""
        with self._autocast():
            fault = self.run(find_packing_fault, longest=1)
        self.drop_whole()
        if fault is not None:
            # Padded rows would make other micro-batches on each rank, and cost what shares are to save.
            raise ConfigError(f"training.learner: {fault}; a sharded learner reads packs only, take the local learner")

    def lay_out(self, samples: Sequence[Sample], *, token_budget: int, unit: str) -> list[Pack | PaddedRows]:
        """Samples as packs on the model's device."""
        CausalLM.of(self.model).check_tree(max((len(sample.token_ids) for sample in samples), default=1))
        share = self._settings.share_prefixes
        packs = pack(samples, token_budget=token_budget, share=share, unit=unit)
        return [layout.to(self.device) for layout in packs]

    def __call__(
        self, layout: Pack | PaddedRows, *, temperature: float = 1.0, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probability of each trained token and, where asked, entropy, in float32."""
        with self._autocast():
            return self.run(compute_token_logps, layout, temperature=temperature, entropy=entropy)

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Run a function of the model while the weights outside its layers are whole."""
        result: Result = getattr(self.model, ENTRY)(function, *args, **kwargs)
        return result

    def set_last(self, is_last: bool) -> None:
        """Say whether the next backward pass is the optimiser step's last: then gradients are added up over ranks."""
        if not self._keeps_whole and torch.distributed.get_world_size() > 1:
            return  # they are after each pass; a single rank's share is all of them, so that it may wait
        root: Any = self.model
        root.set_requires_gradient_sync(is_last)
        root.set_is_last_backward(is_last)
        if self._keeps_whole:
            root.set_reshard_after_backward(is_last)

    def drop_whole(self) -> None:
        """Forget weights that were put together; after passes without gradient, before weights change."""
        for module in self._shares:
            module.reshard()

    @contextmanager
    def alike_on_all_ranks(self) -> Iterator[None]:
        """While every rank computes the same: gradients are averaged, not added up."""
        self.set_divisor(None)
        try:
            yield
        finally:
            self.set_divisor(1.0)

    def set_divisor(self, divisor: float | None) -> None:
        """What sums of gradients over ranks are divided by; None = the number of ranks."""
        world = torch.distributed.get_world_size()
        if world == 1:  # dividing by 1 is a pass over all gradients
            return
        for module in self._shares:
            module.set_gradient_divide_factor(float(world) if divisor is None else divisor)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no scaled sum


def put_together(value: torch.Tensor) -> torch.Tensor:
    """A weight as a whole; every rank calls it together."""
    whole: torch.Tensor = value.detach()
    return whole.full_tensor() if isinstance(whole, DTensor) else whole


@torch.no_grad()
def take_share(value: torch.Tensor, whole: torch.Tensor) -> None:
    """Give a weight its share of a whole that every rank has."""
    if isinstance(value, DTensor):
        whole = distribute_tensor(
            whole.to(value.device, value.dtype), value.device_mesh, value.placements, src_data_rank=None
        )
    value.copy_(whole)
