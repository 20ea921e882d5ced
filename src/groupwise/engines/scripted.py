"""An engine that answers from a script: for tests, and to run an expert through the same path as a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.parts.slots import CAPABILITIES

if TYPE_CHECKING:
    import torch


class ScriptedEngine:
    """Answers each request with the tokens of a function, cut at the first stop token or at `max_tokens`.

    A script is deterministic: every log-prob and entropy is 0.
    """

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)

    def __init__(
        self, answer: Callable[[Request], Sequence[int]], *, version: int = 0, context: int | None = None
    ) -> None:
        self._answer = answer
        self.version, self.context = version, context

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        answers: list[Generation] = []
        for request in requests:
            ids: list[int] = []
            for token in list(self._answer(request))[: request.max_tokens]:
                ids.append(token)
                if token in request.stop_ids:
                    break
            zeros, stopped = (0.0,) * len(ids), bool(ids) and ids[-1] in request.stop_ids
            spans = (VersionSpan(self.version, len(ids)),)
            answers.append(
                Generation(response_ids=tuple(ids), logp=zeros, entropy=zeros, stopped=stopped, versions=spans)
            )
        return answers

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return [(0.0,) * len(response) for _, response in sequences]

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        self.version = version
