"""Short ways to write the few tokens that the unit tests work out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from groupwise.data.samples import Totals
from groupwise.losses import TokenColumns


def columns(
    logp: Sequence[float],
    *,
    old: Sequence[float] | None = None,
    behaviour: Sequence[float] | None = None,
    ref: Sequence[float] | None = None,
    entropy: Sequence[float] | None = None,
    advantage: Sequence[float] | float = 1.0,
    mask: Sequence[bool] | None = None,
    sample: Sequence[int] | None = None,
    step: Sequence[int] | None = None,
    trajectory: Sequence[int] | None = None,
    off_policy: Sequence[bool] | None = None,
    span: Sequence[int] | None = None,
    group: Sequence[int] | None = None,
    named: Mapping[str, Sequence[float]] | None = None,
    channels: Mapping[str, Sequence[float]] | None = None,
) -> TokenColumns:
    """Columns in float64. Tokens belong to one sample of one step unless said; old and behaviour are logp itself."""
    num = len(logp)
    credit = [advantage] * num if isinstance(advantage, float | int) else advantage
    return TokenColumns(
        logp=numbers(logp).requires_grad_(),
        logp_old=numbers(old if old is not None else logp),
        logp_behaviour=numbers(behaviour if behaviour is not None else (old if old is not None else logp)),
        logp_ref=None if ref is None else numbers(ref),
        entropy=None if entropy is None else numbers(entropy).requires_grad_(),
        advantage=numbers(credit),
        mask=torch.tensor([True] * num if mask is None else mask, dtype=torch.bool),
        sample=ids(sample, num),
        step=ids(sample if step is None else step, num),
        trajectory=ids(trajectory, num),
        off_policy=None if off_policy is None else torch.tensor(list(off_policy), dtype=torch.bool),
        span=None if span is None else ids(span, num),
        group=None if group is None else ids(group, num),
        named={name: numbers(values) for name, values in (named or {}).items()},
        channels={name: numbers(values) for name, values in (channels or {}).items()},
    )


def from_ratios(ratios: Sequence[float], advantage: Sequence[float] | float = 1.0) -> TokenColumns:
    """Tokens of logp 0 that have these ratios, each a step of its own."""
    old = [-float(torch.tensor(ratio, dtype=torch.float64).log()) for ratio in ratios]
    return columns([0.0] * len(ratios), old=old, advantage=advantage, sample=range(len(ratios)))


def number(scalar: Tensor) -> float:
    return float(scalar.detach())


def numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def ids(values: Sequence[int] | None, num: int) -> Tensor:
    return torch.tensor([0] * num if values is None else list(values), dtype=torch.int64)


def totals(*lengths: int, max_tokens: int = 8) -> Totals:
    """An update of samples of these lengths, each a step of one trajectory."""
    return Totals.count(
        tokens=lengths,
        trajectory=[0] * len(lengths),
        step=range(len(lengths)),
        group=[0] * len(lengths),
        max_tokens=max_tokens,
    )


def gradient(value: Tensor, by: Tensor) -> list[float]:
    (slopes,) = torch.autograd.grad(value.sum(), by, retain_graph=True)
    return [float(number) for number in slopes]
