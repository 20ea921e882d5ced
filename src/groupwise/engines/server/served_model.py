"""A model behind HTTP: one thread that computes, a gate that closes while weights arrive, and the version in use."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Engine, Generation, Request
from groupwise.engines.open_engine import open_engine
from groupwise.models import folder as folders
from groupwise.models.causal_lm import choose_device, read_free_memory
from groupwise.models.outline import plan_model
from groupwise.models.pretrained import ALL_LINEAR, PretrainedModel
from groupwise.system.errors import EngineFault
from groupwise.system.memory import check_fits
from groupwise.system.text import quote_line

MAX_PAUSE = 600.0
"""Seconds that a request waits at a closed gate before it is told so."""

Answer = TypeVar("Answer")


class RefusedRequest(EngineFault):
    """A request that is not answered, with the HTTP status that says so."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a server says of its model."""

    name: str
    """What requests call it."""
    root: str
    """The folder or hub name that it was loaded from."""
    precision: str
    """What the engine computes in."""
    vocabulary: int
    """How many token ids it has."""


class ServedModel:
    """An engine that many connections share.

    One thread computes, whoever asks: what is asked together is answered together, and nothing else is in that batch.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        parameters: Callable[[], Mapping[str, torch.Tensor]],
        card: ModelCard,
    ) -> None:
        """`open_engine` is called in the thread that computes; `parameters` are the model's weights as they stand."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self.engine = self._thread.submit(open_engine).result()
        self._parameters = parameters
        self.gate = asyncio.Event()
        """Requests wait at it while it is closed; what is being computed is finished."""
        self.gate.set()
        self._staged: dict[str, torch.Tensor] | None = None
        self.card = card

    async def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests as one batch."""
        for request in requests:
            self._check_tokens(request.prompt_ids, request.max_tokens)
        await self._wait_at_gate()
        return await self._compute(lambda: self.engine.generate(requests))

    async def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float) -> list[tuple[float, ...]]:
        """Score sequences as one batch."""
        for prompt, response in sequences:
            self._check_tokens((*prompt, *response))
        await self._wait_at_gate()
        return await self._compute(lambda: self.engine.score(sequences, temperature=temperature))

    def start_update(self) -> None:
        """Begin an update of the weights; one that was begun and never finished is forgotten."""
        self._staged = {}

    async def stage(self, path: str) -> None:
        """Read weights from a safetensors file; they are used once the update is finished."""
        weights = await asyncio.to_thread(_read_weights, Path(path))
        self._check_fit(weights)
        self._staged = self._get_staged() | weights

    async def finish(self, version: str) -> None:
        """Use the weights that were read, as a version."""
        staged, self._staged = self._get_staged(), None
        await self._compute(lambda: self.engine.load(staged, version=int(version)))

    async def load_adapter(self, folder: str, name: str) -> None:
        """Use the weights of a LoRA adapter's folder, as the version that its name ends with; the model must have such
        an adapter already."""
        stored = await asyncio.to_thread(_read_weights, Path(folder) / folders.ADAPTER_WEIGHTS)
        own = {folders.name_as_stored(name): name for name in self._parameters()}
        weights = {own.get(name, name): value for name, value in stored.items()}
        self._check_fit(weights)
        await self._compute(lambda: self.engine.load(weights, version=int(name.rpartition("-")[2])))

    async def compute_checksums(self) -> dict[str, dict[str, str]]:
        """A digest of each weight, by name."""
        digests = await self._compute(lambda: {name: _hash_tensor(value) for name, value in self._parameters().items()})
        return {"checksums": digests}

    async def _compute(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _wait_at_gate(self) -> None:
        try:
            await asyncio.wait_for(self.gate.wait(), MAX_PAUSE)
        except TimeoutError:
            raise RefusedRequest(f"paused for {MAX_PAUSE:g} seconds, and nobody called /resume", status=503) from None

    def _get_staged(self) -> dict[str, torch.Tensor]:
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        return self._staged

    def _check_tokens(self, ids: Sequence[int], further: int = 0) -> None:
        """Refuse what the model cannot read. A token that it has not would bring a GPU down."""
        size, num_tokens, context = self.card.vocabulary, len(ids) + further, self.engine.context
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise RefusedRequest(f"token ids go from {min(ids)} to {max(ids)}; give some from 0 up, below {size}")
        if context is not None and num_tokens > context:
            raise RefusedRequest(f"{num_tokens} tokens were asked for, but the model's context is {context}")

    def _check_fit(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Refuse weights of another model, whole: a model that has taken half of them over is none at all."""
        own = self._parameters()
        for name, value in weights.items():
            if name not in own:
                raise RefusedRequest(
                    f"it serves another model, which has no weight {quote_line(name)!r}; start it with the run's own"
                )
            if value.shape != own[name].shape:
                raise RefusedRequest(
                    f"it serves another model, whose {quote_line(name)} has the shape {tuple(own[name].shape)} and not "
                    f"{tuple(value.shape)}; start it with the run's own"
                )


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
        raise RefusedRequest(
            f"the weights at {quote_line(str(path))} cannot be read here ({reason}); hand them over through a folder "
            "that this server sees too"
        ) from None


def _hash_tensor(value: torch.Tensor) -> str:
    plain = value.detach().cpu().contiguous().flatten()
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()


# Loading what a server serves: a model's folder, an adapter's, or a name of the hub.


def open_served_model(options: argparse.Namespace) -> ServedModel:
    """Load a model as the options of the command say, and open an engine over it."""
    device = choose_device(options.device)
    folders.check_folder(options.model)
    plan = plan_model(PretrainedModel(path=options.model, dtype=options.dtype), words=())
    assert plan is not None
    size = sum(value.nbytes for value in plan.sketch().parameters())
    check_fits(
        {"weights": size}, read_free_memory(device), remedy="take a smaller model, or a machine with more memory"
    )
    model = _load(options).to(device)
    for weight in model.parameters():
        # Loaded weights lie in the mapped file, wherever that puts them; where a number lies can decide its last bit,
        # and a run's own engine has copies.
        weight.data = weight.data.clone()

    def open_in_thread() -> Engine:
        if options.threads:
            torch.set_num_threads(options.threads)
        return open_engine(
            model,
            precision=options.precision,
            decoding=options.decoding,
            rows=options.rows,
            memory=options.memory,
            compile_parts=options.compile_parts,
            batch_tokens=options.batch_tokens,
        )

    card = ModelCard(
        name=options.name,
        root=folders.resolve_path(options.model),
        precision=options.precision,
        vocabulary=model.get_input_embeddings().weight.shape[0],
    )
    return ServedModel(open_in_thread, lambda: dict(model.named_parameters()), card)


def _load(options: argparse.Namespace) -> Any:
    """The model of a folder or a hub name; with an adapter where the folder holds one, or weights of one will come."""
    dtype = getattr(torch, options.dtype)
    adapter = folders.find_adapter(options.model)
    if adapter is not None:
        return folders.load_adapter(adapter, folders.load_model(adapter.base, dtype=dtype))
    if options.lora_rank:
        adapted = PretrainedModel(
            path=options.model,
            dtype=options.dtype,
            lora_rank=options.lora_rank,
            lora_scale=options.lora_scale,
            lora_targets=tuple(options.lora_targets.split(",")) if options.lora_targets else ALL_LINEAR,
        )
        return adapted.open(words=(), seed=0)[0]
    return folders.load_model(folders.resolve_path(options.model), dtype=dtype)
