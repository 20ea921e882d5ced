"""The engine protocol: token ids in, token ids out, with log-probs and entropies.

An engine generates, scores and loads weights. It never sees text: prompts and responses are token ids. Log-probs and
entropies are those of the sampling distribution, at its temperature. An asynchronous engine also has `submit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol, runtime_checkable

from pydantic import FailFast, Field

from groupwise.data.samples import PromptAndResponse
from groupwise.system.errors import EngineFault

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Ask for one response.

    Worked example: `Request(prompt_ids=(1, 7, 9), seed=42, max_tokens=8, stop_ids=(2,))` samples until token 2 or eight
    tokens. It samples the same tokens in any batch. The bounds are checked when a server receives a request.
    """

    prompt_ids: Annotated[tuple[int, ...], Field(min_length=1), FailFast()]
    """The prompt, exactly as the model reads it."""
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    """Seed of this response's random numbers; no other request shares them."""
    max_tokens: Annotated[int, Field(ge=1)]
    """Maximum number of sampled tokens."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Divides the logits; 0 = take the most likely token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the fewest most likely tokens whose probabilities reach this sum; 1 = from all. Evaluations only."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sample from this many most likely tokens; 0 = from all. It comes before `top_p`. Evaluations only."""
    stop_ids: Annotated[tuple[int, ...], FailFast()] = ()
    """Sampling ends with any of these; the token is part of the response."""
    session: str | None = None
    """Requests of one rollout share a name; keys and values of its earlier prompts can then be reused."""

    @property
    def is_truncated(self) -> bool:
        """Whether the least likely tokens are left out."""
        return self.top_p < 1 or self.top_k > 0


class VersionSpan(NamedTuple):
    """Consecutive tokens of a response that one version of the weights sampled."""

    version: int
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One sampled response.

    Worked example: five tokens; version 2 of the weights sampled the first three, then version 3 arrived. `versions`
    is `(VersionSpan(2, 3), VersionSpan(3, 2))`.
    """

    response_ids: tuple[int, ...]
    """The sampled tokens."""
    logp: tuple[float, ...]
    """Log-probability of each token under the distribution it was sampled from."""
    entropy: tuple[float, ...]
    """Entropy of that distribution, in nats; empty if the engine does not give it."""
    stopped: bool
    """Whether a stop token ended it; False = cut off at `max_tokens`."""
    versions: tuple[VersionSpan, ...]
    """The version of the weights per token span, in order; empty if the engine does not give it."""


def check_generations(answers: Sequence[Generation]) -> Sequence[Generation]:
    """Raise EngineFault if the lengths of a response's tokens, log-probs, entropies and versions differ."""
    for answer in answers:
        num, spans = len(answer.response_ids), answer.versions
        if len(answer.logp) != num or (answer.entropy and len(answer.entropy) != num):
            raise EngineFault(
                f"a response of {num} tokens has {len(answer.logp)} log-probs and {len(answer.entropy)} entropies; the "
                "engine must give one log-prob per token, and one entropy per token or none"
            )
        if spans and (spans[0][1] if len(spans) == 1 else sum([tokens for _, tokens in spans])) != num:
            raise EngineFault(
                f"the versions of a response of {num} tokens are {[tuple(span) for span in spans]}; the engine must "
                f"give (version, tokens) spans with {num} tokens in total"
            )
    return answers


class Engine(Protocol):
    """Generates, scores and loads weights."""

    @property
    def gives(self) -> frozenset[str]:
        """Its further outputs, of `parts.slots.CAPABILITIES`. Without `entropy` or `versions` it leaves these empty;
        without `scores`, `score` is not called."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""

    @property
    def context(self) -> int | None:
        """Maximum number of tokens of a prompt and its response together; None = no limit."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, for (prompt, response) pairs."""

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Replace weights by name, in place."""


@runtime_checkable
class SubmittingEngine(Protocol):
    """An asynchronous engine: it answers requests in any order.

    A response depends only on its request and seed, so the order of the answers changes no token.
    """

    def submit(self, requests: Sequence[Request]) -> Sequence[Future[Generation]]:
        """Return at once with one future per request, in their order.

        Further requests may come before earlier ones are answered. A cancelled future need not be answered.
        """


@runtime_checkable
class ClosingEngine(Protocol):
    """An engine that holds resources: threads, connections, servers that it started."""

    def close(self) -> None:
        """Release all resources. The run calls it when it is closed; the engine is not used afterwards."""


class EngineReplica(Protocol):
    """One of several copies of the weights that answer for an engine."""

    @property
    def name(self) -> str:
        """Its name in messages; constant while the engine is open."""

    @property
    def version(self) -> int:
        """Version of the weights of its last weight sync."""

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probs that this replica would sample with, including its cached prompts."""


@runtime_checkable
class ReplicatedEngine(Protocol):
    """An engine with several copies of the weights. Each replica is checked after a weight sync.

    Worked example: `load` syncs two replicas. One agrees with the learner and is admitted. The other still has old keys
    and values and is dismissed. It answers no request until it passes the check after a later weight sync.
    """

    @property
    def replicas(self) -> Sequence[EngineReplica]:
        """The replicas that took part in the last weight sync."""

    def admit(self, name: str) -> None:
        """Let a replica answer requests, because it agrees with the learner. It may be admitted already."""

    def dismiss(self, name: str, reason: str) -> None:
        """Send a replica no requests until it is admitted after another weight sync."""


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine with metrics of its own."""

    def take_metrics(self) -> dict[str, float]:
        """The metrics since the last call, by name (`replicas/...`)."""
