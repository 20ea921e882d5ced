"""Rehearse passes over a model without numbers, to find their peak memory: the learner's, and the engine's."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from groupwise.data.records import Task, Trajectory
from groupwise.data.samples import Sample
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs.part_queries import ask_task_set
from groupwise.models import attention_gpu as on_gpu
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward, ForwardSettings
from groupwise.models.head import VOCABULARY_TILE, cut_tiles
from groupwise.models.pack import Chains, pack
from groupwise.rollout.actions import Action, ActionParser, Admissible
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.training.config.run_config import RunConfig
from groupwise.training.open_run import open_prompter


@dataclass(frozen=True, kw_only=True)
class MicroBatchShape:
    """The size of a micro-batch."""

    tokens: int
    predicting: int
    """Tokens that predict a token that trains."""
    keys: int
    """Keys that attention reads; shared prefixes are copied per path."""
    chunk: int = 8192
    """Predicting tokens per pass of the head."""


@dataclass(frozen=True, kw_only=True)
class PassBytes:
    """Bytes of a forward and backward pass, without weights and earlier gradients."""

    kept: float
    """Kept from the forward for the backward pass."""
    there: float
    """Peak of the forward pass, with weights that are cast to a narrower type."""
    back: float
    """Peak of the backward pass."""

    @property
    def peak(self) -> float:
        return max(self.there, self.back)


def rehearse_learning(
    model: Any, settings: ForwardSettings, shape: MicroBatchShape, *, adds_gradients: bool, keeps_gradients: bool = True
) -> PassBytes:
    """Run the learner's forward and backward pass over an outline of its model.

    With `adds_gradients`, gradients of an earlier micro-batch are there already and not counted. Without
    `keeps_gradients`, each gradient is dropped as soon as it is computed.
    """
    on_gpu.register()
    halves = CausalLM.of(Forward(model, settings).model)
    halves.set_attention(on_gpu.NAME)
    with count_live_bytes(model) as live:
        for value in model.parameters():
            value.grad = torch.empty_like(value) if adds_gradients and value.requires_grad else None
            if value.requires_grad and not keeps_gradients:
                value.register_post_accumulate_grad_hook(_drop_gradient)
        live.start()
        inputs = _make_inputs(shape)
        narrow, keeps_casts = settings.precision == "bfloat16", not settings.checkpoint_layers  # as `Forward` does
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow, cache_enabled=keeps_casts):
            hidden = halves.run_body(**inputs).flatten(0, 1)
            hidden = hidden.index_select(0, torch.empty(shape.predicting, dtype=torch.long))
            if settings.precision == "bfloat16":
                hidden = hidden.to(torch.bfloat16)
        kept, there = live.now, live.peak
        live.peak = live.now
        score = cast(Callable[..., torch.Tensor], HeadOutline.apply)(hidden, halves.head.weight, shape.chunk).sum()
        del hidden
        score.backward()
        return PassBytes(kept=kept, there=there, back=live.peak)


def _drop_gradient(value: torch.Tensor) -> None:
    value.grad = None


@torch.no_grad()
def rehearse_reading(model: Any, tokens: int) -> int:
    """Run the body over tokens without a backward pass, as an engine does; returns the peak bytes."""
    on_gpu.register()
    halves = CausalLM.of(model)
    halves.set_attention(on_gpu.NAME)
    with count_live_bytes(model) as live:
        halves.run_body(**_make_inputs(MicroBatchShape(tokens=tokens, predicting=0, keys=tokens)))
        return live.peak


def _make_inputs(shape: MicroBatchShape) -> dict[str, Any]:
    """The body's arguments for a pack on a GPU (`models.pack.Chains`)."""
    ids = torch.empty(1, shape.tokens, dtype=torch.long)
    bounds = torch.empty(2, dtype=torch.int32)
    source, begins = torch.empty(shape.keys, dtype=torch.long), torch.empty(shape.tokens, dtype=torch.long)
    return {
        "input_ids": ids,
        "position_ids": ids,
        "attention_mask": torch.empty(1, 1, 1, 1, dtype=torch.int32),
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": shape.tokens,
        "max_length_k": shape.keys,
        "key_copies": [source, source, begins] if shape.keys > shape.tokens else [],
    }


class HeadOutline(torch.autograd.Function):
    """The memory of the fused head (`models.head`), tile by tile, without its arithmetic.

    Axes: U predicting nodes, H hidden, V vocabulary.
    """

    @staticmethod
    def forward(ctx: Any, hidden_UH: torch.Tensor, weight_VH: torch.Tensor, chunk: int) -> torch.Tensor:
        ctx.save_for_backward(hidden_UH, weight_VH)
        ctx.chunk = chunk
        narrow = weight_VH.to(hidden_UH.dtype)
        for rows in hidden_UH.split(chunk):
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
        del raw_UV
        return hidden_UH.new_empty(len(hidden_UH), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, into_U: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_UH, weight_VH = ctx.saved_tensors
        narrow = weight_VH.to(hidden_UH.dtype)
        grad_hidden = torch.empty_like(hidden_UH)
        grad_weight = torch.zeros_like(weight_VH, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for rows in hidden_UH.split(ctx.chunk):
            total = torch.zeros_like(rows, dtype=torch.float32)
            for low, high in cut_tiles(len(narrow), VOCABULARY_TILE):
                raw_UV = rows @ narrow[low:high].T
                grad_UV = torch.empty_like(raw_UV)
                total += grad_UV @ narrow[low:high]
                if grad_weight is not None:
                    grad_weight[low:high] += grad_UV.T @ rows
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VH.dtype), None


class LiveBytes(TorchDispatchMode):
    """Counts the storage of every output tensor until it is freed; views share a storage, which counts once.

    The allocator's rounding and the memory of libraries are not counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes that are alive."""
        self.peak = 0
        """Largest number of bytes alive since `start`."""
        self._known: set[int] = set()

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            self._count(tensor)

    def start(self) -> None:
        self.now = self.peak = 0

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        self.count(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor))
        return outputs


