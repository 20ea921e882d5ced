"""A sound engine small enough to read, and for each rule one that breaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.parts.slots import CAPABILITIES
from tests.unit.engines.toy_model import keep_likeliest

VOCABULARY = 12


class Chain:
    """Samples the next token from a table, by the last token of what stands there and the first."""

    gives = frozenset(CAPABILITIES)
    context: int | None = 64

    def __init__(self, table: torch.Tensor | None = None) -> None:
        self._table = (first_table() if table is None else table).double().numpy()
        self._version = 0
        self._begun: dict[str, tuple[int, ...]] = {}

    @property
    def version(self) -> int:
        return self._version

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        self._table, self._version = weights["table"].double().numpy(), version

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self.answer(request) for request in requests]

    def score(self, sequences: Sequence[tuple[Any, Any]], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return [
            tuple(
                float(self.log_probs((*prompt, *response[:place]), temperature)[token])
                for place, token in enumerate(response)
            )
            for prompt, response in sequences
        ]

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        futures: list[Future[Generation]] = [Future() for _ in requests]
        for request, future in list(zip(requests, futures, strict=True))[::-1]:
            future.set_result(self.answer(request))
        return futures

    def answer(self, request: Request) -> Generation:
        ids: list[int] = []
        logps: list[float] = []
        entropies: list[float] = []
        while len(ids) < request.max_tokens and not set(ids) & set(request.stop_ids):
            logp = self.log_probs((*request.prompt_ids, *ids), request.temperature or 1.0)
            logp = self.truncate(logp, request)
            token = self.choose(logp, request, len(ids))
            ids.append(token)
            logps.append(float(logp[token]))
            entropies.append(float(-(np.exp(logp) * np.where(np.isinf(logp), 0.0, logp)).sum()))
        return Generation(
            response_ids=tuple(ids),
            logp=tuple(logps),
            entropy=tuple(entropies),
            stopped=ids[-1] in request.stop_ids,
            versions=(VersionSpan(self._version, len(ids)),),
        )

    def truncate(self, logp: np.ndarray[Any, Any], request: Request) -> np.ndarray[Any, Any]:
        return keep_likeliest(logp, top_p=request.top_p, top_k=request.top_k)

    def choose(self, logp: np.ndarray[Any, Any], request: Request, place: int) -> int:
        if request.temperature == 0:
            return int(logp.argmax())
        draw = np.random.default_rng([request.seed, place]).random()
        return int(min(np.searchsorted(np.exp(logp).cumsum(), draw), VOCABULARY - 1))

    def log_probs(self, tokens: Sequence[int], temperature: float) -> np.ndarray[Any, Any]:
        logits = (self._table[tokens[-1]] + 0.5 * self._table[tokens[0]]) / temperature
        return np.asarray(logits - np.log(np.exp(logits).sum()))


def first_table() -> torch.Tensor:
    return torch.tensor(np.random.default_rng(0).normal(size=(VOCABULARY, VOCABULARY)))


class Coarse(Chain):
    """Computes in so few digits that the number of rows changes some, and so a token whose draw is at a border."""

    rows = 1

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self.rows = len(requests)
        return super().generate(requests)

    def log_probs(self, tokens: Sequence[int], temperature: float) -> np.ndarray[Any, Any]:
        logp = super().log_probs(tokens, temperature) + 0.05 * np.sin(self.rows * (1 + np.arange(VOCABULARY)))
        return np.asarray(logp - np.log(np.exp(logp).sum()))


class CoarseAndSeedsByPlace(Coarse):
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return super().generate([replace(r, seed=r.seed + 1) if not i else r for i, r in enumerate(requests)])


class DropsTheLast(Chain):
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return super().generate(requests[: max(len(requests) - 1, 1)])


class GivesProbabilities(Chain):
    """For a response of six tokens, as only the first rules ask for."""

    def answer(self, request: Request) -> Generation:
        answer = super().answer(request)
        logp = tuple(float(np.exp(each)) for each in answer.logp)
        return replace(answer, logp=logp) if request.max_tokens == 6 and request.temperature == 1.0 else answer

    def score(self, sequences: Sequence[tuple[Any, Any]], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        scores = super().score(sequences, temperature=temperature)
        return [tuple(np.exp(each)) if temperature == 1.0 and len(each) == 6 else each for each in scores]


class CountsCalls(Chain):
    calls = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self.calls += 1
        return super().generate([replace(request, seed=request.seed + self.calls) for request in requests])


class SeedsByPlace(Chain):
    """The first of a batch is asked for with another seed."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return super().generate([replace(r, seed=r.seed + 1) if not i else r for i, r in enumerate(requests)])

    submit = None  # type: ignore[assignment]


class IgnoresSeeds(Chain):
    def choose(self, logp: np.ndarray[Any, Any], request: Request, place: int) -> int:
        return super().choose(logp, replace(request, seed=len(request.prompt_ids)), place)


class SamplesSharper(Chain):
    def choose(self, logp: np.ndarray[Any, Any], request: Request, place: int) -> int:
        sharper = 2 * logp - np.log(np.exp(2 * logp).sum())
        return super().choose(sharper, request, place)


