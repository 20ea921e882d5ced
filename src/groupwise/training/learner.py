"""The learner: it turns samples into one optimiser step, and knows no method by name.

Axis: T trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from groupwise.batching import Pack, pack, token_logps
from groupwise.batching import totals as count
from groupwise.core.errors import TrainingError
from groupwise.core.parts import Loss
from groupwise.core.sample import Sample
from groupwise.core.totals import Totals
from groupwise.losses.columns import ENTROPY, REFERENCE_LOGP, TokenColumns
from groupwise.losses.policy_loss import Tally
from groupwise.training.learner_config import LearnerConfig


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What one update did."""

    metrics: dict[str, float]
    """The loss and what the loss measured."""


class Learner:
    """A model, its optimiser, and the one thing they do."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        reference: PreTrainedModel | None = None,
    ) -> None:
        if REFERENCE_LOGP in loss.needs and reference is None:
            raise TrainingError(
                "the loss needs a reference model and none was given; set its penalty's weight to 0, or give one"
            )
        self.model = model.train()
        self._loss, self._config = loss, config
        self._temperature, self._reference = temperature, reference
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(
            self._trained, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay
        )
        self.steps = 0

    def hold_reference(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take weights as the reference policy: those the run started from."""
        if self._reference is not None:
            self._reference.load_state_dict(weights, strict=False)  # tied weights are stored once

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, for the engine."""
        return {name: value.detach() for name, value in self.model.named_parameters() if value.requires_grad}

    def learn(self, samples: Sequence[Sample], totals_of: Totals) -> Learned:
        """Make an update's optimiser steps."""
        config = self._config
        old = self._score(samples) if config.passes * config.minibatches > 1 else None
        reference = self._score(samples, self._reference) if self._reference is not None else None
        metrics: dict[str, Tally] = {}
        losses: list[float] = []
        norms: list[float] = []
        for batch in _minibatches(samples, config.minibatches) * config.passes:
            totals = (
                totals_of
                if config.minibatches == 1
                else count([samples[number] for number in batch], max_tokens=totals_of.max_tokens)
            )
            loss, norm = self._step(samples, batch, totals, old, reference, metrics)
            losses.append(loss)
            norms.append(norm)
        found = {name: tally.mean for name, tally in metrics.items()}
        return Learned(
            metrics=found | {"loss/total": sum(losses) / len(losses), "learner/grad_norm": sum(norms) / len(norms)}
        )

    def _step(
        self,
        samples: Sequence[Sample],
        batch: Sequence[int],
        totals: Totals,
        old: Mapping[int, torch.Tensor] | None,
        reference: Mapping[int, torch.Tensor] | None,
        metrics: dict[str, Tally],
    ) -> tuple[float, float]:
        """One optimiser step over the micro-batches of a mini-batch."""
        chosen = [samples[number] for number in batch]
        total = 0.0
        for micro in self._packs(chosen):
            logp_T, entropy_T = token_logps(
                self.model, micro, temperature=self._temperature, entropy=ENTROPY in self._loss.needs
            )
            columns = _columns(chosen, batch, micro, logp_T, entropy_T, old, reference)
            result = self._loss(columns, totals)
            result.loss.backward()
            total += float(result.loss.detach())
            for name, tally in result.metrics.items():
                metrics[name] = metrics[name] + tally if name in metrics else tally
        return total, self._apply(total)

    def _apply(self, loss: float) -> float:
        """Check, clip and apply the gradient; its length before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, self._config.max_grad_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimiser.zero_grad(set_to_none=True)
            what = "loss" if not math.isfinite(loss) else "gradient"
            raise TrainingError(
                f"optimiser step {self.steps + 1}: the {what} is not finite (loss {loss}, gradient {norm}); the "
                "weights were left as they were. Lower the learning rate, or look at this update's rewards"
            )
        for group in self.optimiser.param_groups:
            warm = min(1.0, (self.steps + 1) / max(self._config.warmup_updates, 1))
            group["lr"] = self._config.learning_rate * warm
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps += 1
        return norm

    @torch.no_grad()
    def _score(self, samples: Sequence[Sample], model: PreTrainedModel | None = None) -> dict[int, torch.Tensor]:
        """Log-probs of every sample's tokens, by sample."""
        found: dict[int, torch.Tensor] = {}
        for micro in self._packs(samples):
            logp_T, _ = token_logps(model or self.model, micro, temperature=self._temperature)
            for member in micro.members:
                found[member] = logp_T[micro.sample == member]
        return found

    def _packs(self, samples: Sequence[Sample]) -> list[Pack]:
        device = next(self.model.parameters()).device
        found = pack(samples, token_budget=self._config.token_budget, share=self._config.share_prefixes)
        return [micro.to(device) for micro in found]


def _columns(
    chosen: Sequence[Sample],
    batch: Sequence[int],
    micro: Pack,
    logp_T: torch.Tensor,
    entropy_T: torch.Tensor | None,
    old: Mapping[int, torch.Tensor] | None,
    reference: Mapping[int, torch.Tensor] | None,
) -> TokenColumns:
    """What the loss sees of a micro-batch. Without a score of its own, the old policy is the current one."""
    members = micro.members

    def per_token(values: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(values)).to(logp_T)

    def spread(numbers: Sequence[int]) -> torch.Tensor:
        lengths = torch.tensor([len(chosen[member].response_ids) for member in members])
        return torch.repeat_interleave(torch.tensor(numbers), lengths).to(logp_T.device)

    return TokenColumns(
        logp=logp_T,
        entropy=entropy_T,
        logp_behaviour=per_token([torch.tensor(chosen[member].logp_behaviour) for member in members]),
        logp_old=logp_T.detach() if old is None else per_token([old[batch[member]] for member in members]),
        logp_ref=None if reference is None else per_token([reference[batch[member]] for member in members]),
        advantage=per_token([_advantage(chosen[member]) for member in members]),
        mask=torch.ones_like(logp_T, dtype=torch.bool),
        sample=micro.sample,
        step=spread([chosen[member].step for member in members]),
        trajectory=spread([chosen[member].trajectory for member in members]),
    )


def _advantage(sample: Sample) -> torch.Tensor:
    if isinstance(sample.advantage, tuple):
        return torch.tensor(sample.advantage)
    return torch.full((len(sample.response_ids),), float(sample.advantage))


def _minibatches(samples: Sequence[Sample], num: int) -> list[list[int]]:
    """Numbers of the samples of each mini-batch; whole trajectories, dealt out in turn."""
    trajectories = sorted({sample.trajectory for sample in samples})
    place = {trajectory: i % num for i, trajectory in enumerate(trajectories)}
    found: list[list[int]] = [[] for _ in range(num)]
    for number, sample in enumerate(samples):
        found[place[sample.trajectory]].append(number)
    return [batch for batch in found if batch]
