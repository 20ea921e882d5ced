"""What passes over a model hold at a time: the learner's, there and back, and the engine's, which reads prompts."""

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
from groupwise.envs.part_queries import ask_panel
from groupwise.models import attention_gpu as on_gpu
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import Forward, ForwardSettings
from groupwise.models.output_layer import VOCABULARY_TILE, cut_tiles
from groupwise.models.pack import Chains, pack
from groupwise.rollout.actions import Action, ActionRule, Admissible
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.episodes import Attempt, Player
from groupwise.training.config.run_config import RunConfig
from groupwise.training.open_run import open_prompter


@dataclass(frozen=True, kw_only=True)
class MicroBatchShape:
    """How large a micro-batch is."""

    tokens: int
    predicting: int
    """Those that predict a token that trains."""
    keys: int
    """Keys that attention reads: a path is copied as often as it forks."""
    chunk: int = 8192
    """Predicting tokens that the head takes at a time."""


@dataclass(frozen=True, kw_only=True)
class PassBytes:
    """Bytes of a pass there and back, beside weights, and gradients that are there already."""

    kept: float
    """What is kept from the way there for the way back."""
    there: float
    """Most at a time on the way there; copies of weights in a narrower type are among it."""
    back: float
    """Most at a time on the way back."""

    @property
    def peak(self) -> float:
        return max(self.there, self.back)


def rehearse_learning(
    model: Any, settings: ForwardSettings, shape: MicroBatchShape, *, adds_gradients: bool, keeps_gradients: bool = True
) -> PassBytes:
    """Run the learner's pass over an outline of its model, there and back.

    The model is set up as the learner sets its model up. With `adds_gradients`, those of an earlier micro-batch are
    there to be added to, and not counted; without `keeps_gradients` each goes as soon as it is there.
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
    """Run the body over tokens without a way back, as an engine does with prompts; most bytes at a time."""
    on_gpu.register()
    halves = CausalLM.of(model)
    halves.set_attention(on_gpu.NAME)
    with count_live_bytes(model) as live:
        halves.run_body(**_make_inputs(MicroBatchShape(tokens=tokens, predicting=0, keys=tokens)))
        return live.peak


def _make_inputs(shape: MicroBatchShape) -> dict[str, Any]:
    """What the body is called with to read a pack on a GPU (`models.pack.Chains`)."""
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
    """What the fused head (`models.fused_head`) holds at a time, tile by tile, without the arithmetic of its kernels.

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


# Bytes of tensors that are alive, counted operation by operation, for tensors that have shapes and no numbers.


class LiveBytes(TorchDispatchMode):
    """Counts the storage of every tensor that an operation puts out, until nobody holds it any more.

    Views share a storage, which counts once. What is counted is what torch asks its allocator for; the allocator's own
    rounding, and what libraries keep for themselves, are not.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        """Bytes that are alive."""
        self.peak = 0
        """Most bytes that were alive at a time since `start`."""
        self._known: set[int] = set()

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            self._count(tensor)

    def start(self) -> None:
        """Count from here on: what is alive now is not counted."""
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
    """Let operations on an outline make no numbers, and count what they would hold beside its weights."""
    weights = list(outline.parameters())
    mode: Any = weights[0]  # a FakeTensor: mypy knows parameters only
    with mode.fake_mode, LiveBytes() as live:
        live.count([*weights, *outline.buffers()])
        live.start()
        yield live


# A rehearsal of an update's attempts, without a model: how long prompts become, and how they pack.
#
# Responses are as long as they may be, tokens drawn at random; where the environment lists what is possible, one of
# that is done whatever the response says, so that observations are those of an agent that gets somewhere.

MAX_TASKS = 4
"""Tasks that are played; an update's others are taken to be like them."""


OTHER_TOKENS = 10_000_000
"""What is added to the tokens of a task to make another task of it: more than any vocabulary has."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What attempts of an update come to."""

    longest: int
    read: int
    """Most tokens that the engine reads before it samples on, over all attempts of an update."""
    micro_batch: MicroBatchShape
    num_micro_batches: int
    is_played: bool = True
    """Whether attempts were played; otherwise prompts are taken to be as long as the model reads."""


def assume_longest(config: RunConfig, *, context: int, token_budget: int) -> Rehearsal:
    """What attempts come to at most, where none is played: an environment from elsewhere may cost money or hours."""
    attempts = config.training.tasks * config.rollout.plan.attempts
    return Rehearsal(
        longest=context,
        read=attempts * context,
        micro_batch=MicroBatchShape(tokens=token_budget, predicting=token_budget, keys=token_budget),
        num_micro_batches=2,
        is_played=False,
    )


def rehearse_attempts(config: RunConfig, tokenizer: Any, *, context: int | None, token_budget: int) -> Rehearsal:
    """Play the attempts of some of an update's tasks and pack what they would train on."""
    tasks = ask_panel(config.env, "train")[: min(MAX_TASKS, config.training.tasks)]
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
    """Samples of an update: those of the tasks that were played, and again with other tokens for the other tasks."""
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
    """Most tokens that attempts have the engine read at a step: of equal prompts one, and what it has not read yet."""
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

    attempts = [
        Attempt(task=task, number=number, seed=len(tasks) * number + place)
        for place, task in enumerate(tasks)
        for number in range(rollout.plan.attempts)
    ]
    with InProcess(config.env) as host:
        player = Player(
            engine=ScriptedEngine(answer, context=context),
            host=host,
            prompter=open_prompter(config, tokenizer),
            action_rule=_DoWhatIsPossible(rollout.action_rule),
            max_tokens=rollout.max_tokens,
        )
        return player.play(attempts, temperature=rollout.temperature)


@dataclass(frozen=True)
class _DoWhatIsPossible:
    """Does one of the actions that the environment lists; what it lists nothing, does what the response says."""

    rule: ActionRule

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        if not admissible:
            return self.rule.read(text, stopped=stopped, admissible=admissible)
        return Action(text=random.Random(text).choice(list(admissible)), well_formed=True)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return self.rule.say(action, admissible=admissible)
