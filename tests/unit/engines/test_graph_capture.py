"""Captures share memory and the stream of the runs before them; a stand-in takes the place of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from groupwise.engines.static_cache import passes as graph_capture
from groupwise.engines.static_cache.passes import WARM_UPS, GraphPool


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The streams that were made, on a device that only counts."""
    made: list[Any] = []

    def make(device: int) -> Any:
        made.append(SimpleNamespace(device_index=device, wait_stream=lambda other: None))
        return made[-1]

    here = SimpleNamespace(device_index=3, wait_stream=lambda other: None)
    stand_ins = {
        "Stream": make,
        "current_stream": lambda: here,
        "stream": nullcontext,
        "CUDAGraph": object,
        "graph_pool_handle": object,
        "graph": lambda *_, **__: nullcontext(),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    graph_capture.get_side_stream.cache_clear()
    yield made
    graph_capture.get_side_stream.cache_clear()


def test_all_captures_of_a_device_run_before_on_one_stream(streams: list[Any]) -> None:
    runs: list[int] = []
    for _ in range(2):
        pool = GraphPool()
        for _ in range(3):
            pool.capture(lambda: runs.append(1))
    assert [stream.device_index for stream in streams] == [3]
    assert len(runs) == 6 * (WARM_UPS + 1)
