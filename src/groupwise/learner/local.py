"""The local learner: one process, one model. It turns samples into optimiser steps, and knows no method by name.

Axis: T trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
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
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local_files import (
    name_optimiser_tensors,
    put_optimiser_tensors,
    read_checkpoint_tensors,
    read_weights,
    save_optimiser,
)
from groupwise.learner.micro_batches import MicroBatch, check_logps, make_micro_batches, scale_credit, split_into_stages
from groupwise.learner.optimisers import open_optimiser
from groupwise.learner.protocol import Learned, ReportEpoch
from groupwise.losses.policy_loss import Tally
from groupwise.losses.token_columns import ENTROPY, OLD_LOGP, REFERENCE_LOGP, TokenColumns
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward
from groupwise.models.pack import spread_over_tokens
from groupwise.models.quantised import is_quantised, merge_quantised
from groupwise.models.quietly import save_model
from groupwise.parts.part import name_of
from groupwise.parts.slots import Loss
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.text import describe_value

if TYPE_CHECKING:
    from groupwise.training.config.run_config import WarmStartConfig

CAUSES = ("advantage", "logp_behaviour", "logp_old", "logp_ref", "logp", "entropy")
"""Columns in which the cause of a loss that is not finite is looked for, inputs first."""
WARM_UP_STEPS = 30
"""Of imitation, over which the step size grows: without them AdamW's first steps throw a fresh model about."""

Batch = tuple[Sequence[MicroBatch], Totals]
"""What an optimiser step is made of: micro-batches, and what they hold together."""


