"""What ranks do in the tests of the sharded learner; a module of its own, so that forked processes find it."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from groupwise.data.samples import ValueTargets, count_totals
from groupwise.learner.config import ValueHead, ValueModel
from groupwise.learner.protocol import hash_weights
from groupwise.learner.ranks import AgreedFault, Ranks
from groupwise.learner.shards import divide, put_together, share_outline
from groupwise.losses import PolicyLoss
from groupwise.models import TinyModel
from groupwise.parts.slots import Loss
from groupwise.training.config.run_config import RunConfig, WarmStartConfig
from groupwise.training.loop import train
from groupwise.training.open_run import follow_run, is_follower, open_run
from tests.unit.learner.critics import with_targets
from tests.unit.learner.learners import WORDS
from tests.unit.learner.small_learners import (
    LONG_AND_SHORT,
    PAIR,
    SHORT_PAIR,
    UNCLIPPED,
    UNEVEN,
    Gradients,
    NotANumber,
    make_adapted_model,
    make_loss,
    make_samples,
    open_own,
    tiny_model,
    watch_gradient,
)
from tests.unit.training.runs import small_config


def learn_once(
    rank: int, loss: Loss, groups: Sequence[int], gather: str, tied: bool, passes: int = 1, checkpoint: bool = False
) -> tuple[dict[str, float], Gradients]:
    own = open_own(loss, tied=tied, gather=gather, passes=passes, checkpoint_layers=checkpoint)
    gradients, samples = watch_gradient(own), make_samples(groups)
    metrics = own.learn(samples, count_totals(samples, max_tokens=8)).metrics
    own.ranks.leave()
    return metrics, gradients


def count_passes(rank: int, groups: Sequence[int], gather: str) -> list[int]:
    """Micro-batches that this rank computes, idle ones included, and those that are its own."""
    own, samples = open_own(PolicyLoss(), gather=gather), make_samples(groups)
    micros = own._micro_batches(samples)
    num = [len(micros), sum(type(micro).__name__ == "MicroBatch" for micro in micros)]
    own.ranks.leave()
    return num


def ask(rank: int, gather: str) -> tuple[Any, Any, Any]:
    """Log-probs now, log-probs of the reference after a step, hidden states."""
    own, samples = open_own(make_loss("reference"), gather=gather, passes=2), make_samples([2, 2])
    before = own.logps(PAIR)
    own.learn(samples, count_totals(samples, max_tokens=8))
    answers = before, own.logps(PAIR, weights="reference"), own.logps(PAIR)
    states = own.hidden_states(PAIR)[0]
    own.ranks.leave()
    return (*answers, states)


def measure(rank: int, gather: str) -> Any:
    """Entropies of more pairs than ranks, then of one pair, which leaves a rank without any."""
    own = open_own(make_loss("reference"), gather=gather)
    answers = own.entropies(LONG_AND_SHORT, temperature=0.7), own.entropies(PAIR)
    own.ranks.leave()
    return answers


def save_midway(rank: int, folder: Path) -> list[str]:
    """Two updates with a checkpoint between them; the weights after each."""
    own, samples = open_own(make_loss("reference")), make_samples([2, 3])
    totals = count_totals(samples, max_tokens=8)
    own.learn(samples, totals)
    hashes = [hash_weights(own.weights())]
    own.save(folder)
    own.learn(samples, totals)
    hashes.append(hash_weights(own.weights()))
    own.ranks.leave()
    return hashes


def save_slowly(rank: int, folder: Path) -> list[str]:
    """A checkpoint whose weights take rank 0 longer to write than ranks wait for each other's shares; its weights."""
    own, samples = open_own(make_loss("policy")), make_samples([2, 3])
    own.learn(samples, count_totals(samples, max_tokens=8))
    _set_pg_timeout(timedelta(seconds=1))
    write = own.model.save_pretrained

    def write_slowly(*args: Any, **settings: Any) -> None:
        time.sleep(2.5)
        write(*args, **settings)

    own.model.save_pretrained = write_slowly
    own.save(folder)
    hashes = [hash_weights(own.weights())]
    own.ranks.leave()
    return hashes


def save_to_full_disk(rank: int, folder: Path) -> str:
    """A checkpoint that the disk does not take, as safetensors says it, and another that it does; the fault."""
    own = open_own(make_loss("policy"))
    write, said = own.model.save_pretrained, ""

    def meet_full_disk(*args: Any, **settings: Any) -> None:
        raise SafetensorError("No space left on device")

    own.model.save_pretrained = meet_full_disk
    try:
        own.save(folder)
    except AgreedFault as fault:
        said = str(fault)
    own.model.save_pretrained = write
    own.save(folder)
    own.ranks.leave()
    return said


def go_on(rank: int, folder: Path) -> list[str]:
    """The second of these updates, from the checkpoint."""
    model = tiny_model()
    own, samples = open_own(make_loss("reference"), model=model), make_samples([2, 3])
    own.load(folder, steps=1)
    hashes = [hash_weights(own.weights())]
    own.learn(samples, count_totals(samples, max_tokens=8))
    hashes.append(hash_weights(own.weights()))
    own.ranks.leave()
    return hashes


