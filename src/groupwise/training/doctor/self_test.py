"""A self-test of the trainer on this machine: a tiny model samples, scores, learns and hands its weights over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from groupwise.batching import count_totals
from groupwise.core.errors import TrainingError
from groupwise.core.sample import Sample
from groupwise.engines.engine import Request
from groupwise.engines.transformers.engine import TransformersEngine
from groupwise.losses import PolicyLoss
from groupwise.models.tiny import TinyModel
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.weights import hash_weights
from groupwise.training.weight_transfer.canary import Canary
from groupwise.training.weight_transfer.in_memory import InMemory

WORDS = ("take", "the", "red", "mug", "from", "a", "shelf")
TOLERANCE = 1e-5
"""Largest difference in log-probability between sampling a token and scoring it."""
TEMPERATURE = 0.7


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check of the self-test."""

    name: str
    """What was checked."""
    finding: str
    """What came out."""
    ok: bool
    """Whether it is as it should be."""


def self_test() -> Iterator[CheckResult]:
    """Run the checks one after another; one that raises is reported as broken, and ends the test."""
    bench = _Bench()
    for name, check in (
        ("the scorer agrees with the sampler", bench.sample_and_score),
        ("a learner step changes the weights", bench.learn),
        ("the engine takes the weights over", bench.hand_over),
    ):
        result = _run_check(name, check)
        yield result
        if not result.ok:
            return


def _run_check(name: str, check: Callable[[], str]) -> CheckResult:
    try:
        return CheckResult(name=name, finding=check(), ok=True)
    except (TrainingError, RuntimeError) as error:
        return CheckResult(name=name, finding=str(error), ok=False)


class _Bench:
    """A tiny model, its engine and its learner."""

    def __init__(self) -> None:
        tiny = TinyModel(hidden=32, layers=2)
        model, tokenizer = tiny.open(words=WORDS, seed=0)
        self._prompt = tuple(tokenizer(" ".join(WORDS), add_special_tokens=False).input_ids)
        self._engine = TransformersEngine(tiny.build(tokenizer, seed=0))
        self._learner = LearnerConfig(learning_rate=1e-2).open(model, PolicyLoss(), temperature=TEMPERATURE)
        self._samples: list[Sample] = []

    def sample_and_score(self) -> str:
        requests = [
            Request(prompt_ids=self._prompt[: 2 + i % 5], seed=i, max_tokens=1 + i % 6, temperature=TEMPERATURE)
            for i in range(16)
        ]
        sampled = self._engine.generate(requests)
        pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(requests, sampled, strict=True)]
        scored = self._engine.score(pairs, temperature=TEMPERATURE)
        gap = max(
            abs(a - b)
            for answer, logps in zip(sampled, scored, strict=True)
            for a, b in zip(answer.logp, logps, strict=True)
        )
        if not gap <= TOLERANCE:
            raise TrainingError(f"log-probs differ by {gap:.2g} nats, more than {TOLERANCE:g}")
        self._samples = [
            Sample(
                prompt_ids=prompt,
                response_ids=response,
                advantage=1.0 if number % 2 else -1.0,
                logp_behaviour=answer.logp,
                trajectory=number,
                step=0,
                group=0,
            )
            for number, ((prompt, response), answer) in enumerate(zip(pairs, sampled, strict=True))
        ]
        return f"largest difference {gap:.1g} nats over {sum(len(response) for _, response in pairs)} tokens"

    def learn(self) -> str:
        before = hash_weights(self._learner.weights())
        learned = self._learner.learn(self._samples, count_totals(self._samples, max_tokens=6))
        if hash_weights(self._learner.weights()) == before:
            raise TrainingError("the weights are as they were")
        return f"gradient of length {learned.metrics['learner/grad_norm']:.2g}"

    def hand_over(self) -> str:
        canary = Canary(self._prompt, self._prompt[:3])
        InMemory().hand_over(self._learner.weights(), self._engine, version=1)
        return f"largest difference {canary.check(self._engine, self._learner, version=1):.1g} nats"
