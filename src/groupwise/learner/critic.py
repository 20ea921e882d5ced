"""A critic: a value head on the policy's trunk or on a copy of it. It learns with the policy, in this process.

Axes: T states of a micro-batch, one per trained token; U nodes that predict them, H hidden.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from groupwise.data.samples import Sample
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local_files import UNREADABLE, list_trained, name_optimizer_tensors, put_optimizer_tensors
from groupwise.learner.micro_batches import MicroBatch
from groupwise.learner.optimizers import find_norm, open_optimizer
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward
from groupwise.parts.slots import Critic
from groupwise.store.checkpoint_files import damage_error
from groupwise.store.run_folder import CONFIG
from groupwise.system.errors import RecordError, TrainingError
from groupwise.system.text import quote_line

CRITIC = "critic.safetensors"
"""The critic's file in a checkpoint: weights and optimizer state."""
OLD = "critic/old"
"""The channel with the recorded values; the returns are in the column of advantages."""


class LocalCritic:
    """A value head, its trunk and their optimizers."""

    def __init__(
        self,
        part: Critic,
        config: LearnerConfig,
        forward: Forward,
        *,
        lay_out: Callable[[Sequence[Sample]], list[MicroBatch]],
    ) -> None:
        """`forward` runs the trunk: the policy's, or that of `copy_trunk`; `lay_out` makes micro-batches."""
        self._part, self._config, self.forward, self._lay_out = part, config, forward, lay_out
        weight = CausalLM.of(forward.model).head.weight
        precision = torch.promote_types(weight.dtype, torch.float32)
        self.head = nn.Linear(weight.shape[1], 1, device=forward.device, dtype=precision)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._modules: dict[str, nn.Module] = {"head": self.head}
        if part.owns_trunk:
            self._modules["trunk"] = forward.model
        self._optimizers = {
            name: open_optimizer(
                list_trained(module),
                config,
                lr=part.learning_rate,
                betas=config.betas,
                eps=config.eps,
                weight_decay=config.weight_decay,
            )
            for name, module in self._modules.items()
        }

    @torch.no_grad()
    def start_from(self, model: PreTrainedModel) -> None:
        """Make the trunk a copy of the policy again, after a warm start."""
        if self._part.owns_trunk:
            for own, of_policy in zip(self.forward.model.parameters(), model.parameters(), strict=True):
                own.copy_(of_policy)

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """The value of the state before each token of each response."""
        found: dict[int, dict[int, float]] = {number: {} for number in range(len(samples))}
        # The step is a number that micro-batches keep, so it says which sample a value belongs to.
        for micro in self._lay_out([replace(sample, step=number) for number, sample in enumerate(samples)]):
            value_T = self._compute_values(micro)
            for number, place, value in self._list_own(micro, value_T):
                found[number][place] = value
        for_all = self._merge_values(found)
        values = [tuple(of_sample[place] for place in range(len(of_sample))) for of_sample in for_all]
        if not all(map(math.isfinite, (value for of_sample in values for value in of_sample))):
            raise TrainingError(
                "the critic gives a value that is not finite; continue from the last checkpoint with --resume, and "
                "lower algorithm.critic.learning_rate"
            )
        return values

    def _list_own(self, micro: MicroBatch, value_T: torch.Tensor) -> Iterable[tuple[int, int, float]]:
        """Number of the sample, place in its response and value, for each state."""
        return zip(micro.step.tolist(), micro.layout.position.tolist(), value_T.tolist(), strict=True)

    def _merge_values(self, found: dict[int, dict[int, float]]) -> list[dict[int, float]]:
        return list(found.values())

    def learn(self, batches: Sequence[Sequence[Sample]], *, steps: int) -> dict[str, float]:
        """Make one optimizer step per mini-batch and pass; `steps` = those that the policy made so far."""
        targets = [[self._make_target(sample) for sample in batch] for batch in batches]
        packed = [(self._lay_out(batch), sum(sample.num_trained for sample in batch)) for batch in targets]
        losses, norms, clipped = list[float](), list[float](), list[float]()
        for number, (micros, count) in enumerate(packed * self._config.passes):
            rate = self._part.learning_rate * self._config.schedule(steps + number)
            loss, norm, hits = self._step(micros, count, rate)
            losses.append(loss)
            norms.append(norm)
            clipped.append(hits / count)
        return {
            "critic/loss": sum(losses) / len(losses),
            "critic/grad_norm": sum(norms) / len(norms),
            "critic/clip_fraction": sum(clipped) / len(clipped),
            "critic/learning_rate": rate,
            **measure_values([sample for batch in targets for sample in batch]),
        }

    def _make_target(self, sample: Sample) -> Sample:
        """The sample as the critic learns it: its returns in the column of advantages, its values in a channel."""
        if sample.targets is None:
            raise RecordError(f"{sample.name}: it has no targets for the critic; give Sample.targets")
        values, returns = sample.targets
        if self._part.by == "step":
            # The first response token alone: it is never read, and the last token of the prompt predicts it.
            sample = replace(sample, response_ids=sample.response_ids[:1], trained=None)
        if not len(values) == len(returns) == len(sample.response_ids):
            raise RecordError(
                f"{sample.name}: its targets have {len(values)} values and {len(returns)} returns for "
                f"{len(sample.response_ids)} states; give one of each per state"
            )
        nothing = (0.0,) * len(sample.response_ids)
        return replace(
            sample, advantage=returns, channels={OLD: values}, columns={}, logp_behaviour=nothing, spans=None
        )

    def _step(self, micros: Sequence[MicroBatch], count: int, rate: float) -> tuple[float, float, float]:
        """One optimizer step; returns its loss, its gradient norm, and in how many states the loss was clipped."""
        total, hits, fault = 0.0, 0.0, ""
        for number, micro in enumerate(micros):
            loss, clipped = self._compute_loss(micro, count, is_last=number == len(micros) - 1)
            share = float(loss.detach())
            if not math.isfinite(share):
                fault = fault or f"its loss is not finite ({share})"
            loss.backward()
            total, hits = total + share, hits + clipped
        total, hits = self._add_up(total, hits)
        norm = self._find_norm()
        if not (fault or math.isfinite(norm)):
            fault = f"its gradient is not finite ({norm})"
        self._check(fault)
        for name, module in self._modules.items():
            optimizer = self._optimizers[name]
            if self._config.max_grad_norm != "off":
                trained = list_trained(module).values()
                nn.utils.clip_grads_with_norm_(trained, self._config.max_grad_norm, self.head.weight.new_tensor(norm))
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total, norm, hits

    def _compute_loss(self, micro: MicroBatch, count: int, *, is_last: bool) -> tuple[torch.Tensor, float]:
        """The micro-batch's part of the loss, and in how many of its states the loss was clipped."""
        value_T = self._compute_values(micro)
        result = self._part(value_T, micro.channels[OLD], micro.advantage)
        return result.loss.sum() / count, sum(float(hit_T.sum()) for hit_T in result.clipped.values())

    def _compute_values(self, micro: MicroBatch) -> torch.Tensor:
        """The value of the state before each trained token (T); a trunk of the policy's gets no gradient."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._part.owns_trunk):
            hidden_UH = self.forward.compute_states(micro.layout)
        value_U: torch.Tensor = self.head(hidden_UH.to(self.head.weight.dtype))[:, 0]
        predictions = micro.layout.predictions
        return value_U.index_select(0, predictions.row.index_select(0, predictions.back))

    def _add_up(self, total: float, hits: float) -> tuple[float, float]:
        return total, hits

    def _find_norm(self) -> float:
        return math.hypot(*(float(find_norm(list_trained(module).values())) for module in self._modules.values()))

    def _check(self, fault: str) -> None:
        if fault:
            self._drop_gradients()
            raise TrainingError(
                f"the critic: {fault}; the policy is unchanged. Lower algorithm.critic.learning_rate, or look at the "
                "rewards of this update"
            )

    def _drop_gradients(self) -> None:
        for optimizer in self._optimizers.values():
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights and optimizer state by name."""
        named = self._name_weights()
        for name, module in self._modules.items():
            state = name_optimizer_tensors(module, self._optimizers[name])
            named |= {f"{name}_optimizer/{key}": value for key, value in state.items()}
        return named

    def find_difference(self, tensors: dict[str, torch.Tensor]) -> str | None:
        """What `load` could not take of these tensors, as text; None = nothing."""
        own, states = self._name_weights(), {f"{name}_optimizer" for name in self._modules}
        weights = {name: value for name, value in tensors.items() if name.partition("/")[0] not in states}
        odd = min(own.keys() ^ weights.keys(), default=None)
        if odd is not None:
            return f"it has {quote_line(odd)!r}" if odd in weights else f"it has no {odd!r}"
        for name, value in weights.items():
            if value.shape != own[name].shape:
                return f"{name!r} has the shape {list(value.shape)} there and {list(own[name].shape)} here"
        return None

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Load what `tensors` returned, one tensor after the other."""
        own = self._name_weights()
        states: dict[str, dict[str, torch.Tensor]] = {name: {} for name in self._modules}
        for key, value in tensors:
            kind, _, name = key.partition("/")
            if kind in self._modules:
                self._put(own[key], value)
            else:
                kind = kind.removesuffix("_optimizer")
                weight, _, entry = name.rpartition("/")
                states[kind][name] = self._take_state(own[f"{kind}/{weight}"], entry, value)
        for name, module in self._modules.items():
            put_optimizer_tensors(module, self._optimizers[name], states[name])
        self._drop_gradients()

    def _put(self, weight: torch.Tensor, value: torch.Tensor) -> None:
        weight.copy_(value)

    def _take_state(self, weight: torch.Tensor, entry: str, value: torch.Tensor) -> torch.Tensor:
        return value

    def _name_weights(self) -> dict[str, torch.Tensor]:
        return {
            f"{kind}/{name}": value.detach()
            for kind, module in self._modules.items()
            for name, value in list_trained(module).items()
        }


def copy_trunk(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a policy's model as the trunk of a critic; an output layer of its own does not train."""
    trunk = copy.deepcopy(model)
    output = trunk.get_output_embeddings()
    if output is not None and output.weight is not trunk.get_input_embeddings().weight:
        output.weight.requires_grad_(False)
    return trunk


