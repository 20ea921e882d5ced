"""Weights go to servers in the type that these compute in, which are the numbers that they would make of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.engines.client import ServerEngine
from groupwise.engines.replica import ServerInfo


class FileReader(ServerEngine):
    """Reads the file that servers would be told of."""

    def __init__(self, precision: str) -> None:
        server: Any = SimpleNamespace(info=SimpleNamespace(gives=frozenset(), context=None))
        replicas: Any = SimpleNamespace(members=[server])
        super().__init__(replicas, describe=refuse, precision=precision)
        self.taken: dict[str, torch.Tensor] = {}

    def load_file(self, path: Path, *, version: int) -> None:
        self.taken = load_file(path)


def refuse(client: object) -> ServerInfo:
    raise AssertionError("no server is asked")


def sync(weights: Mapping[str, torch.Tensor], precision: str) -> dict[str, torch.Tensor]:
    engine = FileReader(precision)
    engine.load(weights, version=1)
    return engine.taken


def test_wide_weights_are_cast_for_servers_that_compute_in_bfloat16() -> None:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    taken = sync({"w": weight, "count": torch.arange(3)}, "bfloat16")
    assert taken["w"].dtype is torch.bfloat16
    assert torch.equal(taken["w"], weight.to(torch.bfloat16))
    assert torch.equal(taken["count"], torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_others_go_as_they_are(dtype: torch.dtype) -> None:
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(sync({"w": weight}, "float32")["w"], weight)
    assert sync({"w": weight}, "float32")["w"].dtype is dtype
