"""The local learner: one process, one model. It turns samples into optimizer steps for any method.

Axis: T trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from groupwise.data.samples import (
    PolicyRole,
    PromptAndResponse,
    Sample,
    Totals,
    count_totals,
    find_training,
    keep_trained,
)
from groupwise.data.seeds import seed_of
from groupwise.data.segments import FloatArray
from groupwise.learner import local_files
from groupwise.learner.config import LearnerConfig
from groupwise.learner.critic import LocalCritic, copy_trunk, read_critic, save_critic
from groupwise.learner.micro_batches import MicroBatch, make_micro_batches, scale_credit, split_into_stages
from groupwise.learner.optimizers import find_norm, measure_length, open_optimizer
from groupwise.learner.protocol import Learned, ReportEpoch
from groupwise.losses.policy_loss import Tally
from groupwise.losses.token_columns import ENTROPY, OLD_LOGP, REFERENCE_LOGP, TokenColumns
from groupwise.models.causal_lm import CausalLM
from groupwise.models.folder import save_model
from groupwise.models.forward import Forward
from groupwise.models.pack import spread_over_tokens
from groupwise.models.quantised import is_quantised, merge_quantised
from groupwise.parts.part import name_of
from groupwise.parts.slots import Critic, Loss
from groupwise.system.errors import ConfigError, RecordError, TrainingError
from groupwise.system.text import describe_value

if TYPE_CHECKING:
    from groupwise.training.config.run_config import WarmStartConfig

CAUSES = ("advantage", "logp_behaviour", "logp_old", "logp_ref", "logp", "entropy")
"""Columns that are searched for the cause of a loss that is not finite, inputs first."""
WARM_UP_STEPS = 30
"""Steps of the warm start over which the learning rate grows: AdamW's first steps could otherwise ruin a new model."""

Batch = tuple[Sequence[MicroBatch], Totals]
"""The micro-batches of an optimizer step, and their totals."""


