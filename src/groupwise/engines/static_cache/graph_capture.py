"""Capturing what runs on the device as a CUDA graph: one launch then does for hundreds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

WARM_UPS = 2
"""Runs before a capture: libraries choose kernels and get their workspace in the first."""


class GraphPool:
    """Memory that graphs share: they run one after another and hand over in static tensors only."""

    def __init__(self) -> None:
        self._handle: Any = None

    def capture(self, run: Callable[[], Any]) -> Any:
        """A graph of what is run, which is run some times before."""
        here = torch.cuda.current_stream()
        aside = get_side_stream(here.device_index)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        self._handle = self._handle or torch.cuda.graph_pool_handle()
        # Only this thread must leave the device alone meanwhile: a learner may work on it in another one.
        with torch.cuda.graph(graph, pool=self._handle, capture_error_mode="thread_local"):
            run()
        return graph


@cache
def get_side_stream(device: int) -> torch.cuda.Stream:
    """The one stream of a device for runs before a capture: libraries keep a workspace for each stream they ran on."""
    return torch.cuda.Stream(device)
