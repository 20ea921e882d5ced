"""One decoding step, and many of them without the host: on a GPU a step is a CUDA graph.

A step reads a token a row, runs the model, samples, writes down what was sampled, and moves on. It never waits for the
host, and all it reads and writes stays where it is, so it can be captured once for each number of rows and width and
then replayed: one launch a token instead of hundreds.

Axes: B rows, W columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.engines.sampling import draw
from groupwise.engines.static_cache.attention import decoding
from groupwise.engines.static_cache.cache import OneToken, SlotCache, added_mask
from groupwise.engines.static_cache.rows import SlotRows

WARM_UPS = 2
"""Steps before a capture: libraries choose kernels and get their workspace in the first."""


@dataclass(eq=False)
class DecodingStep:
    """The step over the first slots of some storage."""

    model: PreTrainedModel
    cache: SlotCache
    rows: SlotRows
    use_graphs: bool
    """Whether steps are captured; otherwise the same operations are run one by one."""
    use_kernel: bool = False
    """Whether attention is the kernel's; otherwise torch's."""
    num_captures: int = 0
    """Graphs that have been captured."""

    _graphs: dict[tuple[int, int], Any] = field(default_factory=dict)
    _pool: Any = None

    def __post_init__(self) -> None:
        device = self.cache.device
        self._row_S = torch.arange(self.cache.slots, device=device)
        self._column_W = torch.arange(self.cache.width, device=device)

    def run(self, num: int, width: int, *, steps: int) -> None:
        """Make some steps with the first `num` rows, none of which sees more than `width` columns."""
        if not self.use_graphs:
            for _ in range(steps):
                self._step(num, width)
            return
        with torch.cuda.device(self.cache.device):
            if (num, width) not in self._graphs:
                self._graphs[num, width] = self._captured(num, width)
            for _ in range(steps):
                self._graphs[num, width].replay()

    def _step(self, num: int, width: int) -> None:
        rows = self.rows
        at_B = rows.length[:num]
        is_seen_BW = self._column_W[None, :width] <= at_B[:, None]
        with decoding(self.model, at_B if self.use_kernel else None):
            out = self.model(
                input_ids=rows.token[:num],
                position_ids=at_B[:, None],
                attention_mask=added_mask(is_seen_BW, self.cache.dtype)[:, None, None],
                past_key_values=self.cache.use(OneToken(self._row_S[:num], at_B, width)),
                use_cache=True,
            )
        draws_B = rows.draws.index_select(0, rows.tick)[0, :num]
        rows.record(num, *draw(out.logits[:, -1], rows.heat[:num], rows.is_greedy[:num], draws_B))

    def _captured(self, num: int, width: int) -> Any:
        """A graph of the step. The steps before it sample nothing: every row is done while they run."""
        was_done_S = self.rows.is_done.clone()
        self.rows.is_done.fill_(True)
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._step(num, width)
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Graphs run one after another and hand over in static tensors only, so they may share their memory.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(num, width)
        self.rows.is_done.copy_(was_done_S)
        self.rows.tick.zero_()
        self.num_captures += 1
        return graph