class LocalLearner:
    """A model, its loss and its optimizer."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        critic: Critic | None = None,
        forward: Forward | None = None,
    ) -> None:
        trunk = None
        if forward is None:  # a caller that passes one has checked the model already
            check_trainable(model, config)
            if critic is not None and critic.owns_trunk:
                trunk = Forward(copy_trunk(model), config)  # copied before layers are compiled
        self.forward = forward or Forward(model, config)
        self.model = self.forward.model
        self._loss, self._config, self._temperature = loss, config, temperature
        self._trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._needs = loss.needs
        self._reference = self._make_reference() if REFERENCE_LOGP in self._needs else None
        if config.apply_gradients == "as_they_come" and config.max_grad_norm != "off":
            raise ConfigError(
                f"training.learner.apply_gradients: 'as_they_come' cannot clip gradients to {config.max_grad_norm:g}, "
                "because their norm is known only once all are in memory, which takes "
                f"{describe_gradients(self._trained)}; set max_grad_norm = 'off', or apply_gradients = 'together'"
            )
        self.optimizer = open_optimizer(
            self._trained,
            config,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.steps = 0
        self._failed_mid_update: str | None = None
        self._critic: LocalCritic | None = None
        if critic is not None and forward is None:
            self._critic = LocalCritic(critic, config, trunk or self.forward, lay_out=self._micro_batches)

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.get_input_embeddings().num_embeddings)

    def hold_reference(self, folder: Path | None = None) -> None:
        """Set the reference policy: a checkpoint; None = the current weights. Before, it is the policy at the start."""
        self._check_whole()
        if self._reference is None:
            self._reference = self._make_reference()
        self._reference.hold(self.model.state_dict() if folder is None else local_files.read_weights(folder))

    def _make_reference(self) -> Reference:
        return Reference(self.model)

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, for the engine: the tensors themselves, not copies."""
        self._check_whole()
        return {name: value.detach() for name, value in self._trained.items()}

    @torch.no_grad()
    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probs of the tokens of each response, one pair at a time through the model's own forward pass."""
        self._check_whole()
        if weights == "reference" and self._reference is None:
            raise TrainingError("the learner keeps no reference policy; call hold_reference first")
        scores: list[tuple[float, ...]] = []
        with self._reference.in_place() if weights == "reference" and self._reference else nullcontext():
            for prompt, response in pairs:
                ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
                # The model is in evaluation mode: no dropout.
                logits = self.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
                if temperature != 1:
                    logits = logits / temperature
                scores.append(tuple(logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()))
        return scores

    @torch.no_grad()
    def entropies(self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Entropies of the tokens of each response, packed like the samples of an update."""
        self._check_whole()
        entropies = [[0.0] * len(response) for _, response in pairs]
        for micro in self._micro_batches(make_unweighted_samples(pairs)) if pairs else ():
            _, entropy_T = self.forward(micro.layout, temperature=temperature, entropy=True)
            assert entropy_T is not None, "asked for"
            places = zip(micro.trajectory.tolist(), micro.layout.position.tolist(), strict=True)
            for (number, position), entropy in zip(places, entropy_T.tolist(), strict=True):
                entropies[number][position] = entropy
        return list(map(tuple, entropies))

    def save(self, folder: Path) -> None:
        self._check_whole()
        save_model(self.model, folder)
        local_files.save_optimizer(folder, local_files.name_optimizer_tensors(self.model, self.optimizer))
        if self._critic is not None:
            save_critic(folder, self._critic.tensors())

    def load(self, folder: Path, *, steps: int) -> None:
        weights, moments = local_files.read_checkpoint_tensors(folder, self.model, self.optimizer)
        if self._critic is not None:
            self._critic.load(read_critic(folder, self._critic).items())
        self.model.load_state_dict(weights, strict=False)
        local_files.put_optimizer_tensors(self.model, self.optimizer, moments)
        self.optimizer.zero_grad(set_to_none=True)  # left by a backward pass that failed
        self.steps, self._failed_mid_update = steps, None

    def export(self, folder: Path) -> None:
        """Write the model in the Hugging Face layout, with an adapter merged into it; afterwards it cannot train.

        Layers in four bits are dequantized.
        """
        self._check_whole()
        model: Any = self.model
        if is_quantised(model):
            whole = merge_quantised(model)
        else:
            whole = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
        save_model(whole, folder)

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        """Supervised fine-tuning with an optimizer of its own; returns the mean loss of each epoch."""
        self._check_whole()
        optimizer = open_optimizer(
            self._trained, self._config, lr=settings.learning_rate, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01
        )
        layouts = self.forward.lay_out(samples, token_budget=settings.batch_tokens, unit="sample")
        advantages = [sample.advantage for sample in samples]
        weighted = [(layout, spread_over_tokens(layout, advantages)) for layout in layouts]
        losses: list[float] = []
        for epoch in range(settings.epochs):
            Random(seed_of(seed, "warm start", epoch)).shuffle(weighted)
            total = weight = 0.0
            for number, (layout, weight_T) in enumerate(weighted):
                done, steps = epoch * len(weighted) + number, settings.epochs * len(weighted)
                # A short warm-up, then a cosine down to a twentieth.
                fall = 0.05 + 0.95 * (1 + math.cos(math.pi * done / steps)) / 2
                for group in optimizer.param_groups:
                    group["lr"] = settings.learning_rate * (min(1.0, (done + 1) / WARM_UP_STEPS) * fall)
                logp_T, _ = self.forward(layout)
                loss = -(weight_T * logp_T).sum()
                (loss / weight_T.sum()).backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                total, weight = total + float(loss.detach()), weight + float(weight_T.sum())
            losses.append(total / weight)
            if report is not None:
                report(tuple(losses), settings.epochs)  # a copy, so the callback cannot change it
        if self._critic is not None:
            self._critic.start_from(self.model)
        return losses

    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """What the critic says of the state before each token of each response."""
        self._check_whole()
        if self._critic is None:
            raise TrainingError("the learner has no critic; open it with one (algorithm.critic)")
        return self._critic.values(samples)

    @torch.no_grad()
    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        self._check_whole()
        body, states = CausalLM.of(self.model), []
        for prompt, response in pairs:
            ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
            hidden = body.run_body(input_ids=ids)[0, len(prompt) :]
            states.append(hidden.double().cpu().numpy())
        return states

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        self._check_whole()
        config = self._config
        whole = hasattr(self._loss, "first_pass")
        training = [samples[number] for number in find_training(samples)]
        if not training:
            raise TrainingError("no sample of the update trains; leave the update out")
        ordered = split_into_stages(self._loss, training) if hasattr(self._loss, "order_turns") else [training]
        stages = [
            _deal_minibatches(stage, config.minibatches, whole=whole)
            if config.minibatch_samples is None
            else cut_minibatches(
                stage,
                config.minibatch_samples,
                seed=seed_of("minibatches", self.steps) if config.minibatch_order == "shuffled" else None,
            )
            for stage in ordered
        ]
        batches = [batch for stage in stages for batch in stage]
        shares = [totals]
        if len(batches) > 1:
            limit, pairs = totals.max_tokens, totals.pair_members
            shares = [count_totals(batch, max_tokens=limit, pairs=pairs) for batch in batches]
        is_single = config.passes * len(batches) == 1
        for number, sample in enumerate(samples):
            if not sample.logp_behaviour and sample.num_trained:
                raise RecordError(
                    f"{sample.name}: the log-probs of its sampled tokens were not recorded; record those of the engine",
                    row=number,
                )
        with_credit = [self._with_credit(batch) for batch in batches]
        # If no sample has an advantage, the shortest one is computed: the optimizer still makes its step.
        computed = [
            some or [min(batch, key=lambda sample: len(sample.token_ids))]
            for some, batch in zip(with_credit, batches, strict=True)
        ]
        packed = [self._score_under_old_weights(self._micro_batches(batch), is_single=is_single) for batch in computed]
        num_passes = max(map(len, packed))
        if config.apply_gradients == "as_they_come" and num_passes > 1:
            raise TrainingError(
                f"training.learner.apply_gradients: 'as_they_come' needs one micro-batch per optimizer step, found "
                f"{num_passes}; adding their gradients up takes {describe_gradients(self._trained)}. Set "
                f"apply_gradients = 'together', or raise token_budget (now {config.token_budget}) or minibatches"
            )
        of_critic = {} if self._critic is None else self._critic.learn(batches, steps=self.steps)
        tallies: dict[str, Tally] = {}
        steps: list[tuple[float, float]] = []
        waiting: list[Batch] = list(zip(packed, shares, strict=True))
        for batches_of_stage in stages:
            stage, waiting = waiting[: len(batches_of_stage)], waiting[len(batches_of_stage) :]
            steps += [self._step(*batch, tallies) for _ in range(config.passes) for batch in stage]
            if waiting:  # the stage changes the advantages of those after it
                log_factor_R = self._merge_passes("carry", [micro for micros, _ in stage for micro in micros], totals)
                waiting = [
                    ([scale_credit(micro, log_factor_R) for micro in micros], share) for micros, share in waiting
                ]
        losses, norms = zip(*steps, strict=True)
        metrics = {
            "loss/total": sum(losses) / len(losses),
            "learner/grad_norm": sum(norms) / len(norms),
            "learner/learning_rate": self.optimizer.param_groups[0]["lr"],
            "learner/optimizer_steps": float(self.steps),
            "learner/computed": sum(map(len, with_credit)) / sum(map(len, batches)),
            **of_critic,
        }
        if any(with_credit):
            # A metric without tokens is left out: it is not 0.
            metrics |= {name: tally.mean for name, tally in tallies.items() if tally.count}
            raw, computed_tokens = self._count_layout_tokens(packed)
            metrics["learner/token_ratio"] = raw / computed_tokens
        return Learned(metrics=metrics)

    def _with_credit(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples whose advantages can move the weights; all, if the loss does not ignore advantages of 0."""
        if not getattr(self._loss, "ignores_zero_credit", False):  # a user's own loss may not have it
            return samples
        return [
            sample
            for sample in samples
            if any(
                np.any(keep_trained([sample], [credit])[0]) for credit in (sample.advantage, *sample.channels.values())
            )
        ]

    def _micro_batches(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        layouts = self.forward.lay_out(samples, token_budget=self._config.token_budget, unit=self._loss.unit)
        return make_micro_batches(samples, layouts)

    @torch.no_grad()
    def _score_under_old_weights(self, micros: Sequence[MicroBatch], *, is_single: bool) -> list[MicroBatch]:
        """Add log-probs under the old and the reference weights; a single optimizer step needs no old ones."""
        scored = list(micros)
        if OLD_LOGP in self._needs and not is_single:
            scored = [replace(micro, logp_old=self._score(micro)) for micro in scored]
        if REFERENCE_LOGP in self._needs:
            assert self._reference is not None, "it is held from the start if the loss needs it"
            with self._reference.in_place():
                scored = [replace(micro, logp_ref=self._score(micro)) for micro in scored]
        return scored

    def _score(self, micro: MicroBatch) -> torch.Tensor:
        return self.forward(micro.layout, temperature=self._temperature)[0]

    def _step(self, micros: Sequence[MicroBatch], totals: Totals, tallies: dict[str, Tally]) -> tuple[float, float]:
        """One optimizer step over the micro-batches of a mini-batch; returns its loss and gradient norm."""
        total = 0.0
        # A loss that is not a sum over samples (a softmax over a group, a pair, a bound on a mean) needs a first pass
        # over all micro-batches, without gradient: it gives the coefficients of the gradient.
        has_first = hasattr(self._loss, "first_pass")
        summary = [self._merge_passes("first_pass", micros, totals)] if has_first else []
        for micro in micros:
            columns = self._columns(micro)
            result = self._loss(columns, totals, *summary)
            share = float(result.loss.detach())
            if not math.isfinite(share):
                self._refuse(f"the loss is not finite ({share}{find_cause(columns)})")
            for name, tally in result.metrics.items():
                tallies[name] = tallies[name] + tally if name in tallies else tally
            if self._config.apply_gradients == "as_they_come":
                return share, self._apply_as_they_come(result.loss)
            result.loss.backward()
            total += share
        return total, self._apply()

    @torch.no_grad()
    def _merge_passes(self, method: str, micros: Sequence[MicroBatch], totals: Totals) -> Any:
        """Call a method of the loss on each micro-batch under the current weights, and merge what it returns."""
        summarize = getattr(self._loss, method)
        return merge_summaries(self._loss, (summarize(self._columns(micro), totals) for micro in micros))

    def _columns(self, micro: MicroBatch) -> TokenColumns:
        return micro.columns(*self.forward(micro.layout, temperature=self._temperature, entropy=ENTROPY in self._needs))

    def _apply(self) -> float:
        norm = self._find_norm()
        if not math.isfinite(norm):
            self._refuse(f"the gradient is not finite ({float(norm)}, first in {self._find_bad_gradient()})")
        if self._config.max_grad_norm != "off":
            nn.utils.clip_grads_with_norm_(self._trained.values(), self._config.max_grad_norm, norm)
        self._set_rate()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return float(norm)

    def _apply_as_they_come(self, loss: torch.Tensor) -> float:
        """Run the only backward pass of an optimizer step, and apply each gradient within it.

        All gradients are never in memory at once. After the first one that is not finite, none is applied.
        """
        self._set_rate()
        names: dict[torch.Tensor, str] = {value: name for name, value in self._trained.items()}
        squares, num_stepped, bad = 0.0, 0, None

        def take(value: torch.Tensor) -> None:
            nonlocal squares, num_stepped, bad
            assert value.grad is not None, "autograd calls this once the gradient is there"
            length = float(measure_length(value.grad))
            if bad is None and math.isfinite(length):
                self.optimizer.step()
                squares += length**2
                num_stepped += 1
            elif bad is None:
                bad = names[value]
            value.grad = None

        hooks = [value.register_post_accumulate_grad_hook(take) for value in self._trained.values()]
        try:
            loss.backward()
        except BaseException as error:
            self._failed_mid_update = f"the backward pass failed ({type(error).__name__})"
            raise
        finally:
            for hook in hooks:
                hook.remove()
        if bad is not None:
            self._failed_mid_update = (
                f"the gradient of {bad} is not finite, after {num_stepped} of {len(self._trained)} weights were "
                "already updated"
            )
            self._check_whole()
        self.steps += 1
        return math.sqrt(squares)

    def _check_whole(self) -> None:
        if self._failed_mid_update is not None:
            raise TrainingError(
                f"optimizer step {self.steps + 1}: {self._failed_mid_update}; continue from the "
                "last checkpoint with --resume, and lower the learning rate, or set "
                "training.learner.apply_gradients = 'together'"
            )

    def _set_rate(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._config.learning_rate * self._config.schedule(self.steps)

    def _find_norm(self) -> torch.Tensor:
        return find_norm(self._trained.values())

    def _find_bad_gradient(self) -> str:
        gradients = ((name, value.grad) for name, value in self._trained.items() if value.grad is not None)
        return next((name for name, gradient in gradients if not gradient.isfinite().all()), "the sum of all")

    def _count_layout_tokens(self, packed: Sequence[Sequence[MicroBatch]]) -> tuple[int, int]:
        """Tokens of the samples, and tokens computed: fewer with shared prefixes, more with padding."""
        raw = computed = 0
        for micro in chain.from_iterable(packed):
            raw, computed = raw + micro.layout.raw_tokens, computed + len(micro.layout)
        return raw, computed

    def _refuse(self, what: str) -> NoReturn:
        self.optimizer.zero_grad(set_to_none=True)
        raise TrainingError(
            f"optimizer step {self.steps + 1}: {what}; weights and optimizer are unchanged. Lower the learning rate, "
            "or look at the rewards of this update"
        )


def make_unweighted_samples(pairs: Sequence[PromptAndResponse]) -> list[Sample]:
    """Responses as samples that are measured, each a trajectory of its own."""
    return [
        Sample(
            prompt_ids=tuple(prompt),
            response_ids=tuple(response),
            advantage=0.0,
            trajectory=number,
            step=0,
            group=number,
        )
        for number, (prompt, response) in enumerate(pairs)
    ]


def _deal_minibatches(samples: Sequence[Sample], num: int, *, whole: bool = False) -> list[list[Sample]]:
    """Distribute samples over mini-batches: whole groups in turn, because members of a group share their prefixes.

    With fewer groups than mini-batches, whole trajectories; with `whole`, fewer mini-batches instead.
    """
    by_group = whole or len({sample.group for sample in samples}) >= num
    minibatches: list[list[Sample]] = [[] for _ in range(num)]
    place: dict[int, int] = {}
    for sample in samples:
        kind = sample.group if by_group else sample.trajectory
        minibatches[place.setdefault(kind, len(place)) % num].append(sample)
    return [batch for batch in minibatches if batch]


def cut_minibatches(samples: Sequence[Sample], size: int, *, seed: int | None) -> list[list[Sample]]:
    """Cut samples into mini-batches of one size, the last with the rest; `seed` = of their order, None = as they are.

    >>> from groupwise.data.samples import Sample
    >>> fields = {"prompt_ids": (1,), "response_ids": (2,), "advantage": 1.0, "step": 0, "group": 0}
    >>> samples = [Sample(**fields, trajectory=number) for number in range(1500)]
    >>> [len(batch) for batch in cut_minibatches(samples, 256, seed=0)]
    [256, 256, 256, 256, 256, 220]
    """
    ordered = list(samples)
    if seed is not None:
        Random(seed).shuffle(ordered)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]


def check_trainable(model: PreTrainedModel, config: LearnerConfig) -> None:
    """Fail if no weight of a model trains, if one is too narrow to train, or if gradient checkpointing is on."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise ConfigError("no weight of the model trains; load it without freezing, or with a LoRA adapter")
    allowed = {torch.float64, torch.float32}
    allowed |= {torch.bfloat16} if config.bfloat16_weights != "refused" else set()
    narrow = next((name for name, value in trained.items() if value.dtype not in allowed), None)
    if narrow is not None:
        kind = str(trained[narrow].dtype).removeprefix("torch.")
        instead = ", or set training.learner.bfloat16_weights" if kind == "bfloat16" else ""
        raise ConfigError(
            f"{narrow} would train in {kind}, which rounds small steps away; load the model in float32, or train a "
            f"LoRA adapter on it (model.lora_rank), whose weights are float32{instead}"
        )
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        raise ConfigError(
            "gradient checkpointing is on for the whole model; it works only in training mode, with dropout; turn it "
            "off and set training.learner.checkpoint_layers instead"
        )


def describe_gradients(weights: Mapping[str, nn.Parameter]) -> str:
    """The memory of all gradients, as text.

    >>> describe_gradients({"w": nn.Parameter(torch.zeros(2**28, dtype=torch.bfloat16, device="meta"))})
    '0.50 GiB for the gradients of 268,435,456 weights'
    """
    num = sum(value.numel() for value in weights.values())
    size = sum(value.nbytes for value in weights.values())
    return f"{size / 2**30:.2f} GiB for the gradients of {num:,} weights"


def find_cause(columns: TokenColumns) -> str:
    """The first column that is not finite, as text; empty if all are finite."""
    known = dict(columns.list_columns())
    for name in (*columns.named, *columns.channels, *CAUSES):
        column_T = known.get(name)
        bad = [] if column_T is None else (~column_T.detach().isfinite()).nonzero()[:, 0].tolist()
        if column_T is not None and bad:
            trajectory, step = int(columns.trajectory[bad[0]]), int(columns.step[bad[0]])
            return f": trajectory {trajectory}, step {step} has {name} {float(column_T[bad[0]])}"
    return ""


def merge_summaries(loss: Loss, summaries: Iterable[Any]) -> Any:
    """Merge the summaries of micro-batches in order: by their method `merge` if they have it, else by `+`."""

    def merge_two(merged: Any, summary: Any) -> Any:
        try:
            result = merged.merge(summary) if hasattr(merged, "merge") else merged + summary
            fault = "" if type(result) is type(merged) else f"merge into {describe_value(result)}"
        except (TypeError, RuntimeError) as error:  # torch raises RuntimeError if sizes do not fit
            fault = f"cannot be merged ({str(error).splitlines()[0]})"
        if fault:
            raise ConfigError(
                f"algorithm.loss: {name_of(loss)}: the summaries of two micro-batches, {describe_value(merged)} and "
                f"{describe_value(summary)}, {fault}; `first_pass` must return numbers, tensors of one shape, or "
                "objects whose method `merge` returns an object of their class"
            )
        return result

    return reduce(merge_two, summaries)


class Reference:
    """The reference policy: a copy of the trained weights; the rest of the model never changes.

    For a model with a LoRA adapter, only the adapter is copied. A new adapter makes the reference the base model; a
    warm-started one makes it the policy after the warm start.
    """

    def __init__(self, model: nn.Module) -> None:
        names: dict[int, list[str]] = {}
        for name, value in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(value), []).append(name)
        trained = [value for value in model.parameters() if value.requires_grad]
        self._trained = [(names[id(value)], value) for value in trained]
        self._held = [value.detach().clone() for value in trained]

    @torch.no_grad()
    def hold(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy weights by name into the reference; tied weights may have any of their names."""
        self.check_names(weights)
        for (names, _), held in zip(self._trained, self._held, strict=True):
            held.copy_(next(weights[name] for name in names if name in weights))

    def check_names(self, weights: Mapping[str, torch.Tensor]) -> None:
        lacking = next((names[0] for names, _ in self._trained if not any(name in weights for name in names)), None)
        if lacking is not None:
            raise TrainingError(f"the reference weights have no {lacking!r}; give weights of the same model")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the reference weights into the model; only without gradients."""
        assert not torch.is_grad_enabled(), "a graph through swapped weights would be wrong"
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for (_, value), held in zip(self._trained, self._held, strict=True):
            value.data, held.data = held.data, value.data
