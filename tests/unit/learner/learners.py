"""Small learners and samples for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from groupwise import methods
from groupwise.data.samples import Sample, Totals
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.models import TinyModel
from groupwise.parts.slots import Loss

WORDS = ("alpha", "bravo", "charlie")


def tiny(**changes: Any) -> tuple[Any, Any]:
    """A model of one layer and its tokenizer, the same each time."""
    return TinyModel(**{"hidden": 16, "layers": 1, **changes}).open(words=WORDS, seed=0)


def learner(model: Any = None, loss: Loss | None = None, **config: Any) -> LocalLearner:
    loss = loss or methods.dr_grpo().loss
    assert loss is not None
    return LocalLearner(model or tiny()[0], loss, LearnerConfig(**{"learning_rate": 1e-2, **config}))


def single_steps(*advantages: float) -> list[Sample]:
    """A rollout of one step for each advantage."""
    return [
        Sample(
            prompt_ids=(2, 4 + i % 3),
            response_ids=(5, 3),
            advantage=advantage,
            logp_behaviour=(-1.0, -1.0),
            trajectory=i,
            step=0,
            group=0,
        )
        for i, advantage in enumerate(advantages)
    ]


def rollouts(num: int = 4, steps: int = 3) -> list[Sample]:
    """Rollouts of several steps whose prompts grow, with tokens, credit and log-probs that all differ."""
    samples = []
    for trajectory in range(num):
        past: tuple[int, ...] = (2, 4)
        for step in range(steps + trajectory % 2):
            response = tuple(4 + (trajectory * 5 + step * 3 + i) % 12 for i in range(1 + (trajectory + step) % 3))
            samples.append(
                Sample(
                    prompt_ids=past,
                    response_ids=response,
                    advantage=(-1.0) ** trajectory * (0.5 + 0.25 * step),
                    logp_behaviour=tuple(-2.5 - 0.1 * trajectory - 0.05 * i for i in range(len(response))),
                    trajectory=trajectory,
                    step=step,
                    group=0,
                )
            )
            past += (*response, 3, 5 + step)
    return samples


def totals(samples: Sequence[Sample]) -> Totals:
    return Totals.count(
        tokens=[sample.num_trained for sample in samples],
        trajectory=[sample.trajectory for sample in samples],
        step=[sample.step for sample in samples],
        group=[sample.group for sample in samples],
        max_tokens=4,
    )


def logps(model: Any, samples: Sequence[Sample]) -> torch.Tensor:
    """Log-probs of all sampled tokens, one sample at a time through the model's own forward pass."""
    by_sample = []
    with torch.no_grad():
        for sample in samples:
            ids = torch.tensor([sample.token_ids])
            every = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1].log_softmax(-1)
            by_sample.append(every.gather(1, torch.tensor(sample.response_ids)[:, None])[:, 0])
    return torch.cat(by_sample)


def gradient(made: LocalLearner, samples: Sequence[Sample]) -> tuple[float, torch.Tensor]:
    """The loss of one optimizer step and its gradient, before it is applied."""
    gradients: list[torch.Tensor] = []

    def keep(*_: object) -> None:
        gradients.append(
            torch.cat([value.grad.flatten().clone() for value in made.model.parameters() if value.requires_grad])
        )

    hook = made.optimizer.register_step_pre_hook(keep)
    loss = made.learn(samples, totals(samples)).metrics["loss/total"]
    hook.remove()
    return loss, gradients[0]