def train_adapter(rank: int, dtype: str, gather: str, folder: Path) -> tuple[dict[str, float], Gradients, bool]:
    """An update of an adapter, and whether its checkpoint brings the same weights back."""
    own = open_own(make_loss("reference"), model=make_adapted_model(dtype), gather=gather, passes=2)
    watched, samples = watch_gradient(own), make_samples(UNEVEN)
    metrics = own.learn(samples, count_totals(samples, max_tokens=8)).metrics
    gradients, after = dict(watched), hash_weights(own.weights())
    own.save(folder)
    own.learn(samples, count_totals(samples, max_tokens=8))
    own.load(folder, steps=2)
    is_restored = hash_weights(own.weights()) == after
    own.ranks.leave()
    return metrics, gradients, is_restored


def load_other(rank: int, folder: Path) -> tuple[str, bool]:
    """Load a checkpoint that cannot be loaded: what is said, and whether nothing changed."""
    own = open_own(PolicyLoss())
    before = hash_weights(own.weights())
    try:
        own.load(folder, steps=1)
    except AgreedFault as error:
        is_unchanged = hash_weights(own.weights()) == before
        own.ranks.leave()
        return str(error), is_unchanged
    raise AssertionError("it was loaded")


def meet_not_a_number(rank: int) -> tuple[str, bool, float]:
    """What a rank says of a loss that is NaN on one of them, whether weights stayed, and the next update's loss."""
    own, samples = open_own(NotANumber()), make_samples([2, 2])
    totals, before = count_totals(samples, max_tokens=8), hash_weights(own.weights())
    try:
        own.learn(samples, totals)
    except AgreedFault as error:
        said, is_unchanged = str(error), hash_weights(own.weights()) == before
    own._loss = PolicyLoss()
    loss = own.learn(samples, totals).metrics["loss/total"]
    own.ranks.leave()
    return said, is_unchanged, loss


def learn_with(rank: int, loss: Loss, gather: str) -> None:
    from groupwise.learner.sharded import LedLearner, follow

    own, samples = open_own(loss, gather=gather), make_samples([2, 2])
    if rank:
        follow(own)
    else:
        LedLearner(own).learn(samples, count_totals(samples, max_tokens=8))


def learn_compiled(rank: int) -> tuple[dict[str, float], Gradients]:
    """An update with layers that torch traces; not translated for a processor, which takes a minute."""
    model = tiny_model()
    layer = type(model.model.layers[0])
    layer.compile = lambda self, **settings: torch.nn.Module.compile(self, backend="eager", **settings)
    model.set_attn_implementation("eager")  # the mask of packs on a CPU cannot be traced
    own = open_own(PolicyLoss(), model=model, gather="every_pass", compile_layers=True, checkpoint_layers=True)
    gradients, samples = watch_gradient(own), make_samples(UNEVEN)
    metrics = own.learn(samples, count_totals(samples, max_tokens=8)).metrics
    own.ranks.leave()
    return metrics, gradients


def step_unclipped(rank: int) -> Gradients:
    """The weights after a step whose gradient was not shortened."""
    own, samples = open_own(PolicyLoss(), **UNCLIPPED), make_samples(UNEVEN)
    own.learn(samples, count_totals(samples, max_tokens=8))
    weights = {name: value.numpy() for name, value in own.weights().items()}
    own.ranks.leave()
    return weights


def open_unpackable(rank: int) -> None:
    model = tiny_model()
    model.set_attn_implementation("flex_attention")
    open_own(PolicyLoss(), model=model)


def open_unsendable(rank: int) -> None:
    model = tiny_model()
    model.named_by = lambda: None
    open_own(PolicyLoss(), model=model)


def open_quantised(rank: int) -> None:
    model = tiny_model()
    model.model.norm.weight = Quantised(model.model.norm.weight.detach())
    open_own(PolicyLoss(), model=model)


class Quantised(torch.nn.Parameter):
    """A weight of another kind."""


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is on, and the most of them that live at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak, self._alive = 0, 0, set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and not isinstance(tensor, DTensor):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._alive or not size:
            return
        self._alive.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._alive.discard(place)
        self.now -= size


def count_while_opening(rank: int) -> tuple[int, int, int]:
    """Bytes of the model, of its share here, and the most that this rank allocated while it took that."""
    model, _ = TinyModel(hidden=64, layers=12, heads=2).open(words=WORDS, seed=0)
    whole, ranks = sum(value.nbytes for value in model.parameters()), Ranks(torch.device("cpu"), timeout=60.0)
    with Allocations() as allocations:
        outline = share_outline(model if rank == 0 else None, ranks)
        divide(outline.model, outline.weights, ranks, keeps_whole=False)
    share = sum(value.to_local().nbytes for value in outline.model.parameters() if isinstance(value, DTensor))
    ranks.leave()
    return whole, share, allocations.peak


