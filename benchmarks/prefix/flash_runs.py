"""A candidate for attention to shared packs: flash attention over runs, each with the keys of its whole path.

In pre-order, a *run* is a chain of nodes of which each is the first child of the one before. Its queries see its path
and itself, causally: that is flash attention over rows of unequal length whose queries stand at the end of their keys.
Keys are gathered for each run, so that a path is copied as often as runs leave it; no mask is built, nothing compiled.

Measured beside FlexAttention in the section *flash over runs*; not what the product uses.

Axes: L nodes, R runs, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from groupwise.batching import logps
from groupwise.batching.causal_lm import CausalLM
from groupwise.batching.pack import Pack

NAME = "benchmark_flash_runs"


@dataclass(frozen=True, eq=False, kw_only=True)
class Runs:
    """The runs of a pack.

    Worked example: the nodes 0-1-2 and 0-1-3 have the runs [0, 1, 2] and [3], queries [0, 3, 4], keys [0, 3, 6] and
    source [0, 1, 2, 0, 1, 3].
    """

    queries: torch.Tensor
    """Where each run begins, and L (R + 1)."""
    keys: torch.Tensor
    """Where the keys of each run begin, and K (R + 1)."""
    source: torch.Tensor
    """Node of each key (K)."""
    most_queries: int
    most_keys: int

    @classmethod
    def of(cls, end: torch.Tensor, depth: torch.Tensor) -> Runs:
        """The runs of nodes with the given ends and depths (L)."""
        node = torch.arange(len(end), device=end.device)
        begins = torch.ones_like(node, dtype=torch.bool)
        begins[1:] = depth[1:] != depth[:-1] + 1
        first = torch.nonzero(begins)[:, 0]
        past = torch.cat((first[1:], first.new_tensor([len(end)])))
        is_ancestor = (node[None, :] < first[:, None]) & (end[None, :] > first[:, None])
        is_own = (node[None, :] >= first[:, None]) & (node[None, :] < past[:, None])
        seen = is_ancestor | is_own
        counts = seen.sum(1)
        zero = counts.new_zeros(1)
        return cls(
            queries=torch.cat((first, past[-1:])).to(torch.int32),
            keys=torch.cat((zero, counts.cumsum(0))).to(torch.int32),
            source=torch.nonzero(seen)[:, 1],
            most_queries=int((past - first).max()),
            most_keys=int(counts.max()),
        )


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers asks for it, over the runs that `inputs` names."""
    from torch.nn.attention.varlen import varlen_attn

    runs: dict[str, Any] = {name: settings[name] for name in ("run_queries", "run_keys", "run_source", "run_most")}
    rows = query[0].transpose(0, 1)
    keys, values = (states[0].transpose(0, 1)[runs["run_source"]] for states in (key, value))
    found: Any = varlen_attn(
        rows, keys, values, runs["run_queries"], runs["run_keys"], *runs["run_most"], scale=scaling, window_size=(-1, 0)
    )
    return found[None], None


def inputs(halves: CausalLM, pack: Pack, *, dense: bool = False) -> dict[str, Any]:
    """What the body of a model is called with."""
    halves.attend_by(NAME)
    runs = Runs.of(pack.end, pack.position_ids[0])
    return {
        "input_ids": pack.input_ids,
        "position_ids": pack.position_ids,
        "attention_mask": pack.end.new_zeros((1, 1, 1, 1)),
        "run_queries": runs.queries,
        "run_keys": runs.keys,
        "run_source": runs.source,
        "run_most": (runs.most_queries, runs.most_keys),
    }


@contextmanager
def over_runs(net: Any) -> Iterator[None]:
    """Let a model attend to packs by runs for a while."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention)
    before, own = net.config._attn_implementation, logps.pack_inputs
    logps.pack_inputs = inputs  # type: ignore[assignment]
    try:
        yield
    finally:
        logps.pack_inputs = own
        net.set_attn_implementation(before)