@contextmanager
def count_live_bytes(outline: nn.Module) -> Iterator[LiveBytes]:
    """Run operations on an outline without numbers, and count their memory without the weights."""
    weights = list(outline.parameters())
    mode: Any = weights[0]  # a FakeTensor: mypy knows parameters only
    with mode.fake_mode, LiveBytes() as live:
        live.count([*weights, *outline.buffers()])
        live.start()
        yield live


# Sample rollouts of an update without a model show how long prompts become, and how they pack.
#
# Responses have the largest length and random tokens. If the environment lists possible actions, a random one is taken
# instead of the response's, for realistic observations.

MAX_TASKS = 4
"""Number of sampled tasks; an update's others are assumed to be like them."""


OTHER_TOKENS = 10_000_000
"""Added to the tokens of a task to make another task: more than any vocabulary has."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """The sizes of an update's rollouts."""

    longest: int
    read: int
    """Largest number of tokens that the engine reads per step, over all rollouts of an update."""
    micro_batch: MicroBatchShape
    num_micro_batches: int
    is_played: bool = True
    """Whether rollouts were sampled; otherwise prompts are assumed to fill the context."""


def assume_longest(config: RunConfig, *, context: int, token_budget: int) -> Rehearsal:
    """The largest sizes, without rollouts: an outside environment may cost money or hours."""
    rollouts = config.training.tasks * config.rollout.group_size
    return Rehearsal(
        longest=context,
        read=rollouts * context,
        micro_batch=MicroBatchShape(tokens=token_budget, predicting=token_budget, keys=token_budget),
        num_micro_batches=2,
        is_played=False,
    )


def rehearse_rollouts(config: RunConfig, tokenizer: Any, *, context: int | None, token_budget: int) -> Rehearsal:
    """Sample rollouts of some of an update's tasks, and pack their samples."""
    tasks = ask_task_set(config.env, "train")[: min(MAX_TASKS, config.training.tasks)]
    trajectories = _play(config, tokenizer, tasks, context)
    learner: Any = config.training.learner
    packs = pack(
        _make_samples(trajectories, tasks, config.training.tasks),
        token_budget=token_budget,
        share=getattr(learner, "share_prefixes", True),
    )
    largest = max(packs, key=len)
    prompts = [step.prompt_ids for trajectory in trajectories for step in trajectory.steps]
    return Rehearsal(
        longest=max(map(len, prompts)) + config.rollout.max_tokens,
        read=_count_read(trajectories) * config.training.tasks // len(tasks),
        micro_batch=MicroBatchShape(
            tokens=len(largest),
            predicting=len(largest.predictions.node),
            keys=len(Chains.of(largest.position_ids[0].numpy()).source),
        ),
        num_micro_batches=len(packs),
    )


def _make_samples(trajectories: Sequence[Trajectory], tasks: Sequence[Task], num_tasks: int) -> list[Sample]:
    """Samples of an update: those of the sampled tasks, and copies with other tokens for the other tasks."""
    place = {task.id: number for number, task in enumerate(tasks)}
    samples = []
    for copied in range(-(-num_tasks // len(tasks))):
        for number, trajectory in enumerate(trajectories):
            group = copied * len(tasks) + place[trajectory.task.id]
            if group >= num_tasks:
                continue
            samples += [
                Sample(
                    prompt_ids=tuple(token + OTHER_TOKENS * copied for token in step.prompt_ids),
                    response_ids=step.response_ids,
                    advantage=1.0,
                    trajectory=copied * len(trajectories) + number,
                    step=step.index,
                    group=group,
                )
                for step in trajectory.steps
            ]
    return samples


def _count_read(trajectories: Sequence[Trajectory]) -> int:
    """Largest number of new tokens that the engine reads per step; equal prompts count once."""
    unread: dict[int, dict[tuple[int, ...], int]] = {}
    for trajectory in trajectories:
        known: tuple[int, ...] = ()
        for step in trajectory.steps:
            prompt = step.prompt_ids
            num_known = len(known) if known and prompt[: len(known)] == known else 0
            unread.setdefault(step.index, {})[prompt] = len(prompt) - num_known
            known = (*prompt, *step.response_ids[:-1])
    return max(sum(prompts.values()) for prompts in unread.values())


def _play(config: RunConfig, tokenizer: Any, tasks: tuple[Task, ...], context: int | None) -> list[Trajectory]:
    rollout, special = config.rollout, set(tokenizer.all_special_ids)
    words = [token for token in range(len(tokenizer)) if token not in special]

    def answer(request: Request) -> list[int]:
        return random.Random(request.seed).choices(words, k=request.max_tokens)

    rollouts = [
        Rollout(task=task, number=number, seed=len(tasks) * number + place)
        for place, task in enumerate(tasks)
        for number in range(rollout.group_size)
    ]
    with InProcess(config.env) as host:
        player = Player(
            engine=ScriptedEngine(answer, context=context),
            host=host,
            prompter=open_prompter(config, tokenizer),
            action_parser=_DoWhatIsPossible(rollout.action_parser),
            max_tokens=rollout.max_tokens,
        )
        return player.play(rollouts, temperature=rollout.temperature)


@dataclass(frozen=True)
class _DoWhatIsPossible:
    """Takes a random possible action; if the environment lists none, the response's action."""

    rule: ActionParser

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        if not admissible:
            return self.rule.read(text, stopped=stopped, admissible=admissible)
        return Action(text=random.Random(text).choice(list(admissible)), well_formed=True)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return self.rule.say(action, admissible=admissible)
