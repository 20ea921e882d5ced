"""The decoding step. On a GPU it is a CUDA graph, and many steps run without the host.

A step reads one token per row, runs the model, samples, and records the tokens. It never waits for the host, and it
reads and writes static tensors. So it is captured once per number of rows and width, and then replayed: one launch per
token instead of hundreds.

Axes: B rows, W columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.engines.sampling import draw_tokens
from groupwise.engines.static_cache.attention import switch_attention
from groupwise.engines.static_cache.cache import LaneCache, LaneState, TokenBatch, make_additive_mask
from groupwise.engines.static_cache.own_layers import OwnLayers

WARM_UPS = 2
"""Runs before a capture: in the first, libraries choose kernels and allocate their workspace."""


class GraphPool:
    """Memory that CUDA graphs share: they run one after another and exchange only static tensors."""

    def __init__(self) -> None:
        self._handle: Any = None

    def capture(self, run: Callable[[], Any]) -> Any:
        """Run a function some times, then capture it."""
        here = torch.cuda.current_stream()
        aside = get_side_stream(here.device_index)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        self._handle = self._handle or torch.cuda.graph_pool_handle()
        # Only this thread must not use the device meanwhile: a learner may use it in another thread.
        with torch.cuda.graph(graph, pool=self._handle, capture_error_mode="thread_local"):
            run()
        return graph


@cache
def get_side_stream(device: int) -> torch.cuda.Stream:
    """The stream for runs before a capture, one per device: libraries keep a workspace for each stream."""
    return torch.cuda.Stream(device)


@dataclass(eq=False)
class DecodingStep:
    """The step over the first lanes of some storage."""

    model: PreTrainedModel
    cache: LaneCache
    state: LaneState
    use_graphs: bool
    """Whether steps are captured; else the same operations run one by one."""
    use_kernel: bool = False
    """Whether our kernel computes attention; else torch does."""
    layers: OwnLayers | None = None
    """Our own layers; None = the model's layers compute."""
    num_captures: int = 0
    pool: GraphPool = field(default_factory=GraphPool)
    _graphs: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = self.cache.device
        self._row_L = torch.arange(self.cache.lanes, device=device)
        self._column_W = torch.arange(self.cache.width, device=device)
        self._begins = torch.arange(self.cache.lanes + 1, device=device, dtype=torch.int32)

    def run(self, num: int, width: int, *, steps: int) -> None:
        """Run some steps with the first `num` rows; no row reads more than `width` columns."""
        if not self.use_graphs:
            for _ in range(steps):
                self._run_once(num, width)
            return
        with torch.cuda.device(self.cache.device):
            if (num, width) not in self._graphs:
                self._graphs[num, width] = self._capture(num, width)
            for _ in range(steps):
                self._graphs[num, width].replay()

    def _run_once(self, num: int, width: int) -> None:
        state = self.state
        logits_BV = self._compute_logits(num, width) if self.layers is None else self._compute_by_layers(num, width)
        draws_B = state.draws.index_select(0, state.next_draw)[0, :num]
        state.record(num, *draw_tokens(logits_BV, state.temperature[:num], state.is_greedy[:num], draws_B))

    def _compute_logits(self, num: int, width: int) -> torch.Tensor:
        """By the model's own code."""
        state = self.state
        row_B, at_B = self._row_L[:num], state.length[:num]
        is_seen_BW = self._column_W[None, :width] <= at_B[:, None]

        def write(stored_LKWD: torch.Tensor, new_BKTD: torch.Tensor) -> torch.Tensor:
            # Also beyond `width`: a finished row may be longer than the others.
            stored_LKWD[row_B, :, at_B] = new_BKTD[:, :, 0]
            return stored_LKWD[:num, :, :width]

        with switch_attention(self.model, at_B if self.use_kernel else None):
            out = self.model(
                input_ids=state.token[:num],
                position_ids=at_B[:, None],
                attention_mask=make_additive_mask(is_seen_BW, self.cache.dtype)[:, None, None],
                past_key_values=self.cache.prepare(write),
                use_cache=True,
            )
        logits: torch.Tensor = out.logits[:, -1]
        return logits

    def _compute_by_layers(self, num: int, width: int) -> torch.Tensor:
        """By our own layers and the model's head."""
        assert self.layers is not None
        at_B, attend_step = self.state.length[:num], self.layers.operations.attend_step
        rows = self._begins[:num]
        batch = TokenBatch(
            ids=self.state.token[:num, 0], positions=at_B, rows=rows, begins=self._begins[: num + 1], lanes=rows
        )

        def attend(query: torch.Tensor, stored: tuple[torch.Tensor, torch.Tensor], scaling: float) -> torch.Tensor:
            keys, values = (lanes[:num, :, :width] for lanes in stored)
            attended: torch.Tensor = attend_step(query, keys, values, at_B, scaling=scaling)
            return attended

        logits: torch.Tensor = self.model.get_output_embeddings()(self.layers.read(batch, self.cache, attend))
        return logits

    def _capture(self, num: int, width: int) -> Any:
        """Capture the step. The runs before the capture record nothing, because all rows are marked as done."""
        was_done_L = self.state.is_done.clone()
        self.state.is_done.fill_(True)
        graph = self.pool.capture(lambda: self._run_once(num, width))
        self.state.is_done.copy_(was_done_L)
        self.state.next_draw.zero_()
        self.num_captures += 1
        return graph
