"""An engine under check: what it is asked, and what it answered, so that rules can share the asking."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

from groupwise.core.rules import BrokenRuleError, NotTestedError
from groupwise.engines.conformance.rounding import EXACT_GAP, find_difference, find_other_tokens
from groupwise.engines.engine import Engine, Generation, Request

if TYPE_CHECKING:
    import torch

NUM_REQUESTS = 12
MAX_TOKENS = 6
NUM_DRAWS = 400
"""Single tokens that are sampled from one distribution."""
DEVIATIONS = 5.0
"""By how many of its standard deviations a count or a mean may be off."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The engine, what it may be asked with, and what it is held to."""

    engine: Engine
    token_ids: tuple[int, ...]
    """Ids that prompts are made of."""
    weights: Mapping[str, torch.Tensor] | None
    """Weights to hand over."""
    max_gap: float
    """Nats by which two ways of computing a log-prob may differ; where that is much, tokens may differ by rounding."""
    seconds: float
    """How long an answer to `submit` may take."""
    seed: int
    """For prompts and requests."""

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        """The engine's answers; something else than an answer for each request breaks a rule."""
        answers = self.engine.generate(requests)
        if len(answers) != len(requests):
            raise BrokenRuleError(f"{len(requests)} requests were answered with {len(answers)} responses")
        for answer in answers:
            if not isinstance(answer, Generation):
                raise BrokenRuleError(f"`generate` gave a {type(answer).__name__}; give a Generation for each request")
        return list(answers)

    def make_prompt(self, name: object, length: int) -> tuple[int, ...]:
        """A random prompt; the same name gives the same one."""
        draw = Random(f"{self.seed} {name}")
        return tuple(draw.choice(self.token_ids) for _ in range(length))

    @cached_property
    def requests(self) -> list[Request]:
        """Prompts of several lengths, some of them equal; a seed for each."""
        prompts = [self.make_prompt(number, 2 + 3 * number) for number in range(5)]
        return [
            Request(prompt_ids=prompts[number % len(prompts)], seed=1000 * self.seed + number, max_tokens=MAX_TOKENS)
            for number in range(NUM_REQUESTS)
        ]

    @cached_property
    def answers(self) -> list[Generation]:
        """What came of the requests, asked together."""
        return self.ask(self.requests)

    @cached_property
    def unrepeatable(self) -> str:
        """Where the same requests, asked again, gave other tokens; empty = nowhere."""
        return find_other_tokens(self.requests, self.ask(self.requests), self.answers)

    @cached_property
    def seedless(self) -> str:
        """Whether other seeds gave the same response where chance would not have; empty = no."""
        request = self.requests[0]
        answers = self.ask([replace(request, seed=seed) for seed in range(NUM_REQUESTS)])
        responses = {answer.response_ids for answer in answers}
        if len(responses) > 1:
            return ""
        if math.exp(sum(answers[0].logp)) > 0.5:
            raise NotTestedError("the model is all but certain of what it says, whatever the seed")
        return f"{NUM_REQUESTS} seeds gave the one response {answers[0].response_ids}"

    @cached_property
    def draws(self) -> list[Generation]:
        """Single tokens after one prompt, a seed for each."""
        request = replace(self.requests[0], max_tokens=1)
        return self.ask([replace(request, seed=seed) for seed in range(NUM_DRAWS)])

    @cached_property
    def unfair(self) -> str:
        """Where tokens came much more or less often than their log-probs say; empty = nowhere."""
        counts = Counter(answer.response_ids for answer in self.draws)
        for answer in self.draws:
            p = min(math.exp(answer.logp[0]), 1.0)
            expected, count = NUM_DRAWS * p, counts[answer.response_ids]
            if abs(count - expected) > 1 + DEVIATIONS * math.sqrt(expected * (1 - p)):
                return (
                    f"token {answer.response_ids[0]} was sampled {count} times of {NUM_DRAWS}, and its log-prob of "
                    f"{answer.logp[0]:.3g} makes that {expected:.1f}"
                )
        return ""

    def find_difference(
        self, requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation]
    ) -> str:
        """Where two ways of answering differ by more than they may; empty = nowhere."""
        return find_difference(requests, some, others, max_gap=self.max_gap)

    @property
    def is_narrow(self) -> bool:
        """Whether log-probs are so coarse that a token may tip over with how it is computed."""
        return self.max_gap > EXACT_GAP

    def require_repeatable(self) -> None:
        """Leave a rule that compares tokens, where they cannot be compared."""
        if self.unrepeatable:
            raise NotTestedError("the same request does not give the same tokens, so that none can be compared")

    def require_fair(self) -> None:
        """Leave a rule about the distribution, where tokens do not come from what is reported."""
        if self.seedless or self.unfair:
            raise NotTestedError("tokens are not drawn from the distribution that is reported")

    @cached_property
    def hand_over(self) -> tuple[list[Request], list[Generation], int]:
        """Hand the weights over, once: requests that go on with sessions from before, the answers from before, and the
        version that was handed over."""
        if self.weights is None:
            raise NotTestedError("no weights were given to hand over; give check_engine(weights=...)")
        requests = [replace(request, session=f"before {i}") for i, request in enumerate(self.requests)]
        answers = self.ask(requests)
        version = self.engine.version + 3
        self.engine.load(self.weights, version=version)
        following = [follow_up(request, answer) for request, answer in zip(requests, answers, strict=True)]
        return following, answers, version


def follow_up(request: Request, answer: Generation) -> Request:
    """What an attempt would ask next: its prompt, its response, and something new."""
    prompt = (*request.prompt_ids, *answer.response_ids, *request.prompt_ids[:2])
    return replace(request, prompt_ids=prompt, seed=request.seed + 1)