def export_adapter(rank: int, folder: Path) -> tuple[str, str]:
    """Write an adapter's model merged; the weights before and after, which stay as they are."""
    own, samples = open_own(PolicyLoss(), model=make_adapted_model("float32")), make_samples([2, 2])
    own.learn(samples, count_totals(samples, max_tokens=8))
    before = hash_weights(own.weights())
    own.save(folder / "adapter")
    own.export(folder / "merged")
    after = hash_weights(own.weights())
    own.ranks.leave()
    return before, after


def play_run(rank: int, config: RunConfig, folder: Path, resume: bool, stop_after: int | None) -> None:
    """A run: rank 0 leads it, the others follow; with `stop_after`, rank 0 dies after so many updates."""
    if is_follower(config):
        follow_run(config)
        return
    from groupwise.training.observer import RunObserver

    class Killer(RunObserver):
        def on_update(self, update: Any) -> None:
            if update.number == stop_after:
                os._exit(9)

    with open_run(config, folder) as run:
        train(run, resume=resume, observers=[Killer()])


def look_at_run(rank: int, config: RunConfig, folder: Path) -> None:
    """Open a run without training it."""
    open_run(config, folder).close()


def hold_and_lose_a_follower(rank: int, checkpoint: Path) -> tuple[Any, Any, Any]:
    """Log-probs of a checkpoint, of the reference taken from it, and of what was learnt since; then rank 1 goes."""
    from groupwise.learner.sharded import LedLearner

    model, _ = small_config().model.open(words=small_config().words(), seed=1)
    own = open_own(PolicyLoss(), model=model)
    own.load(checkpoint, steps=1)
    saved, samples = own.logps(SHORT_PAIR), make_samples([2, 2], vocabulary=6)
    own.learn(samples, count_totals(samples, max_tokens=8))
    own.hold_reference(checkpoint)
    scores = saved, own.logps(SHORT_PAIR, weights="reference"), own.logps(SHORT_PAIR)
    if rank:
        os._exit(0)
    LedLearner(own).close()
    return scores


def learn_minibatches(rank: int, settings: dict[str, Any]) -> tuple[dict[str, float], Gradients]:
    """An update, and the weights after it."""
    own, samples = open_own(PolicyLoss(), **settings), make_samples(UNEVEN)
    metrics = own.learn(samples, count_totals(samples, max_tokens=8)).metrics
    weights = {name: value.numpy() for name, value in own.weights().items()}
    own.ranks.leave()
    return metrics, weights


def learn_critic(rank: int, critic: ValueHead, gather: str, config: dict[str, Any], folder: Path) -> tuple[Any, ...]:
    """Values, metrics and the critic's tensors of two updates, and whether its checkpoint brings them back."""
    samples = with_targets(make_samples(UNEVEN), by=critic.by, old=0.3)
    totals = count_totals(samples, max_tokens=8)
    own = open_own(PolicyLoss(), critic=critic, gather=gather, **config)
    first = own.learn(samples, totals).metrics
    second = own.learn(samples, totals).metrics
    values = own.values(samples)
    assert own._critic is not None
    tensors = {name: put_together(value).clone().numpy() for name, value in own._critic.tensors().items()}
    own.save(folder)
    own.learn(samples, totals)
    is_changed = own.values(samples) != values
    own.load(folder, steps=2)
    is_restored = own.values(samples) == values
    own.ranks.leave()
    return first, second, values, tensors, is_changed and is_restored


def start_critic(rank: int) -> tuple[bool, bool]:
    """Whether the trunk of a critic is the policy after a warm start, and still after an update."""
    samples = with_targets(make_samples([2, 3]))
    own = open_own(PolicyLoss(), critic=ValueModel(learning_rate=0.05), gather="every_pass")
    own.imitate(samples, WarmStartConfig(epochs=2, batch_tokens=48), seed=0)
    assert own._critic is not None
    trunk = own._critic.forward.model

    def is_policy() -> bool:
        return all(
            bool(torch.equal(put_together(one), put_together(other)))
            for one, other in zip(trunk.parameters(), own.model.parameters(), strict=True)
        )

    alike = is_policy()
    own.learn(samples, count_totals(samples, max_tokens=8))
    moved = is_policy()
    own.ranks.leave()
    return alike, moved


def break_critic(rank: int) -> tuple[str, bool, bool]:
    """What each rank says of a return that is infinite on one of them, whether nothing changed, and the next update."""
    samples = with_targets(make_samples([2, 2]))
    own = open_own(PolicyLoss(), critic=ValueHead(learning_rate=0.05))
    totals = count_totals(samples, max_tokens=8)
    before = hash_weights(own.weights())
    endless = ValueTargets(values=samples[0].targets.values, returns=(math.inf,) * len(samples[0].response_ids))
    try:
        own.learn([replace(samples[0], targets=endless), *samples[1:]], totals)
    except AgreedFault as error:
        said, is_unchanged = str(error), hash_weights(own.weights()) == before
    own.learn(samples, totals)
    is_moved = any(value for of_sample in own.values(samples) for value in of_sample)
    own.ranks.leave()
    return said, is_unchanged, is_moved
