"""The model of a server: one thread computes, and a gate pauses requests during a weight sync."""

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
from groupwise.system.processes import check_fits
from groupwise.system.text import quote_line

MAX_PAUSE = 600.0
"""Time-out of a request while the server is paused, in seconds."""

Answer = TypeVar("Answer")


class RefusedRequest(EngineFault):
    """A request that is refused, with its HTTP status."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A server's description of its model."""

    name: str
    root: str
    precision: str
    """Of the engine."""
    vocabulary: int


class ServedModel:
    """An engine that many connections share.

    One thread computes. Each list of requests is one batch, which contains nothing else.
    """

    def __init__(
        self, open_engine: Callable[[], Engine], parameters: Callable[[], Mapping[str, torch.Tensor]], card: ModelCard
    ) -> None:
        """`open_engine` is called in the computing thread; `parameters` returns the current weights."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self.engine = self._thread.submit(open_engine).result()
        self._parameters = parameters
        self.gate = asyncio.Event()
        """If it is not set, new requests wait; running ones are finished."""
        self.gate.set()
        self._staged: dict[str, torch.Tensor] | None = None
        self.card = card

    async def generate(self, requests: Sequence[Request]) -> list[Generation]:
        for request in requests:
            self._check_tokens(request.prompt_ids, request.max_tokens)
        await self._wait_at_gate()
        return await self._compute(lambda: self.engine.generate(requests))

    async def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float) -> list[tuple[float, ...]]:
        for prompt, response in sequences:
            self._check_tokens((*prompt, *response))
        await self._wait_at_gate()
        return await self._compute(lambda: self.engine.score(sequences, temperature=temperature))

    def start_update(self) -> None:
        """Start an update of the weights; an earlier unfinished one is dropped."""
        self._staged = {}

    async def stage(self, path: str) -> None:
        """Read weights from a safetensors file; they are used when the update is finished."""
        weights = await asyncio.to_thread(_read_weights, Path(path))
        self._check_fit(weights)
        self._staged = self._get_staged() | weights

    async def finish(self, version: str) -> None:
        staged, self._staged = self._get_staged(), None
        await self._compute(lambda: self.engine.load(staged, version=int(version)))

    async def load_adapter(self, folder: str, name: str) -> None:
        """Use the weights of a LoRA adapter's folder; the name ends with their version. The model must already have
        such an adapter."""
        stored = await asyncio.to_thread(_read_weights, Path(folder) / folders.ADAPTER_WEIGHTS)
        own = {folders.name_as_stored(name): name for name in self._parameters()}
        weights = {own.get(name, name): value for name, value in stored.items()}
        self._check_fit(weights)
        await self._compute(lambda: self.engine.load(weights, version=int(name.rpartition("-")[2])))

    async def compute_checksums(self) -> dict[str, dict[str, str]]:
        def hash_all() -> dict[str, str]:
            digests: dict[str, str] = {}
            for name, value in self._parameters().items():
                plain = value.detach().cpu().contiguous().flatten()
                digests[name] = hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()
            return digests

        return {"checksums": await self._compute(hash_all)}

    async def _compute(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _wait_at_gate(self) -> None:
        try:
            await asyncio.wait_for(self.gate.wait(), MAX_PAUSE)
        except TimeoutError:
            raise RefusedRequest(f"the server was paused for {MAX_PAUSE:g} seconds; call /resume", status=503) from None

    def _get_staged(self) -> dict[str, torch.Tensor]:
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        return self._staged

    def _check_tokens(self, ids: Sequence[int], further: int = 0) -> None:
        """Refuse invalid token ids, which would crash a GPU, and requests longer than the context."""
        size, num_tokens, context = self.card.vocabulary, len(ids) + further, self.engine.context
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise RefusedRequest(f"token ids are from {min(ids)} to {max(ids)}, but must be from 0 to {size - 1}")
        if context is not None and num_tokens > context:
            raise RefusedRequest(f"the request needs {num_tokens} tokens, but the model's context is {context}")

    def _check_fit(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Refuse weights of another model before any of them is loaded."""
        own = self._parameters()
        for name, value in weights.items():
            if name not in own:
                raise RefusedRequest(
                    f"it serves another model, without the weight {quote_line(name)!r}; start it with the run's model"
                )
            if value.shape != own[name].shape:
                raise RefusedRequest(
                    f"it serves another model: {quote_line(name)} has shape {tuple(own[name].shape)}, not "
                    f"{tuple(value.shape)}; start it with the run's model"
                )


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
        raise RefusedRequest(
            f"the weights at {quote_line(str(path))} cannot be read here ({reason}); sync them through a folder that "
            "this server sees too"
        ) from None


def open_served_model(options: argparse.Namespace) -> ServedModel:
    """Load the model of the command's options, and open an engine over it."""
    device = choose_device(options.device)
    folders.check_folder(options.model)
    plan = plan_model(PretrainedModel(path=options.model, dtype=options.dtype), words=())
    assert plan is not None
    size = sum(value.nbytes for value in plan.sketch().parameters())
    check_fits({"weights": size}, read_free_memory(device), remedy="use a smaller model, or a machine with more memory")
    model = _load(options).to(device)
    for weight in model.parameters():
        # Loaded weights are views of the mapped file. Their memory alignment can change the last bit of a result, and
        # the engines of a run have copies.
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
