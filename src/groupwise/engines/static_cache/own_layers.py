"""The layers of well-known models, computed by operations of our own: a tenth of the kernels of the model's code.

The weights stay the model's. Those of products of the same input are laid side by side, so that one product does for
queries, keys and values, and one for both halves of the feed-forward part: a weight is then a part of the joint one,
under its own name, and what is written into it arrives in both. An adapter's products are the model's own modules.

Tokens come in one flat batch, each with its position and its lanes; a decoding step is such a batch too. Whether all of
it says what the model says is tried before an engine uses it (`LayersTrial`).

Axes: N tokens, E width of the model, H queries, K heads of keys and values, D width of a head.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from groupwise.engines.static_cache.cache import LaneCache, RowTable, TokenBatch, UnreadRow, lay_out

KNOWN_MODELS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes whose layers are norm, attention, norm and a gated feed-forward part, each half added to its input."""
TILE = 128
"""Queries of a tile of attention, of narrow numbers; half of it of wide ones."""

Attend = Callable[[torch.Tensor, tuple[torch.Tensor, torch.Tensor], float], torch.Tensor]
"""Attention of queries (N, H, D) to a layer's lanes."""
Project = Callable[[torch.Tensor], Sequence[torch.Tensor]]
"""Products of one input with several weights."""


@dataclass(frozen=True, eq=False)
class OwnLayer:
    """What one layer computes with."""

    norms: tuple[Any, Any]
    """Modules that norm the input of attention and of the feed-forward part."""
    project: Project
    """Queries, keys and values of an input."""
    head_norms: tuple[torch.Tensor, torch.Tensor, float] | None
    """Weights by which queries and keys are normed, where they are."""
    output: Any
    """The module behind attention."""
    scaling: float
    """What the scores of attention are multiplied by."""
    project_wide: Project
    """Both halves of the feed-forward part."""
    narrow: Any
    """The module behind the feed-forward part."""


def has_own_layers(model: PreTrainedModel) -> bool:
    """Whether the layers of a model can be tried: its class is known, and nothing in its config is unusual."""
    config = model.config.get_text_config()
    return type(model).__name__ in KNOWN_MODELS and getattr(config, "hidden_act", None) == "silu"


class OwnLayers:
    """The body of a model: embedding, layers and the last norm."""

    def __init__(self, model: PreTrainedModel) -> None:
        """The model's parameters stay the objects that they are, so that whoever shares them goes on sharing them."""
        body: Any = model.base_model
        self._body = body
        self.operations = _choose_operations(model.device)
        self.size = int(body.layers[0].self_attn.head_dim)
        config = model.config.get_text_config()
        self.queries = config.num_attention_heads // config.num_key_value_heads
        """Queries that share a head of keys."""
        self.tile = TILE if model.dtype.itemsize <= 2 else TILE // 2
        """Queries of a tile of attention."""
        self._layers = [_open_layer(layer) for layer in body.layers]
        if model.device.type == "cuda":
            torch.cuda.empty_cache()  # joint weights do not fit where the single ones were

    def take_first(self, num: int) -> OwnLayers:
        """The same with the first layers only."""
        shorter = copy.copy(self)
        shorter._layers = self._layers[:num]
        return shorter

    def read(self, batch: TokenBatch, cache: LaneCache, attend: Attend, *, is_needed: bool = True) -> torch.Tensor:
        """Put the keys and values of tokens into lanes; the last hidden states (N, E), where they are needed."""
        op = self.operations
        hidden_NE = self._body.embed_tokens(batch.ids)
        cosine, sine = self._body.rotary_emb(hidden_NE[None], batch.positions[None])
        angles = (cosine[0], sine[0])
        residual_NE: torch.Tensor | None = None
        for number, (layer, stored) in enumerate(zip(self._layers, cache.storage, strict=True)):
            before, after = layer.norms
            residual_NE, normed_NE = op.add_and_norm(hidden_NE, residual_NE, before.weight, before.variance_epsilon)
            heads = [part.unflatten(-1, (-1, self.size)) for part in layer.project(normed_NE)]
            lanes = (stored.keys, stored.values)
            query_NHD = op.rotate_and_store(*heads, angles, batch, lanes, layer.head_norms)
            if not is_needed and number == len(self._layers) - 1:
                return residual_NE
            hidden_NE = layer.output(attend(query_NHD, lanes, layer.scaling).flatten(1))
            residual_NE, normed_NE = op.add_and_norm(hidden_NE, residual_NE, after.weight, after.variance_epsilon)
            hidden_NE = layer.narrow(op.gate(*layer.project_wide(normed_NE)))
        last = self._body.norm
        states_NE: torch.Tensor = op.add_and_norm(hidden_NE, residual_NE, last.weight, last.variance_epsilon)[1]
        return states_NE

    def read_rows(self, rows: Sequence[UnreadRow], cache: LaneCache, *, is_needed: bool = False) -> torch.Tensor:
        """Read rows of any length into their lanes; the last hidden states, where they are needed."""
        batch, table = lay_out(rows, queries=self.queries, tile=self.tile, device=cache.device)
        return self.read_batch(batch, table, cache, is_needed=is_needed)

    def read_batch(
        self, batch: TokenBatch, table: RowTable, cache: LaneCache, *, is_needed: bool = False
    ) -> torch.Tensor:
        """The same of rows that are laid out."""

        def attend(query_NHD: torch.Tensor, lanes: tuple[torch.Tensor, torch.Tensor], scaling: float) -> torch.Tensor:
            attended: torch.Tensor = self.operations.attend_rows(
                query_NHD, lanes, table, scaling=scaling, tile=self.tile
            )
            return attended

        return self.read(batch, cache, attend, is_needed=is_needed)


