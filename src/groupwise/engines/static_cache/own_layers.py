"""Our own code for the layers of well-known models: it launches a tenth of the kernels of the model's code.

The weights stay the model's. Weights with the same input are concatenated: one product computes queries, keys and
values, and one computes both halves of the feed-forward part. Each weight is then a view of the joint one, under its
own name, so writes to it change both. With an adapter, the model's own modules compute these products.

Tokens come in one flat batch, each with its position and its lanes; a decoding step is such a batch too. A trial
compares the result with the model's before an engine uses these layers (`LayersTrial`).

Axes: N tokens, E width of the model, H queries, K heads of keys and values, D width of a head.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from groupwise.engines.static_cache import layer_operations
from groupwise.engines.static_cache.cache import LaneCache, RowTable, TokenBatch, UnreadRow, lay_out

KNOWN_MODELS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes whose layers are norm, attention, norm and a gated feed-forward part, each half added to its input."""
TILE = 128
"""Queries per tile of attention in 16 bits; half of it in 32 bits."""

Attend = Callable[[torch.Tensor, tuple[torch.Tensor, torch.Tensor], float], torch.Tensor]
"""Attention of queries (N, H, D) to a layer's lanes."""
Project = Callable[[torch.Tensor], Sequence[torch.Tensor]]
"""Products of one input with several weights."""


@dataclass(frozen=True, eq=False)
class OwnLayer:
    """The weights and modules of one layer."""

    norms: tuple[Any, Any]
    """The norms before attention and before the feed-forward part."""
    project: Project
    """Queries, keys and values of an input."""
    head_norms: tuple[torch.Tensor, torch.Tensor, float] | None
    """Weights and epsilon of the norms of queries and keys, if the model has them."""
    output: Any
    """The output projection of attention."""
    scaling: float
    """Factor of the attention scores."""
    project_wide: Project
    """Both halves of the feed-forward part."""
    narrow: Any
    """The down projection of the feed-forward part."""


def has_own_layers(model: PreTrainedModel) -> bool:
    """Whether we have code for the layers of a model: its class is known, and its config has nothing unusual."""
    config = model.config.get_text_config()
    return type(model).__name__ in KNOWN_MODELS and getattr(config, "hidden_act", None) == "silu"


class OwnLayers:
    """The body of a model: embedding, layers and the last norm."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Join weights; the parameter objects stay the same, so models that share them still do."""
        body: Any = model.base_model
        self._body = body
        self.operations: Any = layer_operations
        if model.device.type == "cuda":
            from groupwise.engines.static_cache import kernels  # it needs Triton

            self.operations = kernels
        self.size = int(body.layers[0].self_attn.head_dim)
        config = model.config.get_text_config()
        self.queries = config.num_attention_heads // config.num_key_value_heads
        """Queries per key head."""
        self.tile = TILE if model.dtype.itemsize <= 2 else TILE // 2
        """Queries per tile of attention."""
        self._layers = [_open_layer(layer) for layer in body.layers]
        if model.device.type == "cuda":
            torch.cuda.empty_cache()  # joint weights do not fit into the memory of the single ones

    def take_first(self, num: int) -> OwnLayers:
        shorter = copy.copy(self)
        shorter._layers = self._layers[:num]
        return shorter

    def read(self, batch: TokenBatch, cache: LaneCache, attend: Attend, *, is_needed: bool = True) -> torch.Tensor:
        """Write the keys and values of tokens to lanes; returns the last hidden states (N, E) if they are needed."""
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
        """Read rows of any length into their lanes; returns the last hidden states if they are needed."""
        batch, table = lay_out(rows, queries=self.queries, tile=self.tile, device=cache.device)
        return self.read_batch(batch, table, cache, is_needed=is_needed)

    def read_batch(
        self, batch: TokenBatch, table: RowTable, cache: LaneCache, *, is_needed: bool = False
    ) -> torch.Tensor:
        """The same for rows in a flat batch."""

        def attend(query_NHD: torch.Tensor, lanes: tuple[torch.Tensor, torch.Tensor], scaling: float) -> torch.Tensor:
            attended: torch.Tensor = self.operations.attend_rows(
                query_NHD, lanes, table, scaling=scaling, tile=self.tile
            )
            return attended

        return self.read(batch, cache, attend, is_needed=is_needed)


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
    """One joint product for plain linear modules; else each module by itself."""
    is_plain = all(type(module) is torch.nn.Linear for module in modules)
    biases = [module.bias for module in modules] if is_plain else []
    if not is_plain or len({bias is None for bias in biases}) > 1:
        return lambda inputs_NE: [module(inputs_NE) for module in modules]
    weight = _join([module.weight for module in modules])
    bias = None if biases[0] is None else _join(biases)
    sizes = [module.out_features for module in modules]

    def project(inputs_NE: torch.Tensor) -> Sequence[torch.Tensor]:
        products: Sequence[torch.Tensor] = functional.linear(inputs_NE, weight, bias).split(sizes, -1)
        return products

    return project


@torch.no_grad()
def _join(weights: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """Concatenate weights, which become views of the result; if they are views of one weight already, return that."""
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
    """Whether each weight directly follows the previous one in the same storage."""
    if not all(weight.is_contiguous() for weight in weights):
        return False
    return all(
        weight.dtype == before.dtype
        and weight.shape[1:] == before.shape[1:]
        and weight.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()
        and weight.storage_offset() == before.storage_offset() + before.numel()
        for before, weight in pairwise(weights)
    )
