"""The reference: the policy that a run started from, which a penalty may keep it close to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from groupwise.core.errors import TrainingError


class Reference:
    """The weights that train, as they were when the run started; the rest of the model never changes.

    Of a model with a LoRA adapter only the adapter is held, and there is no second copy of the model: an adapter that
    starts as nothing makes the reference the model with its adapter off, one that was warm-started makes it the policy
    of the warm start. Of a model whose weights all train, it is a frozen copy.
    """

    def __init__(self, model: nn.Module) -> None:
        names: dict[int, list[str]] = {}
        for name, value in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(value), []).append(name)
        trained = [value for value in model.parameters() if value.requires_grad]
        self._trained = [(names[id(value)], value) for value in trained]
        self._held = [value.detach().clone() for value in trained]

    @torch.no_grad()
    def hold(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take weights by name as the reference; of tied ones, under any of their names."""
        self.check_names(weights)
        for (names, _), held in zip(self._trained, self._held, strict=True):
            held.copy_(next(weights[name] for name in names if name in weights))

    def check_names(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Refuse weights among which one that trains is not."""
        lacking = next((names[0] for names, _ in self._trained if not any(name in weights for name in names)), None)
        if lacking is not None:
            raise TrainingError(f"the reference weights have no {lacking!r}; give those of the same model")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the reference's weights into the model for a while; only without gradients."""
        assert not torch.is_grad_enabled(), "a graph through swapped weights would be wrong"
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for (_, value), held in zip(self._trained, self._held, strict=True):
            value.data, held.data = held.data, value.data
