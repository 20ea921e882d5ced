"""An engine that answers from a script: for tests, and for playing an expert through the same path as a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.parts.slots import CAPABILITIES

if TYPE_CHECKING:
    import torch


class ScriptedEngine:
    """Answers each request with what a function says, cut at the first stop token or at `max_tokens`.

    A script is certain of itself: every log-prob and entropy is 0.
    """

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)
    """Everything that an engine can give; a script is certain of every token."""

    def __init__(
        self, answer: Callable[[Request], Sequence[int]], *, version: int = 0, context: int | None = None
    ) -> None:
        self._answer = answer
        self._version = version
        self._context = context

    @property
    def version(self) -> int:
        """Version of the weights, as told by `load`."""
        return self._version

    @property
    def context(self) -> int | None:
        """A script reads prompts of any length, unless it stands in for a model that does not."""
        return self._context

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""
        return [self._generate(request) for request in requests]

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """A script gives every token log-probability 0."""
        return [(0.0,) * len(response) for _, response in sequences]

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """A script has no weights; only the version changes."""
        self._version = version

    def _generate(self, request: Request) -> Generation:
        ids: list[int] = []
        for token in list(self._answer(request))[: request.max_tokens]:
            ids.append(token)
            if token in request.stop_ids:
                break
        nothing = (0.0,) * len(ids)
        stopped = bool(ids) and ids[-1] in request.stop_ids
        spans = (VersionSpan(self._version, len(ids)),)
        return Generation(response_ids=tuple(ids), logp=nothing, entropy=nothing, stopped=stopped, versions=spans)