def measure_values(samples: Sequence[Sample]) -> dict[str, float]:
    """How well the recorded values fit the returns, over all states that train.

    >>> from groupwise.data.samples import ValueTargets
    >>> fields = {"prompt_ids": (1,), "advantage": 0.0, "trajectory": 0, "step": 0, "group": 0}
    >>> targets = ValueTargets(values=(0.0, 1.0), returns=(0.0, 2.0))
    >>> measure_values([Sample(**fields, response_ids=(5, 6), targets=targets)])
    {'critic/value': 0.5, 'critic/return': 1.0, 'critic/explained_variance': 0.75}
    """
    pairs = [
        pair
        for sample in samples
        if sample.targets is not None
        for pair, trains in zip(
            zip(*sample.targets, strict=True), sample.trained or (True,) * len(sample.response_ids), strict=True
        )
        if trains
    ]
    values, returns = np.array(pairs, dtype=np.float64).T
    metrics = {"critic/value": float(values.mean()), "critic/return": float(returns.mean())}
    if np.ptp(returns):
        metrics["critic/explained_variance"] = float(1 - np.var(returns - values) / np.var(returns))
    return metrics


def save_critic(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / CRITIC)


def read_critic(folder: Path, critic: LocalCritic) -> dict[str, torch.Tensor]:
    """Read the critic's tensors of a checkpoint, and compare them with a critic."""
    if not (folder / CRITIC).exists():
        raise TrainingError(
            f"checkpoint {folder} has no critic, because the run had none; use the section [algorithm] of the run's "
            f"{CONFIG}, or start a new run in another folder"
        )
    try:
        tensors = load_file(folder / CRITIC)
    except UNREADABLE as error:
        raise damage_error(folder, str(error)) from error
    difference = critic.find_difference(tensors)
    if difference:
        raise TrainingError(
            f"checkpoint {folder} is of another critic: {difference}; use the section [algorithm] of the run's "
            f"{CONFIG}, or start a new run in another folder"
        )
    return tensors
