"""Bytes of tensors that are alive, counted operation by operation, for tensors that have shapes and no numbers."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storage of every tensor that an operation puts out, until nobody holds it any more.

    Views share a storage, which counts once. What is counted is what torch asks its allocator for; the allocator's own
    rounding, and what libraries keep for themselves, are not.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes that are alive."""
        self.peak = 0
        """Most bytes that were alive at a time since `start`."""
        self._known: set[int] = set()

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that were there before."""
        for tensor in tensors:
            self._count(tensor)

    def start(self) -> None:
        """Count from here on: what is alive now is not counted."""
        self.now = self.peak = 0

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it puts out."""
        outputs = func(*args, **(kwargs or {}))
        self.count(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor))
        return outputs


@contextmanager
def count_live_bytes(outline: nn.Module) -> Iterator[LiveBytes]:
    """Let operations on an outline make no numbers, and count what they would hold beside its weights."""
    weights = list(outline.parameters())
    mode: Any = weights[0]  # a FakeTensor: mypy knows parameters only
    with mode.fake_mode, LiveBytes() as live:
        live.count([*weights, *outline.buffers()])
        live.start()
        yield live