class _Operations:
    """Operations of one device."""

    def __init__(self, small: Any, attend_rows: Any, attend_step: Any) -> None:
        self.add_and_norm, self.rotate_and_store, self.gate = small.add_and_norm, small.rotate_and_store, small.gate
        self.attend_rows, self.attend_step = attend_rows, attend_step


def _choose_operations(device: torch.device) -> _Operations:
    if device.type == "cuda":
        from groupwise.engines.static_cache import layer_kernels, prefill_kernel
        from groupwise.engines.static_cache.decoding_kernel import attend_by_kernel

        return _Operations(layer_kernels, prefill_kernel.attend_rows, attend_by_kernel)
    from groupwise.engines.static_cache import layer_operations

    return _Operations(layer_operations, layer_operations.attend_rows, layer_operations.attend_step)


def _open_layer(layer: Any) -> OwnLayer:
    attention, wide = layer.self_attn, layer.mlp
    head_norms = None
    if hasattr(attention, "q_norm"):
        head_norms = (attention.q_norm.weight, attention.k_norm.weight, attention.q_norm.variance_epsilon)
    return OwnLayer(
        norms=(layer.input_layernorm, layer.post_attention_layernorm),
        project=_choose_project([attention.q_proj, attention.k_proj, attention.v_proj]),
        head_norms=head_norms,
        output=attention.o_proj,
        scaling=float(attention.scaling),
        project_wide=_choose_project([wide.gate_proj, wide.up_proj]),
        narrow=wide.down_proj,
    )


def _choose_project(modules: Sequence[Any]) -> Project:
    """One product where the modules are plain ones, else theirs, one by one."""
    is_plain = all(type(module) is torch.nn.Linear for module in modules)
    biases = [module.bias for module in modules] if is_plain else []
    if is_plain and len({bias is None for bias in biases}) == 1:
        weight = _join([module.weight for module in modules])
        bias = None if biases[0] is None else _join(biases)
        return partial(_project_at_once, weight, bias, [module.out_features for module in modules])
    return partial(_project_apart, modules)


def _project_at_once(
    weight: torch.Tensor, bias: torch.Tensor | None, sizes: list[int], inputs_NE: torch.Tensor
) -> Sequence[torch.Tensor]:
    products: Sequence[torch.Tensor] = functional.linear(inputs_NE, weight, bias).split(sizes, -1)
    return products


def _project_apart(modules: Sequence[Any], inputs_NE: torch.Tensor) -> Sequence[torch.Tensor]:
    return [module(inputs_NE) for module in modules]


@torch.no_grad()
def _join(weights: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """One weight of several, which become parts of it; where they are parts of one already, that one."""
    if _are_adjacent(weights):
        first = weights[0].data
        size = (sum(map(len, weights)), *first.shape[1:])
        return first.as_strided(size, first.stride(), first.storage_offset())
    joint = torch.cat([weight.data for weight in weights])
    parts = joint.split([len(weight) for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part
    return joint


def _are_adjacent(weights: Sequence[torch.nn.Parameter]) -> bool:
    """Whether each weight begins in the storage of the one before where that one ends."""
    if not all(weight.is_contiguous() for weight in weights):
        return False
    return all(
        weight.dtype == before.dtype
        and weight.shape[1:] == before.shape[1:]
        and weight.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()
        and weight.storage_offset() == before.storage_offset() + before.numel()
        for before, weight in pairwise(weights)
    )
