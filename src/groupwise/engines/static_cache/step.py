"""One decoding step, and many of them without the host: on a GPU a step is a CUDA graph.

A step reads a token a row, runs the model, samples, writes down what was sampled, and moves on. It never waits for the
host, and all it reads and writes stays where it is, so it can be captured once for each number of rows and width and
then replayed: one launch a token instead of hundreds.

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
from groupwise.engines.static_cache.cache import LaneCache, LaneState, TokenBatch, WriteOneToken, make_additive_mask
from groupwise.engines.static_cache.own_layers import OwnLayers

# Capturing what runs on the device as a CUDA graph: one launch then does for hundreds.

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


@dataclass(eq=False)
class DecodingStep:
    """The step over the first lanes of some storage."""

    model: PreTrainedModel
    cache: LaneCache
    state: LaneState
    use_graphs: bool
    """Whether steps are captured; otherwise the same operations are run one by one."""
    use_kernel: bool = False
    """Whether attention is the kernel's; otherwise torch's."""
    layers: OwnLayers | None = None
    """Layers of our own, where they compute; otherwise the model's."""
    num_captures: int = 0
    """Graphs that have been captured."""

    pool: GraphPool = field(default_factory=GraphPool)
    """The memory of graphs."""

    _graphs: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = self.cache.device
        self._row_L = torch.arange(self.cache.lanes, device=device)
        self._column_W = torch.arange(self.cache.width, device=device)
        self._begins = torch.arange(self.cache.lanes + 1, device=device, dtype=torch.int32)

    def run(self, num: int, width: int, *, steps: int) -> None:
        """Make some steps with the first `num` rows, none of which sees more than `width` columns."""
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
        """By the model as it is."""
        state = self.state
        at_B = state.length[:num]
        is_seen_BW = self._column_W[None, :width] <= at_B[:, None]
        with switch_attention(self.model, at_B if self.use_kernel else None):
            out = self.model(
                input_ids=state.token[:num],
                position_ids=at_B[:, None],
                attention_mask=make_additive_mask(is_seen_BW, self.cache.dtype)[:, None, None],
                past_key_values=self.cache.prepare(WriteOneToken(self._row_L[:num], at_B, width)),
                use_cache=True,
            )
        logits: torch.Tensor = out.logits[:, -1]
        return logits

    def _compute_by_layers(self, num: int, width: int) -> torch.Tensor:
        """By layers of our own, and the model's head."""
        assert self.layers is not None, "a step with layers of our own has them"
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
        """A graph of the step. The steps before it sample nothing: every row is done while they run."""
        was_done_L = self.state.is_done.clone()
        self.state.is_done.fill_(True)
        graph = self.pool.capture(lambda: self._run_once(num, width))
        self.state.is_done.copy_(was_done_L)
        self.state.next_draw.zero_()
        self.num_captures += 1
        return graph
