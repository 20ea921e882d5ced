"""The learner: it turns samples into optimiser steps, and knows no method by name.

Axis: T trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from groupwise.batching import totals as count
from groupwise.batching.causal_lm import CausalLM
from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.parts import Loss
from groupwise.core.sample import Sample
from groupwise.core.segments import FloatArray
from groupwise.core.totals import Totals
from groupwise.losses.columns import ENTROPY, OLD_LOGP, REFERENCE_LOGP, TokenColumns
from groupwise.losses.policy_loss import Tally
from groupwise.training.forward import Forward
from groupwise.training.learner_config import LearnerConfig
from groupwise.training.micro_batches import MicroBatch, check_logps, micro_batches
from groupwise.training.reference import Reference

Pair = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, and of a response to it."""

CAUSES = ("advantage", "logp_behaviour", "logp_old", "logp_ref", "logp", "entropy")
"""Columns in which the cause of a loss that is not finite is looked for, inputs first."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What one update did."""

    metrics: dict[str, float]
    """The loss and what the loss measured, the gradient, the step size."""


class Learner:
    """A model, its optimiser, and the one thing they do."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        keeps_reference: bool = False,
    ) -> None:
        _check_trainable(model)
        self.forward = Forward(model, config)
        self.model = self.forward.model
        self._loss, self._config, self._temperature = loss, config, temperature
        self._trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._reference = Reference(model) if keeps_reference or REFERENCE_LOGP in loss.needs else None
        self.optimiser = torch.optim.AdamW(
            self._trained.values(),
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,  # one pass over the weights instead of one an operation: a fifth of the time on a CPU
        )
        self.steps = 0

    @property
    def has_reference(self) -> bool:
        """Whether the loss, or a measure, compares with the policy the run started from."""
        return self._reference is not None

    def hold_reference(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take weights as the reference policy: those the run started from. Without it, those the learner was given."""
        if self._reference is not None:
            self._reference.hold(weights)

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, for the engine."""
        return {name: value.detach() for name, value in self._trained.items()}

    @torch.no_grad()
    def logps(
        self, pairs: Sequence[Pair], *, temperature: float = 1.0, weights: Literal["current", "reference"] = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, one pair at a time through the model's own pass."""
        if weights == "current":
            return [self._logp(prompt, response, temperature) for prompt, response in pairs]
        if self._reference is None:
            raise TrainingError("the learner keeps no reference policy; a measure that asks for it declares the need")
        with self._reference.in_place():
            return [self._logp(prompt, response, temperature) for prompt, response in pairs]

    def _logp(self, prompt: Sequence[int], response: Sequence[int], temperature: float) -> tuple[float, ...]:
        ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
        logits = self.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float() / temperature
        return tuple(logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist())

    @torch.no_grad()
    def hidden_states(self, pairs: Sequence[Pair]) -> list[FloatArray]:
        """The last hidden state at each response token, for (prompt, response) pairs: tokens by width, in float64."""
        body, found = CausalLM.of(self.model), []
        for prompt, response in pairs:
            ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
            hidden = body.hidden_states(input_ids=ids)[0, len(prompt) :]
            found.append(hidden.double().cpu().numpy())
        return found

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        """Make an update's optimiser steps."""
        config = self._config
        batches = _minibatches([sample for sample in samples if sample.num_trained], config.minibatches)
        if not batches:
            raise TrainingError("no sample of the update trains; leave the update out")
        shares = [totals] if len(batches) == 1 else [count(batch, max_tokens=totals.max_tokens) for batch in batches]
        is_single = config.passes * len(batches) == 1
        check_logps(samples)
        heard = [self._heard(batch) for batch in batches]
        # The shortest where nobody is heard: the optimiser goes on by what it remembers.
        computed = [some or [min(every, key=_num_tokens)] for some, every in zip(heard, batches, strict=True)]
        packed = [self._scored(self._micro_batches(batch), is_single=is_single) for batch in computed]
        tallies: dict[str, Tally] = {}
        done = [
            self._step(micros, share, tallies)
            for _ in range(config.passes)
            for micros, share in zip(packed, shares, strict=True)
        ]
        losses, norms = zip(*done, strict=True)
        found = {
            "loss/total": sum(losses) / len(losses),
            "learner/grad_norm": sum(norms) / len(norms),
            "learner/learning_rate": self.optimiser.param_groups[0]["lr"],
            "learner/optimiser_steps": float(self.steps),
            "learner/computed": sum(map(len, heard)) / sum(map(len, batches)),
        }
        if any(heard):  # what nobody measured is left out: it is not 0
            found |= {name: tally.mean for name, tally in tallies.items() if tally.count}
            found["learner/token_ratio"] = _token_ratio(packed)
        return Learned(metrics=found)

    def _heard(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples that can move the weights."""
        if not getattr(self._loss, "ignores_zero_credit", False):  # a loss from elsewhere may not say
            return samples
        return [one for one in samples if np.any(one.of_trained(one.advantage))]

    def _micro_batches(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        layouts = self.forward.lay_out(samples, token_budget=self._config.token_budget, unit=self._loss.unit)
        return micro_batches(samples, layouts)

    @torch.no_grad()
    def _scored(self, micros: Sequence[MicroBatch], *, is_single: bool) -> list[MicroBatch]:
        """Micro-batches with the log-probs that later steps are measured against; a single step is its own measure."""
        found = list(micros)
        if OLD_LOGP in self._loss.needs and not is_single:
            found = [replace(micro, logp_old=self._logps(micro)) for micro in found]
        if REFERENCE_LOGP in self._loss.needs:
            assert self._reference is not None, "it is held where the loss needs it"
            with self._reference.in_place():
                found = [replace(micro, logp_ref=self._logps(micro)) for micro in found]
        return found

    def _logps(self, micro: MicroBatch) -> torch.Tensor:
        return self.forward(micro.layout, temperature=self._temperature)[0]

    def _step(self, micros: Sequence[MicroBatch], totals: Totals, tallies: dict[str, Tally]) -> tuple[float, float]:
        """One optimiser step over the micro-batches of a mini-batch: its loss and the length of its gradient."""
        total = 0.0
        for micro in micros:
            logp_T, entropy_T = self.forward(
                micro.layout, temperature=self._temperature, entropy=ENTROPY in self._loss.needs
            )
            columns = micro.columns(logp_T, entropy_T)
            if columns.logp_old is None:
                columns = replace(columns, logp_old=logp_T.detach())
            result = self._loss(columns, totals)
            share = float(result.loss.detach())
            if not math.isfinite(share):
                self._refuse(f"the loss is not finite ({share}{_cause(columns)})")
            result.loss.backward()
            total += share
            for name, tally in result.metrics.items():
                tallies[name] = tallies[name] + tally if name in tallies else tally
        return total, self._apply()

    def _apply(self) -> float:
        """Check, clip and apply the gradient; its length before clipping."""
        gradients = [value.grad for value in self._trained.values() if value.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if not math.isfinite(norm):
            spoilt = (name for name, value in self._trained.items() if _is_spoilt(value.grad))
            self._refuse(f"the gradient is not finite ({float(norm)}, first in {next(spoilt, 'the sum of all')})")
        nn.utils.clip_grads_with_norm_(self._trained.values(), self._config.max_grad_norm, norm)
        for group in self.optimiser.param_groups:
            group["lr"] = self._config.learning_rate * self._config.schedule(self.steps)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps += 1
        return float(norm)

    def _refuse(self, what: str) -> NoReturn:
        self.optimiser.zero_grad(set_to_none=True)
        raise TrainingError(
            f"optimiser step {self.steps + 1}: {what}; weights and optimiser were left as they were. Lower the "
            "learning rate, or look at this update's rewards"
        )


def _check_trainable(model: PreTrainedModel) -> None:
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise ConfigError("the model has no weight that trains; load it without freezing, or with a LoRA adapter")
    narrow = next((name for name, value in trained.items() if value.dtype.itemsize < 4), None)
    if narrow is not None:
        kind = str(trained[narrow].dtype).removeprefix("torch.")
        raise ConfigError(
            f"{narrow} would train in {kind}, where small steps are rounded away; load the model in float32, or train "
            "a LoRA adapter on it (model.lora_rank), whose weights are float32"
        )
    if getattr(model, "is_gradient_checkpointing", False):
        raise ConfigError(
            "gradient checkpointing was turned on for the whole model, which works in training mode only, in which "
            "dropout is on; turn it off and set training.learner.checkpoint_layers instead"
        )


def _minibatches(samples: Sequence[Sample], num: int) -> list[list[Sample]]:
    """The samples of each mini-batch: whole groups, dealt out in turn, since members of a group share their prefixes.

    Where there are fewer groups than mini-batches, whole trajectories.
    """
    by_group = len({sample.group for sample in samples}) >= num
    kinds = [sample.group if by_group else sample.trajectory for sample in samples]
    place = {kind: i % num for i, kind in enumerate(dict.fromkeys(kinds))}
    found: list[list[Sample]] = [[] for _ in range(num)]
    for kind, sample in zip(kinds, samples, strict=True):
        found[place[kind]].append(sample)
    return [batch for batch in found if batch]


def _num_tokens(sample: Sample) -> int:
    return len(sample.token_ids)


def _token_ratio(packed: Sequence[Sequence[MicroBatch]]) -> float:
    """Tokens of the samples over tokens computed for them: above 1 where prefixes are shared, below where rows pad."""
    layouts = [micro.layout for micros in packed for micro in micros]
    return sum(layout.raw_tokens for layout in layouts) / sum(len(layout) for layout in layouts)


def _cause(columns: TokenColumns) -> str:
    """Where a loss that is not finite comes from, in words; nothing where each column is sound by itself."""
    for name in CAUSES:
        column_T = getattr(columns, name)
        bad = [] if column_T is None else (~column_T.detach().isfinite()).nonzero()[:, 0].tolist()
        if bad:
            trajectory, step = int(columns.trajectory[bad[0]]), int(columns.step[bad[0]])
            return f": trajectory {trajectory}, step {step} has {name} {float(column_T[bad[0]])}"
    return ""


def _is_spoilt(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and not bool(gradient.isfinite().all())