class LocalLearner:
    """A model, its optimiser, and what they do."""

    def __init__(
        self,
        model: PreTrainedModel,
        loss: Loss,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        forward: Forward | None = None,
    ) -> None:
        if forward is None:  # whoever gives one has checked the model before it was made
            check_trainable(model, config)
        self.forward = forward or Forward(model, config)
        self.model = self.forward.model
        self._loss, self._config, self._temperature = loss, config, temperature
        self._trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self._reference = self._make_reference() if REFERENCE_LOGP in loss.needs else None
        if config.apply_gradients == "as_they_come" and config.max_grad_norm != "off":
            raise ConfigError(
                f"training.learner.apply_gradients: 'as_they_come' cannot shorten gradients to "
                f"{config.max_grad_norm:g}, since their length is known only once all are there, which takes "
                f"{describe_gradients(self._trained)}; set max_grad_norm = 'off', or apply_gradients = 'together'"
            )
        self.optimiser = open_optimiser(
            self._trained,
            config,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.steps = 0
        self._failed_mid_update: str | None = None

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.get_input_embeddings().num_embeddings)

    def hold_reference(self, folder: Path | None = None) -> None:
        """Keep a policy as the reference: that of a checkpoint; None = this one. Until then, the one it began with."""
        self._check_whole()
        if self._reference is None:
            self._reference = self._make_reference()
        self._reference.hold(self.model.state_dict() if folder is None else read_weights(folder))

    def _make_reference(self) -> Reference:
        return Reference(self.model)

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, for the engine: the tensors themselves, which the next step changes."""
        self._check_whole()
        return {name: value.detach() for name, value in self._trained.items()}

    @torch.no_grad()
    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, one pair at a time through the model's own pass."""
        self._check_whole()
        if weights == "current":
            return [self._score_pair(prompt, response, temperature) for prompt, response in pairs]
        if self._reference is None:
            raise TrainingError("the learner keeps no reference policy; call hold_reference first")
        with self._reference.in_place():
            return [self._score_pair(prompt, response, temperature) for prompt, response in pairs]

    def _score_pair(self, prompt: Sequence[int], response: Sequence[int], temperature: float) -> tuple[float, ...]:
        ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
        # The model is in evaluation mode, so that nothing drops out.
        logits = self.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        if temperature != 1:
            logits = logits / temperature
        return tuple(logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist())

    def save(self, folder: Path) -> None:
        self._check_whole()
        save_model(self.model, folder)
        save_optimiser(folder, name_optimiser_tensors(self.model, self.optimiser))

    def load(self, folder: Path, *, steps: int) -> None:
        weights, moments = read_checkpoint_tensors(folder, self.model, self.optimiser)
        self.model.load_state_dict(weights, strict=False)
        put_optimiser_tensors(self.model, self.optimiser, moments)
        self.optimiser.zero_grad(set_to_none=True)  # a backward pass that ended early may have left some
        self.steps, self._failed_mid_update = steps, None

    def export(self, folder: Path) -> None:
        """Write the model as Hugging Face reads it, an adapter merged into it, after which it learns no more.

        Layers in four bits are written as the numbers that these stand for.
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
        """Learn to say what samples say, with an optimiser that is forgotten afterwards; mean loss of each epoch."""
        self._check_whole()
        optimiser = open_optimiser(
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
                # Up within a few steps, then down to a twentieth along a cosine.
                fall = 0.05 + 0.95 * (1 + math.cos(math.pi * done / steps)) / 2
                for group in optimiser.param_groups:
                    group["lr"] = settings.learning_rate * (min(1.0, (done + 1) / WARM_UP_STEPS) * fall)
                logp_T, _ = self.forward(layout)
                loss = -(weight_T * logp_T).sum()
                (loss / weight_T.sum()).backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                total, weight = total + float(loss.detach()), weight + float(weight_T.sum())
            losses.append(total / weight)
            if report is not None:
                report(tuple(losses), settings.epochs)  # a copy: whoever is told changes nothing
        return losses

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
        stages = [
            _deal_minibatches(stage, config.minibatches, whole=whole)
            for stage in split_into_stages(self._loss, training)
        ]
        batches = [batch for stage in stages for batch in stage]
        shares = [totals]
        if len(batches) > 1:
            limit, pairs = totals.max_tokens, totals.pair_members
            shares = [count_totals(batch, max_tokens=limit, pairs=pairs) for batch in batches]
        is_single = config.passes * len(batches) == 1
        check_logps(samples)
        with_credit = [self._with_credit(batch) for batch in batches]
        # The shortest sample where none has credit: the optimiser still goes on, by its moments.
        computed = [some or [find_shortest(batch)] for some, batch in zip(with_credit, batches, strict=True)]
        packed = [self._score_under_old_weights(self._micro_batches(batch), is_single=is_single) for batch in computed]
        num_passes = max(map(len, packed))
        if config.apply_gradients == "as_they_come" and num_passes > 1:
            raise TrainingError(
                f"training.learner.apply_gradients: an optimiser step has {num_passes} micro-batches, whose gradients "
                f"must be added up first, which takes {describe_gradients(self._trained)}; set apply_gradients = "
                f"'together', or raise token_budget (now {config.token_budget}) or minibatches until a step is one "
                "micro-batch"
            )
        tallies: dict[str, Tally] = {}
        steps: list[tuple[float, float]] = []
        waiting: list[Batch] = list(zip(packed, shares, strict=True))
        for batches_of_stage in stages:
            stage, waiting = waiting[: len(batches_of_stage)], waiting[len(batches_of_stage) :]
            steps += [self._step(*batch, tallies) for _ in range(config.passes) for batch in stage]
            if waiting:  # with their credit as what became of the stage before makes it
                log_factor_R = self._merge_passes("carry", [micro for micros, _ in stage for micro in micros], totals)
                waiting = [
                    ([scale_credit(micro, log_factor_R) for micro in micros], share) for micros, share in waiting
                ]
        losses, norms = zip(*steps, strict=True)
        metrics = {
            "loss/total": sum(losses) / len(losses),
            "learner/grad_norm": sum(norms) / len(norms),
            "learner/learning_rate": self.optimiser.param_groups[0]["lr"],
            "learner/optimiser_steps": float(self.steps),
            "learner/computed": sum(map(len, with_credit)) / sum(map(len, batches)),
        }
        if any(with_credit):  # what nobody measured is left out: it is not 0
            metrics |= {name: tally.mean for name, tally in tallies.items() if tally.count}
            raw, computed_tokens = self._count_layout_tokens(packed)
            metrics["learner/token_ratio"] = raw / computed_tokens
        return Learned(metrics=metrics)

    def _with_credit(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples whose credit can move the weights: all, for a loss that does not ignore credit of 0."""
        if not getattr(self._loss, "ignores_zero_credit", False):  # a loss from elsewhere may not say
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
        """Give micro-batches the log-probs that later steps are measured against; a single step is its own measure."""
        scored = list(micros)
        if OLD_LOGP in self._loss.needs and not is_single:
            scored = [replace(micro, logp_old=self._score(micro)) for micro in scored]
        if REFERENCE_LOGP in self._loss.needs:
            assert self._reference is not None, "it is held from the beginning where the loss needs it"
            with self._reference.in_place():
                scored = [replace(micro, logp_ref=self._score(micro)) for micro in scored]
        return scored

    def _score(self, micro: MicroBatch) -> torch.Tensor:
        return self.forward(micro.layout, temperature=self._temperature)[0]

    def _step(self, micros: Sequence[MicroBatch], totals: Totals, tallies: dict[str, Tally]) -> tuple[float, float]:
        """One optimiser step over the micro-batches of a mini-batch: its loss and the length of its gradient."""
        total, summary = 0.0, self._run_first_pass(micros, totals)
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

    def _run_first_pass(self, micros: Sequence[MicroBatch], totals: Totals) -> tuple[Any, ...]:
        """What the loss has to know of the whole optimiser step before any gradient, if it has such a first pass.

        A loss whose value is no sum over samples (a softmax over a group, a pair, a bound on a mean) gets the
        coefficients of its gradient from a pass without gradient over all micro-batches.
        """
        return (self._merge_passes("first_pass", micros, totals),) if hasattr(self._loss, "first_pass") else ()

    @torch.no_grad()
    def _merge_passes(self, method: str, micros: Sequence[MicroBatch], totals: Totals) -> Any:
        """What a method of the loss says of each micro-batch under the current weights, merged."""
        says = getattr(self._loss, method)
        return merge_summaries(self._loss, (says(self._columns(micro), totals) for micro in micros))

    def _columns(self, micro: MicroBatch) -> TokenColumns:
        logp_T, entropy_T = self.forward(
            micro.layout, temperature=self._temperature, entropy=ENTROPY in self._loss.needs
        )
        columns = micro.columns(logp_T, entropy_T)
        return columns if columns.logp_old is not None else replace(columns, logp_old=logp_T.detach())

    def _apply(self) -> float:
        norm = self._find_norm()
        if not math.isfinite(norm):
            self._refuse(f"the gradient is not finite ({float(norm)}, first in {self._find_bad_gradient()})")
        if self._config.max_grad_norm != "off":
            nn.utils.clip_grads_with_norm_(self._trained.values(), self._config.max_grad_norm, norm)
        self._set_rate()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps += 1
        return float(norm)

    def _apply_as_they_come(self, loss: torch.Tensor) -> float:
        """Run the backward pass of an optimiser step that has no other, and apply each gradient within it.

        So all gradients are never in memory at once; from the first one on that is not finite, none is applied.
        """
        self._set_rate()
        names: dict[torch.Tensor, str] = {value: name for name, value in self._trained.items()}
        squares, num_stepped, bad = 0.0, 0, None

        def take(value: torch.Tensor) -> None:
            nonlocal squares, num_stepped, bad
            assert value.grad is not None, "autograd calls it when a gradient is there"
            length = float(measure_length(value.grad))
            if bad is None and math.isfinite(length):
                self.optimiser.step()
                squares += length**2
                num_stepped += 1
            elif bad is None:
                bad = names[value]
            value.grad = None

        hooks = [value.register_post_accumulate_grad_hook(take) for value in self._trained.values()]
        try:
            loss.backward()
        except BaseException as error:
            self._failed_mid_update = f"the backward pass ended early ({type(error).__name__})"
            raise
        finally:
            for hook in hooks:
                hook.remove()
        if bad is not None:
            self._failed_mid_update = (
                f"the gradient of {bad} is not finite, and {num_stepped} of {len(self._trained)} weights had taken "
                "their step by then, as gradients came"
            )
            self._check_whole()
        self.steps += 1
        return math.sqrt(squares)

    def _check_whole(self) -> None:
        """Refuse to go on with weights of which only some took a step."""
        if self._failed_mid_update is not None:
            raise TrainingError(
                f"optimiser step {self.steps + 1}: {self._failed_mid_update}; go on from the last "
                "checkpoint with --resume, and lower the learning rate, or set "
                "training.learner.apply_gradients = 'together'"
            )

    def _set_rate(self) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self._config.learning_rate * self._config.schedule(self.steps)

    def _find_norm(self) -> torch.Tensor:
        gradients = [value.grad for value in self._trained.values() if value.grad is not None]
        if min([gradient.dtype.itemsize for gradient in gradients]) >= 4:
            return nn.utils.get_total_norm(gradients)
        return measure_length(torch.stack([measure_length(gradient) for gradient in gradients]))

    def _find_bad_gradient(self) -> str:
        gradients = ((name, value.grad) for name, value in self._trained.items() if value.grad is not None)
        return next((name for name, gradient in gradients if not gradient.isfinite().all()), "the sum of all")

    def _count_layout_tokens(self, packed: Sequence[Sequence[MicroBatch]]) -> tuple[int, int]:
        """Tokens of the samples, and tokens computed for them: fewer where prefixes are shared, more where rows pad."""
        layouts = [micro.layout for micros in packed for micro in micros]
        return sum(layout.raw_tokens for layout in layouts), sum(len(layout) for layout in layouts)

    def _refuse(self, what: str) -> NoReturn:
        self.optimiser.zero_grad(set_to_none=True)
        raise TrainingError(
            f"optimiser step {self.steps + 1}: {what}; weights and optimiser were left as they were. Lower the "
            "learning rate, or look at this update's rewards"
        )


