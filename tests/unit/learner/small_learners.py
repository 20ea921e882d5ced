"""Models, samples, losses and learners of the tests of the sharded learner, small enough for a second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from groupwise.data.samples import Sample, count_totals
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.learner.sharded import RankLearner, open_rank
from groupwise.learner.shards import put_together
from groupwise.losses import Kl, LossResult, PolicyLoss
from groupwise.methods.seeupo import LastTurnFirst
from groupwise.models import TinyModel
from groupwise.parts.part import Part
from groupwise.parts.slots import Critic, Loss
from tests.unit.learner.learners import WORDS

BUDGET = 48
PAIR = (((2, 4, 5), (6, 7)),)
SHORT_PAIR = (((2, 4, 5), (3, 4)),)
LONG_AND_SHORT = (((2, 4, 5), (6, 7, 4, 5) * 8), ((2,), (3, 4)), ((2, 4, 5), (6, 3)), ((2, 6), (4,)))
Gradients = dict[str, Any]
UNEVEN = (7, 1)
"""Rollouts of each group: many more for one rank than for the other."""


UNCLIPPED: dict[str, Any] = {"max_grad_norm": "off", "eps": 1.0}
"""A step in which the length of the gradient shows: AdamW's own is the same whatever the length where eps is small."""


def tiny_model(*, tied: bool = False, hidden: int = 32, seed: int = 0) -> Any:
    model, _ = TinyModel(hidden=hidden, layers=2, heads=2).open(words=WORDS, seed=seed)
    if tied:
        model.config.tie_word_embeddings = True
        model.lm_head.weight = model.get_input_embeddings().weight
    return model


def make_adapted_model(dtype: str) -> Any:
    """A model that does not train, with an adapter in float32 that does."""
    from peft import LoraConfig, get_peft_model

    model = tiny_model().to(getattr(torch, dtype))
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))


def make_samples(groups: Sequence[int], *, seed: int = 0, vocabulary: int = 12) -> list[Sample]:
    """So many rollouts of each group, whose prompts grow step by step."""
    rng, samples, trajectory = np.random.default_rng(seed), list[Sample](), 0
    for group, rollouts in enumerate(groups):
        opening = tuple(int(token) for token in rng.integers(2, vocabulary, 12))
        for _ in range(rollouts):
            past = opening
            for step in range(2):
                response = tuple(int(token) for token in rng.integers(2, vocabulary, int(rng.integers(2, 6))))
                samples.append(
                    Sample(
                        prompt_ids=past,
                        response_ids=response,
                        advantage=float(rng.normal()),
                        logp_behaviour=tuple(float(logp) for logp in rng.normal(-2.5, 0.1, len(response))),
                        trajectory=trajectory,
                        step=step,
                        group=group,
                    )
                )
                past += (*response, 3)
            trajectory += 1
    return samples


def make_loss(name: str) -> Loss:
    losses = {
        "policy": lambda: PolicyLoss(),
        "reference": lambda: PolicyLoss(penalties=(Kl(weight=0.1),)),
        "first pass": Centred,
        "turns in an order": lambda: LastTurnFirst(),
    }
    return losses[name]()


class Centred(Part, slot="loss"):
    """Squared distance of every token's log-prob from the mean over the whole optimizer step."""

    needs: ClassVar[frozenset[str]] = frozenset()
    unit: ClassVar[str] = "sample"

    def first_pass(self, columns: Any, totals: Any) -> Any:
        return columns.logp.sum()

    def __call__(self, columns: Any, totals: Any, summary: Any) -> LossResult:
        loss = (columns.logp - summary / totals.tokens).square().sum() / totals.tokens
        return LossResult(loss=loss, metrics={})


class NotANumber(PolicyLoss):
    """A loss that is NaN where a trajectory is."""

    broken: ClassVar[int] = 0

    def __call__(self, columns: Any, totals: Any) -> LossResult:
        result = super().__call__(columns, totals)
        is_hit = bool((columns.trajectory == self.broken).any())
        return LossResult(loss=result.loss * float("nan") if is_hit else result.loss, metrics=result.metrics)


class Zeroed(PolicyLoss):
    """A loss that rank 1 forgets."""

    def __call__(self, columns: Any, totals: Any) -> LossResult:
        result = super().__call__(columns, totals)
        return LossResult(loss=result.loss * float(torch.distributed.get_rank() != 1), metrics=result.metrics)


class Raising(PolicyLoss):
    """A loss that raises on rank 1 alone."""

    def __call__(self, columns: Any, totals: Any) -> LossResult:
        if torch.distributed.get_rank() == 1:
            raise ValueError("this rank has no luck")
        return super().__call__(columns, totals)


class Exiting(PolicyLoss):
    """A loss that ends rank 1 without a word."""

    def __call__(self, columns: Any, totals: Any) -> LossResult:
        if torch.distributed.get_rank() == 1:
            os._exit(3)
        return super().__call__(columns, totals)


def open_own(
    loss: Loss, *, tied: bool = False, model: Any = None, critic: Critic | None = None, **settings: Any
) -> RankLearner:
    config = ShardedLearnerConfig(**{"learning_rate": 1e-2, "token_budget": BUDGET, "timeout": 60.0, **settings})
    whole = (model or tiny_model(tied=tied)) if torch.distributed.get_rank() == 0 else None
    return open_rank(whole, loss, config, temperature=1.0, device=torch.device("cpu"), critic=critic)


def open_local(loss: Loss, *, tied: bool = False, **settings: Any) -> LocalLearner:
    config = LearnerConfig(**{"learning_rate": 1e-2, "token_budget": BUDGET, **settings})
    return LocalLearner(tiny_model(tied=tied), loss, config)


def watch_gradient(learner: LocalLearner) -> Gradients:
    """The gradient of the last optimizer step, whole, as it was before clipping."""
    gradients: Gradients = {}
    apply = learner._apply

    def note_and_apply() -> float:
        for name, value in learner._trained.items():
            if value.grad is not None:
                gradients[name] = put_together(value.grad).clone().numpy()
        return apply()

    learner._apply = note_and_apply  # type: ignore[method-assign]
    return gradients


def learn_locally(
    loss: Loss, samples: Sequence[Sample], *, tied: bool = False, **settings: Any
) -> tuple[dict[str, float], Gradients]:
    learner = open_local(loss, tied=tied, **settings)
    gradients = watch_gradient(learner)
    return learner.learn(samples, count_totals(samples, max_tokens=8)).metrics, gradients
