"""Oracle of learning turns in reverse: one turn of all rollouts after the other, each with steps of its own.

Plain loops and autograd, one sample at a time through the model's own forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from groupwise.data.samples import Sample
from tests.oracles.losses import Token


def learn_turns(
    model: Any, samples: Sequence[Sample], *, stages: Sequence[Sequence[int]], width: float, optimizer: Any, passes: int
) -> dict[int, float]:
    """Learn the turns of each stage with clipped ratios of whole answers; the factor of each rollout at the end."""
    old = [say(model, sample).detach() for sample in samples]
    factor = {sample.trajectory: 1.0 for sample in samples}
    for turns in stages:
        own = [number for number, sample in enumerate(samples) if sample.step in turns]
        credit = {number: samples[number].advantage * factor[samples[number].trajectory] for number in own}
        for _ in range(passes):
            total = torch.zeros(())
            for number in own:
                ratio = (say(model, samples[number]) - old[number]).mean().exp()
                bounded = ratio.clamp(1 - width, 1 + width)
                total = total + torch.maximum(-credit[number] * ratio, -credit[number] * bounded)
            optimizer.zero_grad()
            (total / len(own)).backward()
            optimizer.step()
        for number in own:
            change = float((say(model, samples[number]).detach() - old[number]).sum())
            factor[samples[number].trajectory] *= min(max(math.exp(change), 0.5), 2.0)
    return factor


def say(model: Any, sample: Sample) -> Tensor:
    """The log-probs of a response."""
    ids = torch.tensor([sample.token_ids])
    every = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1].log_softmax(-1)
    return every.gather(1, torch.tensor(sample.response_ids)[:, None])[:, 0]


def factor_of_turns(tokens: Sequence[Token], *, low: float, high: float) -> dict[int, float]:
    """By what each trajectory's credit is multiplied; a turn of log-ratios 0.1, -0.07: exp(0.03) = 1.0305."""
    changes: dict[tuple[int, int], list[float]] = {}
    for token in tokens:
        if token.trains:
            changes.setdefault((token.trajectory, token.step), []).append(token.logp - token.old)
    factors: dict[int, float] = {}
    for (trajectory, _), values in changes.items():
        change = math.fsum(values)
        own = low if change < math.log(low) else high if change > math.log(high) else math.exp(change)
        factors[trajectory] = factors.get(trajectory, 1.0) * own
    return factors
