"""The engine protocol: token ids in, token ids out, with what the sampler knew when it sampled.

An engine generates, scores and loads. It never sees text: prompts are ids, responses are ids, and the log-probs and
entropies are those of the distribution that was sampled from, at its temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Ask for one response.

    Worked example: `Request(prompt_ids=(1, 7, 9), seed=42, max_tokens=8, stop_ids=(2,))` samples until token 2 or eight
    tokens, and samples the same tokens whatever else is asked for beside it.
    """

    prompt_ids: tuple[int, ...]
    """The prompt, exactly as the model reads it."""
    seed: int
    """Where this response's random numbers come from; no other request shares them."""
    max_tokens: int
    """Most tokens to sample."""
    temperature: float = 1.0
    """Divides the logits; 0 = take the likeliest token."""
    stop_ids: tuple[int, ...] = ()
    """Sampling ends with any of these; the token is part of the response."""
    session: str | None = None
    """Requests of one attempt share a name, so that what was computed for an earlier prompt can be used again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One sampled response."""

    response_ids: tuple[int, ...]
    """The sampled tokens."""
    logp: tuple[float, ...]
    """Log-probability of each token under the distribution it was sampled from."""
    entropy: tuple[float, ...]
    """Entropy of that distribution, in nats; empty from an engine that does not give it."""
    stopped: bool
    """Whether a stop token ended it; False = cut off at `max_tokens`."""
    version: int
    """Version of the weights that sampled it."""


class Engine(Protocol):
    """Generates, scores and loads weights."""

    gives_entropy: ClassVar[bool]
    """Whether a generation says the entropy at each token; an engine without it leaves `Generation.entropy` empty."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""

    @property
    def context(self) -> int | None:
        """Most tokens of a prompt and its response together; None = no limit."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, for (prompt, response) pairs."""

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Take over weights by name, in place."""