class ScoresAtOneTemperature(Chain):
    def score(self, sequences: Sequence[tuple[Any, Any]], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return super().score(sequences)


class NeverCold(Chain):
    def choose(self, logp: np.ndarray[Any, Any], request: Request, place: int) -> int:
        return super().choose(logp, replace(request, temperature=1.0), place)


class TakesTheUnlikeliest(Chain):
    def choose(self, logp: np.ndarray[Any, Any], request: Request, place: int) -> int:
        return int(logp.argmin()) if request.temperature == 0 else super().choose(logp, request, place)


class CutsNothing(Chain):
    def truncate(self, logp: np.ndarray[Any, Any], request: Request) -> np.ndarray[Any, Any]:
        return logp


class KeepsOneMore(Chain):
    def truncate(self, logp: np.ndarray[Any, Any], request: Request) -> np.ndarray[Any, Any]:
        return super().truncate(logp, replace(request, top_k=request.top_k + (request.top_k > 1)))


class CutsWithoutSayingSo(Chain):
    """Its log-probs are those of the whole distribution, but for the only token that is left."""

    def answer(self, request: Request) -> Generation:
        answer = super().answer(request)
        if request.top_k < 2:
            return answer
        [logp] = self.score([(request.prompt_ids, answer.response_ids)])
        return replace(answer, logp=logp)


class LeavesStopsOut(Chain):
    def answer(self, request: Request) -> Generation:
        answer = super().answer(request)
        num = len(answer.response_ids) - answer.stopped
        columns = {"response_ids": answer.response_ids, "logp": answer.logp, "entropy": answer.entropy}
        return replace(
            answer, versions=(VersionSpan(self.version, num),), **{name: each[:num] for name, each in columns.items()}
        )


class SaysItStopped(Chain):
    def answer(self, request: Request) -> Generation:
        return replace(super().answer(request), stopped=True)


class GoesOn(Chain):
    """A token more than was asked for, where that is three."""

    def answer(self, request: Request) -> Generation:
        return super().answer(replace(request, max_tokens=4 if request.max_tokens == 3 else request.max_tokens))


class EntropyInBits(Chain):
    def answer(self, request: Request) -> Generation:
        answer = super().answer(request)
        return replace(answer, entropy=tuple(each / np.log(2) for each in answer.entropy))


class KeepsEntropyToItself(Chain):
    def answer(self, request: Request) -> Generation:
        return replace(super().answer(request), entropy=())


class UnannouncedEntropy(Chain):
    gives = frozenset(CAPABILITIES) - {"entropy"}


class AheadOfItself(Chain):
    def answer(self, request: Request) -> Generation:
        answer = super().answer(request)
        span = VersionSpan(self._version + (self._version == 0), len(answer.response_ids))
        return replace(answer, versions=(span,))


class UnannouncedVersions(Chain):
    gives = frozenset(CAPABILITIES) - {"versions"}


class FailsBeforeItsEnd(Chain):
    def answer(self, request: Request) -> Generation:
        if len(request.prompt_ids) > 50:
            raise IndexError("position 51")
        return super().answer(request)


class RemembersPrompts(Chain):
    """Goes on with what a session was first asked with."""

    def answer(self, request: Request) -> Generation:
        if request.session is None or request.session.startswith("before"):
            return super().answer(request)
        begun = self._begun.setdefault(request.session, request.prompt_ids)
        return super().answer(replace(request, prompt_ids=begun))


class SwapsAnswers(Chain):
    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        return super().submit(requests)[::-1]


class LosesOne(Chain):
    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        return [*super().submit(requests[:-1]), Future()]


class KeepsItsWeights(Chain):
    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        self._version = version


class KeepsItsVersion(Chain):
    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        super().load(weights, version=self._version)


class KeepsOldKeys(Chain):
    """Sessions that were begun with old weights go on with them."""

    def __init__(self) -> None:
        super().__init__()
        self._old: Chain | None = None

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        self._old = Chain()
        super().load(weights, version=version)

    def answer(self, request: Request) -> Generation:
        if self._old is None or request.session is None:
            return super().answer(request)
        return replace(self._old.answer(request), versions=(VersionSpan(self._version, request.max_tokens),))


BREAKS: dict[type[Chain], str] = {
    DropsTheLast: "answers_every_request",
    GivesProbabilities: "log_probs_are_log_probs",
    CountsCalls: "same_request_gives_same_tokens",
    SeedsByPlace: "neighbours_change_nothing",
    IgnoresSeeds: "other_seeds_give_other_tokens",
    SamplesSharper: "tokens_come_as_often_as_log_probs_say",
    ScoresAtOneTemperature: "log_probs_are_those_of_score",
    NeverCold: "temperature_zero_takes_the_likeliest",
    TakesTheUnlikeliest: "temperature_zero_takes_the_likeliest",
    CutsNothing: "top_k_and_top_p_leave_the_likeliest",
    KeepsOneMore: "top_k_and_top_p_leave_the_likeliest",
    CutsWithoutSayingSo: "top_k_and_top_p_leave_the_likeliest",
    LeavesStopsOut: "stop_tokens_end_a_response",
    SaysItStopped: "max_tokens_cut_a_response",
    GoesOn: "max_tokens_cut_a_response",
    EntropyInBits: "entropies_are_those_of_the_distribution",
    KeepsEntropyToItself: "entropies_are_those_of_the_distribution",
    UnannouncedEntropy: "entropies_are_those_of_the_distribution",
    AheadOfItself: "versions_name_the_weights_in_use",
    UnannouncedVersions: "versions_name_the_weights_in_use",
    FailsBeforeItsEnd: "context_is_what_it_says",
    RemembersPrompts: "sessions_change_nothing",
    SwapsAnswers: "submit_answers_as_generate_does",
    LosesOne: "submit_answers_as_generate_does",
    KeepsItsWeights: "weights_are_taken_over",
    KeepsItsVersion: "weights_are_taken_over",
    KeepsOldKeys: "old_weights_leave_nothing_behind",
}
"""The rule that each of them breaks, and no other."""

IN_FEW_DIGITS = (
    SeedsByPlace,
    LeavesStopsOut,
    SaysItStopped,
    GoesOn,
    RemembersPrompts,
    SwapsAnswers,
    KeepsOldKeys,
)
"""Those whose rule compares tokens; it must find them also where tokens are compared but for rounding."""
