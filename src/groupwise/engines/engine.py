"""The engine protocol: token ids in, token ids out, with what the sampler knew when it sampled.

An engine generates, scores and loads. It never sees text: prompts are ids, responses are ids, and the log-probs and
entropies are those of the distribution that was sampled from, at its temperature. One that can answer requests as they
come, in any order, also has `submit`.
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
    tokens, and samples the same tokens whatever else is asked for beside it. The bounds are checked where a request
    comes over the wire.
    """

    prompt_ids: Annotated[tuple[int, ...], Field(min_length=1), FailFast()]
    """The prompt, exactly as the model reads it."""
    seed: Annotated[int, Field(ge=0, lt=2**64)]
    """Where this response's random numbers come from; no other request shares them."""
    max_tokens: Annotated[int, Field(ge=1)]
    """How many tokens may be sampled at most."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Divides the logits; 0 = take the likeliest token."""
    stop_ids: Annotated[tuple[int, ...], FailFast()] = ()
    """Sampling ends with any of these; the token is part of the response."""
    session: str | None = None
    """Requests of one attempt share a name, so that what was computed for an earlier prompt can be used again."""


class VersionSpan(NamedTuple):
    """Consecutive tokens of a response that one version of the weights sampled."""

    version: int
    """The version."""
    tokens: int
    """How many tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One sampled response.

    Worked example: five tokens, of which weights of version 2 sampled the first three before version 3 arrived:
    `versions` is `(VersionSpan(2, 3), VersionSpan(3, 2))`.
    """

    response_ids: tuple[int, ...]
    """The sampled tokens."""
    logp: tuple[float, ...]
    """Log-probability of each token under the distribution it was sampled from."""
    entropy: tuple[float, ...]
    """Entropy of that distribution, in nats; empty from an engine that does not give it."""
    stopped: bool
    """Whether a stop token ended it; False = cut off at `max_tokens`."""
    versions: tuple[VersionSpan, ...]
    """Which version of the weights sampled which tokens, in order; empty from an engine that does not say."""


def check_generations(answers: Sequence[Generation]) -> Sequence[Generation]:
    """Refuse responses whose tokens, log-probs, entropies and versions do not go together."""
    for answer in answers:
        num, spans = len(answer.response_ids), answer.versions
        if len(answer.logp) != num or (answer.entropy and len(answer.entropy) != num):
            raise EngineFault(
                f"a response of {num} tokens has {len(answer.logp)} log-probs and {len(answer.entropy)} entropies; the "
                "engine must give a log-prob for each token, and an entropy for each or none"
            )
        if spans and (spans[0][1] if len(spans) == 1 else sum([tokens for _, tokens in spans])) != num:
            raise EngineFault(
                f"the versions of a response of {num} tokens are {[tuple(span) for span in spans]}; the engine must "
                "give (version, tokens) spans whose tokens add up to the response's"
            )
    return answers


class Engine(Protocol):
    """Generates, scores and loads weights."""

    @property
    def gives(self) -> frozenset[str]:
        """What it gives beside tokens and their log-probs, of `parts.slots.CAPABILITIES`: without `entropy` and
        `versions` it leaves these empty, without `scores` it need not be able to `score`."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""

    @property
    def context(self) -> int | None:
        """How many tokens a prompt and its response may have together; None = no limit."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, for (prompt, response) pairs."""

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Take over weights by name, in place."""


@runtime_checkable
class SubmittingEngine(Protocol):
    """An engine that answers requests as they come, in any order: the episode loop then waits for nobody.

    A response follows from its request alone, its seed included, so that the order of the answers changes no token.
    """

    def submit(self, requests: Sequence[Request]) -> Sequence[Future[Generation]]:
        """Take requests and return at once, with a future for each, in their order; each is answered when it is.

        Further requests may come before earlier ones are answered. A future that is cancelled need not be answered.
        """


@runtime_checkable
class ClosingEngine(Protocol):
    """An engine that holds what must be given back: threads, connections, servers that it started."""

    def close(self) -> None:
        """Give everything back; the engine is not used after it. The run calls it when it is closed."""


class EngineReplica(Protocol):
    """One of several copies of the weights that answer for an engine."""

    @property
    def name(self) -> str:
        """What it is called in messages; the same for as long as the engine is open."""

    @property
    def version(self) -> int:
        """Version of the weights that it was handed last."""

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probs as this one would sample with, through whatever it has kept of earlier prompts."""


@runtime_checkable
class ReplicatedEngine(Protocol):
    """An engine with several copies of the weights: each is checked by itself after a hand-over.

    Worked example: after `load`, two replicas are there. One agrees with the learner and is admitted; the other still
    has old keys and values, is dismissed, and answers nothing until it took a later hand-over and agreed.
    """

    @property
    def replicas(self) -> Sequence[EngineReplica]:
        """Those that took the last hand-over."""

    def admit(self, name: str) -> None:
        """Let a replica answer requests: it agrees with the learner. One that does already goes on."""

    def dismiss(self, name: str, reason: str) -> None:
        """Let a replica answer nothing until it took another hand-over and was admitted."""


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine that counts what it does."""

    def take_metrics(self) -> dict[str, float]:
        """What it counted since it was last asked, by names of the table of metrics (`replicas/...`)."""