def _deal_minibatches(samples: Sequence[Sample], num: int, *, whole: bool = False) -> list[list[Sample]]:
    """Deal the samples out to mini-batches: whole groups in turn, since members of a group share their prefixes.

    Where there are fewer groups than mini-batches, whole trajectories; with `whole`, fewer mini-batches instead.
    """
    by_group = whole or len({sample.group for sample in samples}) >= num
    kinds = [sample.group if by_group else sample.trajectory for sample in samples]
    place = {kind: i % num for i, kind in enumerate(dict.fromkeys(kinds))}
    minibatches: list[list[Sample]] = [[] for _ in range(num)]
    for kind, sample in zip(kinds, samples, strict=True):
        minibatches[place[kind]].append(sample)
    return [batch for batch in minibatches if batch]


def find_shortest(samples: Sequence[Sample]) -> Sample:
    """The sample of fewest tokens, of several the first."""
    return min(samples, key=lambda sample: len(sample.token_ids))


def check_trainable(model: PreTrainedModel, config: LearnerConfig) -> None:
    """Refuse a model with no weight to train, with one that is too narrow for it, or that drops activations."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise ConfigError("the model has no weight that trains; load it without freezing, or with a LoRA adapter")
    allowed = {torch.float64, torch.float32}
    allowed |= {torch.bfloat16} if config.bfloat16_weights != "refused" else set()
    narrow = next((name for name, value in trained.items() if value.dtype not in allowed), None)
    if narrow is not None:
        kind = str(trained[narrow].dtype).removeprefix("torch.")
        instead = ", or say how it shall (training.learner.bfloat16_weights)" if kind == "bfloat16" else ""
        raise ConfigError(
            f"{narrow} would train in {kind}, where small steps are rounded away; load the model in float32, or train "
            f"a LoRA adapter on it (model.lora_rank), whose weights are float32{instead}"
        )
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        raise ConfigError(
            "gradient checkpointing was turned on for the whole model, which works in training mode only, in which "
            "dropout is on; turn it off and set training.learner.checkpoint_layers instead"
        )


def describe_gradients(weights: Mapping[str, nn.Parameter]) -> str:
    """How much memory all gradients take, in words.

    >>> describe_gradients({"w": nn.Parameter(torch.zeros(2**28, dtype=torch.bfloat16, device="meta"))})
    '0.50 GiB for the gradients of 268,435,456 weights'
    """
    num = sum(value.numel() for value in weights.values())
    size = sum(value.nbytes for value in weights.values())
    return f"{size / 2**30:.2f} GiB for the gradients of {num:,} weights"


def measure_length(gradient: torch.Tensor) -> torch.Tensor:
    """The length of a gradient in float32, also of one that is narrower."""
    length: torch.Tensor = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return length


def find_cause(columns: TokenColumns) -> str:
    """Find where a loss that is not finite comes from, in words; nothing where each column is sound by itself."""
    known = dict(columns.list_columns())
    for name in (*columns.named, *columns.channels, *CAUSES):
        column_T = known.get(name)
        bad = [] if column_T is None else (~column_T.detach().isfinite()).nonzero()[:, 0].tolist()
        if column_T is not None and bad:
            trajectory, step = int(columns.trajectory[bad[0]]), int(columns.step[bad[0]])
            return f": trajectory {trajectory}, step {step} has {name} {float(column_T[bad[0]])}"
    return ""


def merge_summaries(loss: Loss, summaries: Iterable[Any]) -> Any:
    """One summary of all micro-batches, in their order: by `merge` where the summaries have it, else by `+`."""

    def merge_two(merged: Any, summary: Any) -> Any:
        try:
            result = merged.merge(summary) if hasattr(merged, "merge") else merged + summary
            fault = "" if type(result) is type(merged) else f"merge into {describe_value(result)}"
        except (TypeError, RuntimeError) as error:  # torch says RuntimeError of sizes that do not fit
            fault = f"cannot be merged ({str(error).splitlines()[0]})"
        if fault:
            raise ConfigError(
                f"algorithm.loss: {name_of(loss)}: the summaries of two micro-batches, {describe_value(merged)} and "
                f"{describe_value(summary)}, {fault}; let first_pass give numbers that `+` adds up entry by entry, "
                "whatever is in the micro-batch, or an object with a method `merge` that gives one of its own kind"
            )
        return result

    return reduce(merge_two, summaries)


# The reference: the policy that a run started from, which a penalty may keep it close to.


class Reference:
    """The weights that train, as they were when the run started; the rest of the model never changes.

    Of a model with a LoRA adapter only the adapter is held, and there is no second copy of the model: an adapter that
    starts as nothing makes the reference the model with its adapter off, one that was warm-started makes it the policy
    of the warm start. Of a model whose weights all train, it is a frozen copy.
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
        """Take weights by name as the reference; of tied ones, under any of their names."""
        self.check_names(weights)
        for (names, _), held in zip(self._trained, self._held, strict=True):
            held.copy_(next(weights[name] for name in names if name in weights))

    def check_names(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Refuse weights among which one that trains is not."""
        lacking = next((names[0] for names, _ in self._trained if not any(name in weights for name in names)), None)
        if lacking is not None:
            raise TrainingError(f"the reference weights have no {lacking!r}; give those of the same model")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the reference's weights into the model for a while; only without gradients."""
        assert not torch.is_grad_enabled(), "a graph through swapped weights would be wrong"
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for (_, value), held in zip(self._trained, self._held, strict=True):
            value.data, held.data = held.data, value.data
