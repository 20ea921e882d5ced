"""A model behind HTTP: one thread that computes, a gate that closes while weights arrive, and the version in use."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from groupwise.core.score_requests import PromptAndResponse
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.engine import Engine, Generation, Request
from groupwise.engines.remote.server.messages import RefusedRequest
from groupwise.models.folder import ADAPTER_WEIGHTS, name_as_stored

if TYPE_CHECKING:
    import torch

MAX_PAUSE = 600.0
"""Seconds that a request waits at a closed gate before it is told so."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a server says of its model."""

    name: str
    """What requests call it."""
    root: str
    """The folder or hub name that it was loaded from."""
    precision: str
    """What the engine computes in."""
    dtype: str
    """What its weights are kept in; an adapter's may be wider."""
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
        self._engine = self._compute(open_engine)
        self._parameters = parameters
        self._is_open = threading.Event()
        self._is_open.set()
        self._staged: dict[str, torch.Tensor] | None = None
        self.card = card

    @property
    def gives(self) -> frozenset[str]:
        """What the engine gives beside tokens and log-probs."""
        return self._engine.gives

    @property
    def context(self) -> int | None:
        """How many tokens a prompt and its response may have together."""
        return self._engine.context

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._engine.version

    @property
    def is_paused(self) -> bool:
        """Whether requests wait."""
        return not self._is_open.is_set()

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests as one batch."""
        for request in requests:
            self._check_length(len(request.prompt_ids) + request.max_tokens)
        self._wait_at_gate()
        return self._compute(lambda: self._engine.generate(requests))

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float) -> list[tuple[float, ...]]:
        """Score sequences as one batch."""
        for prompt, response in sequences:
            self._check_length(len(prompt) + len(response))
        self._wait_at_gate()
        return self._compute(lambda: self._engine.score(sequences, temperature=temperature))

    def pause(self) -> None:
        """Let requests wait from now on; what is being computed is finished first."""
        self._is_open.clear()

    def resume(self) -> None:
        """Let requests through again."""
        self._is_open.set()

    def start_update(self) -> None:
        """Begin an update of the weights; one that was begun and never finished is forgotten."""
        self._staged = {}

    def stage_file(self, path: str) -> None:
        """Read weights from a safetensors file; they are used once the update is finished."""
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        self._staged |= self._read_weights(Path(path))

    def finish_update(self, version: int) -> None:
        """Use the weights that were read, as a version."""
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        staged, self._staged = self._staged, None
        self._compute(lambda: self._engine.load(staged, version=version))

    def load_adapter(self, folder: str, version: int) -> None:
        """Use the weights of a LoRA adapter's folder, as a version; the model must have such an adapter already."""
        stored = self._read_file(Path(folder) / ADAPTER_WEIGHTS)
        own = {name_as_stored(name): name for name in self._parameters()}
        weights = {own.get(name, name): value for name, value in stored.items()}
        self._check_fit(weights)
        self._compute(lambda: self._engine.load(weights, version=version))

    def compute_checksums(self) -> dict[str, str]:
        """A digest of each weight, by name."""
        return self._compute(lambda: {name: _hash_tensor(value) for name, value in self._parameters().items()})

    def _compute(self, work: Callable[[], Answer]) -> Answer:
        return self._thread.submit(work).result()

    def _wait_at_gate(self) -> None:
        if not self._is_open.wait(MAX_PAUSE):
            raise RefusedRequest(f"paused for {MAX_PAUSE:g} seconds, and nobody called /resume", status=503)

    def _check_length(self, num_tokens: int) -> None:
        if self.context is not None and num_tokens > self.context:
            raise RefusedRequest(f"{num_tokens} tokens were asked for, but the model's context is {self.context}")

    def _read_weights(self, path: Path) -> dict[str, torch.Tensor]:
        weights = self._read_file(path)
        self._check_fit(weights)
        return weights

    def _read_file(self, path: Path) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
            raise RefusedRequest(
                f"the weights at {quote_line(str(path))} cannot be read here ({reason}); hand them over through a "
                "folder that this server sees too"
            ) from None

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


def _hash_tensor(value: torch.Tensor) -> str:
    import torch

    plain = value.detach().cpu().contiguous().flatten()
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()
