"""Log-probabilities of the trained tokens of a layout, and the entropies of their distributions.

Axes: U predicting nodes, T trained tokens, H hidden.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import nn

from groupwise.batching.pack import Pack, pack
from groupwise.batching.padded_rows import PaddedRows
from groupwise.core.errors import ConfigError
from groupwise.core.sample import Sample
from groupwise.models.attention.masks import make_pack_inputs
from groupwise.models.causal_lm import CausalLM
from groupwise.models.head.chunked import compute_head_logps
from groupwise.models.head.output_layer import Tiling

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 1.0, torch.float16: 0.25}
"""Largest difference of a log-probability between a pack and the model's own forward pass, by type; a quarter of it on
average. Logits between 16 and 32 lie an eighth apart in bfloat16: those of a trained model differ by several such steps
from kernel to kernel."""

CHUNK = {"cpu": 2048, "cuda": 8192}
"""Predicting nodes at a time: a GPU wants larger products, and adds to the gradient of the whole head after each."""

_passed: WeakKeyDictionary[nn.Module, set[torch.dtype]] = WeakKeyDictionary()


def compute_token_logps(
    model: nn.Module,
    layout: Pack | PaddedRows,
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probability (T) and, where asked, entropy (T) of each trained token, in the order of the layout.

    The body runs once; only states that predict a trained token reach the head, each distinct one once, `chunk` at a
    time (None = what suits the device). Float32 softmax of the logits over `temperature`. Both results are
    differentiable. Dropout, where the model has it and trains, is drawn once for a shared token.

    The first time a model meets a pack, its log-probs of a few tokens are compared with the model's own forward pass.
    """
    if temperature <= 0:
        raise ConfigError(f"temperature is {temperature}; log-probs need a positive one, that of the sampler")
    if chunk is not None and chunk < 1:
        raise ConfigError(f"chunk is {chunk}; at least one token at a time")
    halves = CausalLM.of(model)
    rows = chunk or CHUNK.get(layout.sample.device.type, CHUNK["cpu"])
    halves.check_tokens(longest=layout.longest, largest_id=layout.largest_id)
    if isinstance(layout, Pack):
        halves.check_tree(layout.longest)
        check_packs(model)
    return _compute_token_logps(halves, layout, Tiling(rows=rows, temperature=temperature, entropy=entropy))


def check_packs(model: nn.Module) -> None:
    """Compare log-probs of a few packed tokens with the model's own forward pass; refuse the model if they differ.

    It catches what no attribute tells: a model that ignores the mask or the positions, or does something of its own to
    the logits. Both ways of packing are compared, shared and side by side, as they will be computed; where autocast
    narrows that, also in the precision of the weights, where little can hide, under a mask that is written out, which
    needs no kernel compiled. Once a model and precision; every module's training mode is restored.
    """
    halves = CausalLM.of(model)
    dtype = halves.compute_dtype
    if dtype in _passed.get(halves.body, ()):
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            if dtype != halves.head.weight.dtype:
                with torch.autocast(halves.head.weight.device.type, enabled=False):
                    _check_packs(model, halves, dense=True)
            _check_packs(model, halves)
    except (ConfigError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a compiler or a kernel raises: the model can still train on rows
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{halves.name} does not run packed ({reason}); use padded rows, one a sample") from error
    finally:
        for module, training in modes:
            module.training = training
    _passed.setdefault(halves.body, set()).add(dtype)


def _check_packs(model: nn.Module, halves: CausalLM, *, dense: bool = False) -> None:
    device, vocabulary = halves.head.weight.device, len(halves.head.weight)
    samples = [_make_probe(prompt, response, vocabulary) for prompt, response in PROBES]
    packs = [pack(samples, token_budget=100, gate=0.0, share=share)[0] for share in (True, False)]
    packed_logps = [
        _compute_token_logps(halves, packed.to(device), Tiling(rows=100), dense=dense)[0] for packed in packs
    ]
    expected = torch.cat([_compute_own_logps(model, sample, device) for sample in samples])
    for logps in packed_logps:
        _check_close(halves, logps, expected)


def _check_close(halves: CausalLM, logps: torch.Tensor, expected: torch.Tensor) -> None:
    apart = (logps - expected).abs()
    largest, mean = float(apart.max()), float(apart.mean())
    tolerance = TOLERANCE[halves.compute_dtype]
    if not (largest <= tolerance and mean <= tolerance / 4):
        raise ConfigError(
            f"{halves.name} does not run packed: log-probs of {len(expected)} tokens differ from its own forward pass "
            f"by {mean:.2g} on average, by up to {largest:.2g}; use padded rows, one a sample"
        )


def _compute_token_logps(
    halves: CausalLM, layout: Pack | PaddedRows, tiling: Tiling, *, dense: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    inputs = make_pack_inputs(halves, layout, dense=dense) if isinstance(layout, Pack) else layout.inputs
    hidden = halves.run_body(**inputs).flatten(0, 1)
    # A distribution belongs to the node, whoever asks for one of its tokens.
    predictions = layout.predictions
    logp, entropy_U = compute_head_logps(halves.head, hidden.index_select(0, predictions.node), predictions, tiling)
    # index_select, whose gradient is added up in one order; that of indexing is not, in parallel.
    logp = logp.index_select(0, predictions.back)
    row_T = predictions.row.index_select(0, predictions.back)
    return logp, None if entropy_U is None else entropy_U.index_select(0, row_T)


PROBES = (((1, 2, 3), (4, 5)), ((1, 2, 4), (5, 1)), ((1, 2), (5,)), ((3,), (1, 2)))
"""Prompts and responses of the comparison: a fork, a prefix that ends early, and a second tree."""


def _make_probe(prompt: tuple[int, ...], response: tuple[int, ...], vocabulary: int) -> Sample:
    return Sample(
        prompt_ids=tuple(token % vocabulary for token in prompt),
        response_ids=tuple(token % vocabulary for token in response),
        advantage=0.0,
        trajectory=0,
        step=0,
        group=0,
    )


def _compute_own_logps(model: nn.Module, sample: Sample, device: torch.device) -> torch.Tensor:
    """Log-probs of a sample's response by the model's own forward pass."""
    tokens = torch.tensor([sample.token_ids], device=device)
    logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits[0].float()
    sampled = torch.tensor(sample.response_ids, device=device)
    logp: torch.Tensor = logits[len(sample.prompt_ids) - 1 : -1].log_softmax(-1).gather(1, sampled[:, None])[:, 0]
    return logp
