"""One update on a tiny model: the oracle, which knows no layout, and the same update through layouts.

The loss clips, so that a token shared by two samples with different advantages cannot be trained once with their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from groupwise.data.samples import Sample, count_totals
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import Pack, PaddedRows, spread_over_tokens

CLIP, ENTROPY_WEIGHT = 0.2, 0.05

Layout = Pack | PaddedRows


@dataclass(frozen=True, eq=False)
class Update:
    """What an update computes: log-prob and entropy by (sample, position), the loss, every parameter's gradient."""

    logp: torch.Tensor
    entropy: torch.Tensor
    loss: float
    gradients: dict[str, torch.Tensor]


def by_layout(
    model: nn.Module, samples: Sequence[Sample], layouts: Sequence[Layout], *, temperature: float, chunk: int = 5
) -> Update:
    """Accumulate the gradients of all micro-batches."""
    num_tokens = count_totals(samples, max_tokens=16).tokens
    logp, entropy = _table(samples, model), _table(samples, model)
    loss = 0.0
    model.zero_grad()
    for layout in layouts:
        logp_T, entropy_T = compute_token_logps(model, layout, temperature=temperature, chunk=chunk, entropy=True)
        assert entropy_T is not None
        term = _loss(
            logp_T,
            entropy_T,
            spread_over_tokens(layout, [sample.advantage for sample in samples]).to(logp_T.dtype),
            spread_over_tokens(layout, [sample.logp_behaviour for sample in samples]).to(logp_T.dtype),
        )
        term = term / num_tokens
        term.backward()
        loss += term.item()
        logp[layout.sample, layout.position] = logp_T.detach()
        entropy[layout.sample, layout.position] = entropy_T.detach()
    return Update(logp, entropy, loss, _gradients(model))


def by_oracle(model: nn.Module, samples: Sequence[Sample], *, temperature: float) -> Update:
    """Each sample alone through the model's own forward pass, textbook softmax and entropy of the whole logits."""
    trained = [(number, sample) for number, sample in enumerate(samples) if sample.trains and sample.response_ids]
    num_tokens = sum(len(sample.response_ids) for _, sample in trained)
    logp, entropy = _table(samples, model), _table(samples, model)
    loss = 0.0
    model.zero_grad()
    for number, sample in trained:
        tokens = torch.tensor([sample.prompt_ids + sample.response_ids])
        logits = model(input_ids=tokens).logits[0, len(sample.prompt_ids) - 1 : -1] / temperature
        log_p = logits.log_softmax(-1)
        logp_T = log_p[torch.arange(len(log_p)), torch.tensor(sample.response_ids)]
        entropy_T = -(log_p.exp() * log_p).sum(-1)
        given = sample.advantage if isinstance(sample.advantage, tuple) else (sample.advantage,) * len(logp_T)
        term = _loss(logp_T, entropy_T, logp_T.new_tensor(given), logp_T.new_tensor(sample.logp_behaviour))
        term = term / num_tokens
        term.backward()
        loss += term.item()
        logp[number, : len(logp_T)] = logp_T.detach()
        entropy[number, : len(logp_T)] = entropy_T.detach()
    return Update(logp, entropy, loss, _gradients(model))


def worst_gradient(update: Update, expected: Update) -> float:
    """Largest relative error of a parameter's gradient, as norms."""
    assert update.gradients.keys() == expected.gradients.keys()
    return max(
        float((update.gradients[name] - gradient).norm() / gradient.norm())
        for name, gradient in expected.gradients.items()
    )


def whole_gradient(update: Update, expected: Update) -> float:
    """Relative error of the gradient as one vector."""
    ours, theirs = (
        torch.cat([each.gradients[name].flatten() for name in expected.gradients]) for each in (update, expected)
    )
    return float((ours - theirs).norm() / theirs.norm())


def _loss(
    logp_T: torch.Tensor, entropy_T: torch.Tensor, advantage_T: torch.Tensor, logp_behaviour_T: torch.Tensor
) -> torch.Tensor:
    ratio_T = (logp_T - logp_behaviour_T).exp()
    clipped_T = ratio_T.clamp(1 - CLIP, 1 + CLIP)
    surrogate_T = torch.minimum(ratio_T * advantage_T, clipped_T * advantage_T)
    return -(surrogate_T + ENTROPY_WEIGHT * entropy_T).sum()


def _table(samples: Sequence[Sample], model: nn.Module) -> torch.Tensor:
    dtype = next(model.parameters()).dtype
    return torch.zeros(len(samples), max(len(sample.response_ids) for sample in samples), dtype=dtype)


def _gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
