"""The sharded learner: how it is opened, the learner that the run uses on rank 0, and the part on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from groupwise.data.samples import PolicyRole, PromptAndResponse, Sample, Totals
from groupwise.data.segments import FloatArray
from groupwise.learner import shards
from groupwise.learner.config import ShardedLearnerConfig
from groupwise.learner.critic import LocalCritic, copy_trunk, read_critic
from groupwise.learner.local import (
    LocalLearner,
    Reference,
    check_trainable,
    find_cause,
    make_unweighted_samples,
    merge_summaries,
)
from groupwise.learner.local_files import read_weights
from groupwise.learner.micro_batches import MicroBatch
from groupwise.learner.optimizers import find_norm
from groupwise.learner.protocol import Learned, ReportEpoch
from groupwise.learner.ranks import AgreedFault, Ranks
from groupwise.losses.policy_loss import Tally
from groupwise.models.causal_lm import CausalLM, read_memory_size
from groupwise.parts.slots import Critic, Loss
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.processes import read_started_rank

if TYPE_CHECKING:
    from groupwise.training.config.run_config import WarmStartConfig


def open_sharded_learner(
    model: PreTrainedModel,
    loss: Loss,
    config: ShardedLearnerConfig,
    *,
    temperature: float,
    device: torch.device | None = None,
    critic: Critic | None = None,
) -> LedLearner:
    """Open the learner on rank 0; it takes the weights out of the given model.

    The model may be on the CPU until it is sharded; `device` = of the shards, None = that of the model.
    """
    if read_started_rank().rank:
        raise ConfigError(
            f"rank {read_started_rank().rank} cannot open a run; only rank 0 can, the others follow it, as in "
            "groupwise train"
        )
    device = next(model.parameters()).device if device is None else device
    return LedLearner(open_rank(model, loss, config, temperature=temperature, device=device, critic=critic))


def open_rank(
    model: PreTrainedModel | None,
    loss: Loss,
    config: ShardedLearnerConfig,
    *,
    temperature: float,
    device: torch.device,
    critic: Critic | None = None,
) -> RankLearner:
    """Join the other ranks and take this one's shards of the model; only rank 0 passes a model.

    All ranks pass the same critic.
    """
    check_gpus(device)
    ranks = Ranks(device, timeout=config.timeout)
    try:
        outline = shards.share_outline(model, ranks)
        keeps_whole = _choose_gathering(outline.model, config, ranks)
        return RankLearner(
            outline, loss, config, ranks, temperature=temperature, keeps_whole=keeps_whole, critic=critic
        )
    except BaseException as error:
        ranks.leave(error)
        raise


def check_gpus(device: torch.device) -> None:
    started = read_started_rank()
    gpus = torch.cuda.device_count() if device.type == "cuda" else None
    if gpus is not None and started.local_world > gpus:
        raise ConfigError(
            f"rank {started.rank} is one of {started.local_world} processes on its machine, which has {gpus} "
            f"GPU{'s' if gpus != 1 else ''}; start at most one process per GPU (torchrun --nproc-per-node), or use "
            "more GPUs"
        )


def _choose_gathering(model: PreTrainedModel, config: ShardedLearnerConfig, ranks: Ranks) -> bool:
    """Whether weights stay whole during an optimizer step; the same on every rank."""
    if config.gather != "auto":
        return config.gather == "once_a_step"
    if ranks.world == 1:
        return False  # there is no other rank to wait for
    weights = sum(value.nbytes for value in model.parameters())
    gradients = sum(value.nbytes for value in model.parameters() if value.requires_grad)
    # Compared with the total memory, not the free memory: a resumed run must choose the same.
    fits = (weights + gradients) * ranks.on_device <= MAX_SHARE * read_memory_size(ranks.device)
    return all(ranks.gather(fits))


# The run, with its environments, engine and journal, exists on rank 0 only. Each call of a method on rank 0 is sent to
# the other ranks with its arguments, and all ranks execute it together.


@dataclass(frozen=True, kw_only=True)
class RankCall:
    """A method call that all ranks execute together."""

    method: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


STOP = "stop"


class LedLearner:
    """The learner of a run on rank 0; it leads the other ranks."""

    def __init__(self, own: RankLearner) -> None:
        self._own, self._is_open = own, True

    @property
    def steps(self) -> int:
        return self._own.steps

    @property
    def vocabulary_size(self) -> int:
        return self._own.vocabulary_size

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        return cast(Learned, self._lead("learn", samples, totals))

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        return cast(list[float], self._lead("imitate", samples, settings, seed=seed, here={"report": report}))

    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        return cast(list[tuple[float, ...]], self._lead("logps", pairs, temperature=temperature, weights=weights))

    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        return cast(list[FloatArray], self._lead("hidden_states", pairs))

    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        return cast(list[tuple[float, ...]], self._lead("values", samples))

    def entropies(self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return cast(list[tuple[float, ...]], self._lead("entropies", pairs, temperature=temperature))

    def weights(self) -> dict[str, torch.Tensor]:
        return cast(dict[str, torch.Tensor], self._lead("give_weights"))

    def hold_reference(self, folder: Path | None = None) -> None:
        self._lead("hold_reference", folder)

    def save(self, folder: Path) -> None:
        self._lead("save", folder)

    def load(self, folder: Path, *, steps: int) -> None:
        self._lead("load", folder, steps=steps)

    def export(self, folder: Path) -> None:
        self._lead("export", folder)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(TrainingError):  # ranks that are already gone need no call
                self._own.ranks.broadcast(RankCall(method=STOP))
            self._own.ranks.leave()

    def _lead(self, method: str, *args: Any, here: dict[str, Any] | None = None, **options: Any) -> Any:
        ranks = self._own.ranks
        try:
            ranks.broadcast(RankCall(method=method, args=args, options=options))
            with ranks.name_faults():
                return getattr(self._own, method)(*args, **options, **(here or {}))
        except AgreedFault:  # all ranks raise the same and wait for the next call
            raise
        except BaseException as error:
            self._is_open = False
            ranks.leave(error)
            raise


def follow(own: RankLearner) -> None:
    """Execute the calls of rank 0 until it closes the learner; an error that rank 0 does not share ends this rank."""
    ranks = own.ranks
    try:
        while True:
            call: RankCall = ranks.broadcast(None)
            if call.method == STOP:
                break
            try:
                with ranks.name_faults():
                    getattr(own, call.method)(*call.args, **call.options)
            except AgreedFault:
                continue  # rank 0 raises the same and handles it
    except BaseException as error:
        ranks.leave(error)
        raise
    ranks.leave()


# One rank of a sharded learner. All ranks call the same methods at the same time with the same arguments. Each rank
# computes its own samples and holds its own shards; totals are over all ranks.

MAX_SHARE = 1 / 3
"""Fraction of a device's memory that whole weights, and gradients with them, may take."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IdlePass(MicroBatch):
    """A pass that a rank makes only because the others make one; its gradients are 0."""


class ShardedReference(Reference):
    """The sharded reference. FSDP needs weights to stay in place, so values are exchanged, not tensors."""

    def __init__(self, model: nn.Module, forward: shards.ShardedForward) -> None:
        super().__init__(model)
        self._forward = forward

    def hold_each(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy whole weights into the reference, one after the other: only one of them is in memory."""
        places = {name: place for place, (names, _) in enumerate(self._trained) for name in names}
        for name, whole in weights:
            if name in places:
                shards.take_share(self._held[places[name]], whole)

    @torch.no_grad()
    def _swap(self) -> None:
        self._forward.drop_whole()  # gathered from the weights before the swap
        for (_, value), held in zip(self._trained, self._held, strict=True):
            before = _read_share(value).clone()
            _read_share(value).copy_(_read_share(held))
            _read_share(held).copy_(before)


class RankLearner(LocalLearner):
    """The learner on one rank."""

    forward: shards.ShardedForward

    def __init__(
        self,
        outline: shards.Outline,
        loss: Loss,
        config: ShardedLearnerConfig,
        ranks: Ranks,
        *,
        temperature: float,
        keeps_whole: bool,
        critic: Critic | None = None,
    ) -> None:
        self.ranks, self._outline = ranks, outline
        check_trainable(outline.model, config)
        trunk = None
        if critic is not None and critic.owns_trunk:  # copied before the weights are divided
            copies = {name: value.clone() for name, value in outline.weights.items()}
            trunk = shards.ShardedForward(copy_trunk(outline.model), copies, config, ranks, keeps_whole=keeps_whole)
        forward = shards.ShardedForward(outline.model, outline.weights, config, ranks, keeps_whole=keeps_whole)
        super().__init__(outline.model, loss, config, temperature=temperature, forward=forward)
        self._keeps_whole = keeps_whole
        if critic is not None:
            self._critic = RankCritic(critic, config, trunk or forward, lay_out=self._micro_batches, ranks=ranks)

    def _make_reference(self) -> Reference:
        return ShardedReference(self.model, self.forward)

    def hold_reference(self, folder: Path | None = None) -> None:
        """Set the reference policy; only rank 0 reads the folder."""
        if folder is None:
            super().hold_reference()
            return
        if self._reference is None:
            self._reference = self._make_reference()
        assert isinstance(self._reference, ShardedReference), "_make_reference makes these"
        weights, fault = dict[str, torch.Tensor](), None
        if self.ranks.is_leader:
            try:
                weights = read_weights(folder)
                self._reference.check_names(weights)
            except TrainingError as error:
                fault = str(error)
        self.ranks.agree(fault)
        self._reference.hold_each(shards.spread_tensors(self.ranks, weights))

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, whole."""
        return {name: shards.put_together(value) for name, value in self._trained.items()}

    def give_weights(self) -> dict[str, torch.Tensor]:
        """The same on rank 0 only: the other ranks give their shards and keep nothing.

        They are on rank 0's device if they take at most `MAX_SHARE` of its memory, else on the CPU.
        """
        size, device = sum(value.nbytes for value in self._trained.values()), self.ranks.device
        place = device if size <= MAX_SHARE * read_memory_size(device) else torch.device("cpu")
        wholes = ((name, shards.put_together(value)) for name, value in self._trained.items())
        return {name: whole.to(place) for name, whole in wholes if self.ranks.is_leader}

    @torch.no_grad()
    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        if weights == "reference" and self._reference is None:
            raise AgreedFault("the learner keeps no reference policy; call hold_reference first")
        scores = super().logps(pairs, temperature=temperature, weights=weights)
        self.forward.drop_whole()
        return scores

    @torch.no_grad()
    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        states = []
        for prompt, response in pairs:
            ids = torch.tensor([[*prompt, *response]], device=self.forward.device)
            hidden = self.forward.run(_run_body, ids)[0, len(prompt) :]
            states.append(hidden.double().cpu().numpy())
        self.forward.drop_whole()
        return states

    @torch.no_grad()
    def entropies(self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Entropies of the tokens of each response; each rank measures its own part."""
        own = super().entropies(pairs, temperature=temperature)
        self.forward.drop_whole()
        mine = deal_to_ranks(make_unweighted_samples(pairs), self.ranks.world)[self.ranks.rank]
        parts = self.ranks.gather({sample.trajectory: own[sample.trajectory] for sample in mine})
        merged = {number: entropies for part in parts for number, entropies in part.items()}
        return [merged[number] for number in range(len(pairs))]

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        """Supervised fine-tuning; every rank computes every batch, because a warm start is short."""
        with self.forward.alike_on_all_ranks():
            self.forward.set_last(True)
            return super().imitate(samples, settings, seed=seed, report=report)

    def save(self, folder: Path) -> None:
        shards.write_whole(folder, self.model, self.optimizer, self.ranks)
        if self._critic is not None:
            shards.write_critic(folder, self._critic.tensors(), self.ranks)

    def load(self, folder: Path, *, steps: int) -> None:
        """Load what `save` wrote, on any number of ranks: rank 0 reads and sends the shards."""
        self.forward.drop_whole()
        of_critic = {} if self._critic is None else self._read_critic(folder, self._critic)
        shards.load_shares(folder, self.model, self.optimizer, self.ranks)
        if self._critic is not None:
            self._critic.load(shards.spread_tensors(self.ranks, of_critic))
        self.steps = steps

    def _read_critic(self, folder: Path, critic: LocalCritic) -> dict[str, torch.Tensor]:
        """The critic's tensors on rank 0, nothing on the others."""
        tensors, fault = dict[str, torch.Tensor](), None
        if self.ranks.is_leader:
            try:
                tensors = read_critic(folder, critic)
            except TrainingError as error:
                fault = str(error)
        self.ranks.agree(fault)
        return tensors

    def export(self, folder: Path) -> None:
        """Write the model in the Hugging Face layout, with an adapter merged; the learner itself is unchanged."""
        if hasattr(self.model, "merge_and_unload"):
            shards.write_merged(folder, self.model, self._outline.written, self.ranks)
        else:
            shards.write_whole(folder, self.model, None, self.ranks)

    def _micro_batches(self, samples: Sequence[Sample]) -> list[MicroBatch]:
        """This rank's micro-batches of an optimizer step, and idle passes if other ranks have more."""
        mine = deal_to_ranks(samples, self.ranks.world)[self.ranks.rank]
        micros = super()._micro_batches(mine) if mine else []
        num = max(self.ranks.gather(len(micros)))
        num = max(1, len(micros)) if self._keeps_whole else num
        if num > len(micros):
            [micro] = super()._micro_batches([min(samples, key=lambda sample: len(sample.token_ids))])
            micros += [IdlePass(**vars(micro))] * (num - len(micros))
        return micros

    def _step(self, micros: Sequence[MicroBatch], totals: Totals, tallies: dict[str, Tally]) -> tuple[float, float]:
        has_first = hasattr(self._loss, "first_pass")
        summary = [self._merge_passes("first_pass", micros, totals)] if has_first else []
        total, own, fault = 0.0, dict[str, Tally](), None
        for number, micro in enumerate(micros):
            self.forward.set_last(number == len(micros) - 1)
            columns = self._columns(micro)
            if isinstance(micro, IdlePass):
                columns.logp.masked_fill(columns.mask, 0.0).sum().backward()  # gradients of exactly 0
                continue
            result = self._loss(columns, totals, *summary)
            share = float(result.loss.detach())
            if not math.isfinite(share):  # raised after the passes: the other ranks wait in them
                fault = fault or f"the loss is not finite ({share}{find_cause(columns)})"
            result.loss.backward()
            total += share
            for name, tally in result.metrics.items():
                own[name] = own[name] + tally if name in own else tally
        try:
            self.ranks.agree(fault)
        except AgreedFault as error:
            self._refuse(str(error))
        for others in self.ranks.gather({name: (tally.total, tally.count) for name, tally in own.items()}):
            for name, (part, count) in others.items():
                tally = Tally(total=part, count=count)
                tallies[name] = tallies[name] + tally if name in tallies else tally
        return sum(self.ranks.gather(total)), self._apply()

    @torch.no_grad()
    def _merge_passes(self, method: str, micros: Sequence[MicroBatch], totals: Totals) -> Any:
        summarize = getattr(self._loss, method)
        summaries = []
        for micro in micros:
            columns = self._columns(micro)
            if not isinstance(micro, IdlePass):
                summaries.append(summarize(columns, totals))
        self.forward.drop_whole()
        gathered = [summary for of_rank in self.ranks.gather(summaries) for summary in of_rank]
        return merge_summaries(self._loss, gathered)

    def _find_norm(self) -> torch.Tensor:
        return find_norm_of_shards(self._trained.values(), self.ranks)

    def _find_bad_gradient(self) -> str:
        shares = ((name, value.grad) for name, value in self._trained.items() if value.grad is not None)
        bad = next((name for name, share in shares if not _read_share(share).isfinite().all()), None)
        return next((name for name in self.ranks.gather(bad) if name), "the sum of all")

    def _count_layout_tokens(self, packed: Sequence[Sequence[MicroBatch]]) -> tuple[int, int]:
        own = [[micro for micro in micros if not isinstance(micro, IdlePass)] for micros in packed]
        raw, computed = zip(*self.ranks.gather(super()._count_layout_tokens(own)), strict=True)
        return sum(raw), sum(computed)

    def _refuse(self, what: str) -> NoReturn:
        try:
            super()._refuse(what)
        except TrainingError as error:
            raise AgreedFault(str(error)) from None


class RankCritic(LocalCritic):
    """The critic on one rank: its trunk is divided, its head is whole."""

    forward: shards.ShardedForward

    def __init__(
        self,
        part: Critic,
        config: ShardedLearnerConfig,
        forward: shards.ShardedForward,
        *,
        lay_out: Callable[[Sequence[Sample]], list[MicroBatch]],
        ranks: Ranks,
    ) -> None:
        super().__init__(part, config, forward, lay_out=lay_out)
        self._ranks = ranks

    def start_from(self, model: PreTrainedModel) -> None:
        self.forward.drop_whole()
        super().start_from(model)

    def _list_own(self, micro: MicroBatch, value_T: torch.Tensor) -> Iterable[tuple[int, int, float]]:
        return () if isinstance(micro, IdlePass) else super()._list_own(micro, value_T)

    def _merge_values(self, found: dict[int, dict[int, float]]) -> list[dict[int, float]]:
        self.forward.drop_whole()
        own = {number: of_sample for number, of_sample in found.items() if of_sample}
        return list(reduce(or_, self._ranks.gather(own), found).values())

    def _compute_loss(self, micro: MicroBatch, count: int, *, is_last: bool) -> tuple[torch.Tensor, float]:
        if self._part.owns_trunk:
            self.forward.set_last(is_last)
        loss, hits = super()._compute_loss(micro, count, is_last=is_last)
        return (0.0 * loss, 0.0) if isinstance(micro, IdlePass) else (loss, hits)

    def _add_up(self, total: float, hits: float) -> tuple[float, float]:
        if not self._part.owns_trunk:
            self.forward.drop_whole()  # the passes of the policy's trunk had no backward pass to do it
        for weight in self.head.parameters():
            weight.grad = torch.stack(self._ranks.gather(weight.grad)).sum(0)
        totals, all_hits = zip(*self._ranks.gather((total, hits)), strict=True)
        return sum(totals), sum(all_hits)

    def _find_norm(self) -> float:
        norms = [find_norm(self.head.parameters())]
        if self._part.owns_trunk:
            norms.append(find_norm_of_shards(self.forward.model.parameters(), self._ranks))
        return math.hypot(*map(float, norms))

    def _check(self, fault: str) -> None:
        try:
            super()._check(next((said for said in self._ranks.gather(fault) if said), ""))
        except TrainingError as error:
            raise AgreedFault(str(error)) from None

    def _put(self, weight: torch.Tensor, value: torch.Tensor) -> None:
        shards.take_share(weight, value)

    def _take_state(self, weight: torch.Tensor, entry: str, value: torch.Tensor) -> torch.Tensor:
        if entry == "step":
            return value.cpu()
        share = torch.zeros_like(weight)
        shards.take_share(share, value)
        return share


def find_norm_of_shards(weights: Iterable[nn.Parameter], ranks: Ranks) -> torch.Tensor:
    """The norm of the whole gradient, from that of each rank's shards: ranks wait once, not once per weight."""
    gradients = (value.grad for value in weights if value.grad is not None)
    own = nn.utils.get_total_norm([_read_share(gradient) for gradient in gradients])
    return own if ranks.world == 1 else own.new_tensor(math.hypot(*ranks.gather(float(own))))


def _read_share(value: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a tensor, not a copy."""
    share: torch.Tensor = value.to_local() if isinstance(value, DTensor) else value
    return share.detach()


def _run_body(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return CausalLM.of(model).run_body(input_ids=ids)


def deal_to_ranks(samples: Sequence[Sample], world: int) -> list[list[Sample]]:
    """Assign whole groups of samples, which share prefixes, to the rank with the fewest tokens, largest group first.

    With fewer groups than ranks, whole trajectories. Every rank computes the same, and keeps the samples' order.

    >>> from groupwise.data.samples import Sample
    >>> fields = {"prompt_ids": (1,), "advantage": 1.0, "step": 0}
    >>> samples = [
    ...     Sample(**fields, response_ids=(2,) * length, trajectory=group, group=group)
    ...     for group, length in enumerate([2, 9, 3, 3])
    ... ]
    >>> [[sample.group for sample in share] for share in deal_to_ranks(samples, 2)]
    [[1], [0, 2, 3]]
    """
    by_group = len({sample.group for sample in samples}) >= world
    labels = [sample.group if by_group else sample.trajectory for sample in samples]
    sizes: dict[int, int] = {}
    for label, sample in zip(labels, samples, strict=True):
        sizes[label] = sizes.get(label, 0) + len(sample.token_ids)
    loads, place = [0] * world, dict[int, int]()
    for label in sorted(sizes, key=lambda name: (-sizes[name], name)):
        place[label] = loads.index(min(loads))
        loads[place[label]] += sizes[label]
    shares: list[list[Sample]] = [[] for _ in range(world)]
    for label, sample in zip(labels, samples, strict=True):
        shares[place[label]].append(sample)
    return shares
