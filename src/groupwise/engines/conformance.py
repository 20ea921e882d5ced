"""The conformance suite for engines: run it on your own before you train with it.

for result in check_engine(engine, token_ids=range(100), weights=other_weights):
    print(result.status, result.rule, result.found)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from groupwise.engines.engine import Engine, Generation, Request, SubmittingEngine, check_generations
from groupwise.parts.slots import ENTROPY, SCORES, VERSIONS
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import BrokenRuleError, NotTestedError, RuleResult, describe_result, try_rule

if TYPE_CHECKING:
    import torch


# The rules of the conformance suite for engines. Each one's docstring says why it matters, to whoever breaks it.

MAX_CONTEXT = 4096
"""Longest context that is tried to its end."""
ROUNDING = 1e-6


def answers_every_request(subject: Subject) -> str:
    """The loop takes the answers by their place: a response for each request, of at least one token, and none for
    none.
    """
    if subject.ask([]):
        raise BrokenRuleError("no requests were answered with responses")
    for request, answer in zip(subject.requests, subject.answers, strict=True):
        if not answer.response_ids or not all(type(token) is int for token in answer.response_ids):
            raise BrokenRuleError(
                f"seed {request.seed} gave {answer.response_ids!r}; give a tuple of at least one token id"
            )
    return f"{len(subject.answers)} responses"


def log_probs_are_log_probs(subject: Subject) -> str:
    """Losses weigh a token by its log-prob: a probability, or a NaN, in its place trains something else."""
    logps = [logp for answer in subject.answers for logp in answer.logp]
    for logp in logps:
        if not (math.isfinite(logp) and logp <= ROUNDING):
            raise BrokenRuleError(f"a sampled token has the log-prob {logp}; give a finite number, 0 or less")
    return f"{len(logps)} log-probs, the smallest {min(logps):.3g}"


def same_request_gives_same_tokens(subject: Subject) -> str:
    """Seeds form one tree, so that a run can be repeated and resumed. All randomness comes from the request's seed:
    not from a generator of the process, nor from how often the engine was asked.
    """
    if subject.unrepeatable:
        raise BrokenRuleError(f"asked twice, {subject.unrepeatable}")
    return f"{len(subject.requests)} requests asked twice"


def neighbours_change_nothing(subject: Subject) -> str:
    """What is asked beside a request depends on who else plays, and on who is done; tokens must not.

    Where log-probs are as coarse as in bfloat16 (`max_gap` above 0.01), a draw at the border of two tokens may fall on
    either side with other rows beside it: then log-probs of equal tokens agree within `max_gap`, and tokens part less
    than half as often as with other seeds.
    """
    subject.require_repeatable()
    requests = subject.requests
    backwards = subject.ask(requests[::-1])[::-1]
    alone = [subject.ask([request])[0] for request in requests]
    for how, answers in (("in another order", backwards), ("alone", alone)):
        difference = subject.find_difference(requests, answers, subject.answers)
        if difference:
            raise BrokenRuleError(f"asked {how}, {difference}")
    return f"{len(requests)} requests, in two orders and alone{', but for rounding' if subject.is_narrow else ''}"


def other_seeds_give_other_tokens(subject: Subject) -> str:
    """Attempts of a group differ by their seeds alone; equal attempts teach nothing."""
    if subject.seedless:
        raise BrokenRuleError(subject.seedless)
    return "other seeds, other responses"


def tokens_come_as_often_as_log_probs_say(subject: Subject) -> str:
    """A log-prob is that of the distribution which the token was drawn from, after temperature and whatever cuts off
    its tail; policy gradients are wrong for any other.
    """
    if subject.seedless:
        raise NotTestedError("seeds change nothing, so that nothing can be counted")
    if subject.unfair:
        raise BrokenRuleError(subject.unfair)
    return f"{len(subject.draws)} tokens drawn, {len({draw.response_ids for draw in subject.draws})} different ones"


def log_probs_are_those_of_score(subject: Subject) -> str:
    """The check after each hand-over and the distance to past attempts compare scores with what was reported at
    sampling, at the same temperature.
    """
    if SCORES not in subject.engine.gives:
        raise NotTestedError("the engine does not give scores")
    for temperature in (1.0, 0.7):
        requests = [replace(request, temperature=temperature) for request in subject.requests]
        answers = subject.ask(requests)
        pairs = [(r.prompt_ids, answer.response_ids) for r, answer in zip(requests, answers, strict=True)]
        scores = subject.engine.score(pairs, temperature=temperature)
        gap = find_largest_gap([answer.logp for answer in answers], scores)
        if not gap <= subject.max_gap:
            raise BrokenRuleError(
                f"at temperature {temperature:g} sampled and scored log-probs differ by up to {gap:.3g} nats (allowed "
                f"{subject.max_gap:g})"
            )
    return f"{len(subject.requests)} responses at two temperatures"


def temperature_zero_takes_the_likeliest(subject: Subject) -> str:
    """Evaluations at temperature 0 are the policy's best guess, the same each time."""
    cold = [replace(subject.requests[0], temperature=0.0, seed=seed) for seed in range(4)]
    responses = {answer.response_ids for answer in subject.ask(cold)}
    if len(responses) > 1:
        raise BrokenRuleError(f"seeds gave different responses at temperature 0: {sorted(responses)[:2]}")
    if SCORES not in subject.engine.gives:
        return "one response whatever the seed; whether it is the likeliest cannot be told without scores"
    [(first, *_)] = responses
    others = sorted({answer.response_ids[0] for answer in subject.draws})
    scores = subject.engine.score([(cold[0].prompt_ids, (token,)) for token in (first, *others)])
    best = max(range(len(scores)), key=lambda place: scores[place][0])
    if scores[best][0] > scores[0][0] + subject.max_gap:
        raise BrokenRuleError(
            f"temperature 0 gave token {first} of log-prob {scores[0][0]:.3g}, but {others[best - 1]} has "
            f"{scores[best][0]:.3g}"
        )
    return f"the likeliest of {len(others)} tokens"


def stop_tokens_end_a_response(subject: Subject) -> str:
    """A stop token ends the turn and belongs to the response, since the policy chose it; `stopped` tells a response
    that ended from one that was cut off.
    """
    subject.require_repeatable()
    halves = [answer.response_ids[len(answer.response_ids) // 2] for answer in subject.answers]
    requests = [replace(r, stop_ids=(stop,)) for r, stop in zip(subject.requests, halves, strict=True)]
    answers = subject.ask(requests)
    for stop, whole, answer in zip(halves, subject.answers, answers, strict=True):
        has_stop, is_whole = stop in answer.response_ids, len(answer.response_ids) == MAX_TOKENS
        may_lack_it = subject.is_narrow and is_whole  # rounding may have led elsewhere before
        if answer.stopped != has_stop or not (has_stop or may_lack_it) or stop in answer.response_ids[:-1]:
            raise BrokenRuleError(
                f"stop token {stop} made {whole.response_ids} {answer.response_ids} with stopped={answer.stopped}; it "
                "must be the last token, with True"
            )
    lengths = [whole.response_ids.index(stop) + 1 for whole, stop in zip(subject.answers, halves, strict=True)]
    _compare_beginnings(subject, answers, lengths, "with a stop token")
    return f"{len(requests)} responses stopped"


def max_tokens_cut_a_response(subject: Subject) -> str:
    """Prompts are kept short enough for `max_tokens` more; a response that was cut off is the beginning of the longer
    one, and says that nothing stopped it.
    """
    subject.require_repeatable()
    for num in (1, MAX_TOKENS // 2, MAX_TOKENS):
        answers = subject.ask([replace(request, max_tokens=num) for request in subject.requests])
        for answer in answers:
            if answer.stopped or len(answer.response_ids) != num:
                raise BrokenRuleError(
                    f"without stop tokens, max_tokens={num} gave {answer.response_ids} with stopped={answer.stopped}"
                )
        _compare_beginnings(subject, answers, [num] * len(answers), f"with max_tokens={num}")
    return f"{len(subject.requests)} responses cut off at three lengths"


def _compare_beginnings(subject: Subject, answers: list[Generation], lengths: list[int], how: str) -> None:
    """Refuse answers that are not the beginnings of what the requests gave when nothing cut them off."""
    beginnings = [
        replace(whole, response_ids=whole.response_ids[:num], logp=whole.logp[:num], entropy=(), versions=())
        for whole, num in zip(subject.answers, lengths, strict=True)
    ]
    difference = subject.find_difference(subject.requests, answers, beginnings)
    if difference:
        raise BrokenRuleError(f"{how} and without: {difference}")


def entropies_are_those_of_the_distribution(subject: Subject) -> str:
    """Failed attempts may be ranked by entropy, in nats. What an engine does not give it leaves out; a zero would be
    read as certainty.
    """
    has_entropy = [bool(answer.entropy) for answer in subject.answers]
    if ENTROPY not in subject.engine.gives:
        if any(has_entropy):
            raise BrokenRuleError("responses have entropies, which the engine does not say it gives; add it to `gives`")
        raise NotTestedError("the engine does not give entropies")
    if not all(has_entropy):
        raise BrokenRuleError("the engine says that it gives entropies, but a response has none")
    if subject.seedless or subject.unfair:
        raise NotTestedError("tokens are not drawn from the distribution that is reported")
    surprises = [-answer.logp[0] for answer in subject.draws]
    expected, slack = fmean(surprises), subject.max_gap + DEVIATIONS * pstdev(surprises) / math.sqrt(len(surprises))
    for answer in subject.draws:
        if not abs(answer.entropy[0] - expected) <= slack:
            raise BrokenRuleError(
                f"an entropy is {answer.entropy[0]:.3g}, but the mean of -log p over {len(surprises)} draws is "
                f"{expected:.3g}; give nats, of the distribution that is sampled from"
            )
    return f"{answer.entropy[0]:.3g} nats, where -log p is {expected:.3g} on average"


def versions_name_the_weights_in_use(subject: Subject) -> str:
    """How old an attempt is decides whether it may train, and how it is weighed."""
    if VERSIONS not in subject.engine.gives:
        if any(answer.versions for answer in subject.answers):
            raise BrokenRuleError("responses have versions, which the engine does not say it gives; add it to `gives`")
        raise NotTestedError("the engine does not give versions")
    _check_versions(subject.answers, subject.engine.version)
    return f"version {subject.engine.version}"


def _check_versions(answers: Iterable[Generation], version: int) -> None:
    for answer in answers:
        versions = [span.version for span in answer.versions]
        if not versions or versions[-1] != version or max(versions) > version:
            raise BrokenRuleError(
                f"a response has the versions {[tuple(span) for span in answer.versions]} while version {version} is "
                "in use"
            )


def context_is_what_it_says(subject: Subject) -> str:
    """Attempts go on until prompt and response no longer fit into `context`; up to there the engine must answer."""
    limit = subject.engine.context
    if limit is None or limit > MAX_CONTEXT:
        raise NotTestedError(
            "there is no limit" if limit is None else f"a context of {limit} tokens is too long to try"
        )
    prompt = subject.make_prompt("context", limit - 2)
    [answer] = subject.ask([replace(subject.requests[0], prompt_ids=prompt, max_tokens=2)])
    if len(answer.response_ids) != 2:
        raise BrokenRuleError(f"after {len(prompt)} tokens, with {limit} of context, it sampled {answer.response_ids}")
    return f"{limit} tokens"


def sessions_change_nothing(subject: Subject) -> str:
    """A session says that a prompt may begin as an earlier one did; what was kept may save work and change no token,
    also where the prompt goes another way.
    """
    subject.require_repeatable()
    requests = [replace(request, session=f"attempt {i}") for i, request in enumerate(subject.requests)]
    answers = subject.ask(requests)
    following = [follow_up(request, answer) for request, answer in zip(requests, answers, strict=True)]
    elsewhere = [replace(request, prompt_ids=subject.make_prompt(request.session, 7)) for request in following]
    for how, asked in (("that goes on", following), ("that goes another way", elsewhere)):
        without = subject.ask([replace(request, session=None) for request in asked])
        difference = subject.find_difference(asked, subject.ask(asked), without)
        if difference:
            raise BrokenRuleError(f"a prompt {how}, with and without its session: {difference}")
    return f"{len(requests)} sessions, going on and turning elsewhere"


def submit_answers_as_generate_does(subject: Subject) -> str:
    """Where an engine has `submit` the loop uses nothing else: each future must bring the answer to its own request,
    whatever else is under way.
    """
    engine = subject.engine
    if not isinstance(engine, SubmittingEngine):
        raise NotTestedError("the engine has no `submit`; attempts are played in step")
    subject.require_repeatable()
    half = len(subject.requests) // 2
    futures = [*engine.submit(subject.requests[:half]), *engine.submit(subject.requests[half:])]
    if len(futures) != len(subject.requests) or not all(isinstance(future, Future) for future in futures):
        raise BrokenRuleError(f"`submit` gave {len(futures)} for {len(subject.requests)} requests; give a Future each")
    try:
        answers = [future.result(timeout=subject.seconds) for future in futures]
    except TimeoutError:
        raise BrokenRuleError(f"a request was not answered within {subject.seconds:g} seconds") from None
    check_generations(answers)
    difference = subject.find_difference(subject.requests, answers, subject.answers)
    if difference:
        raise BrokenRuleError(f"submitted and generated, {difference}")
    return f"{len(answers)} requests in two batches"


def weights_are_taken_over(subject: Subject) -> str:
    """After each update the engine must sample with the weights that it was handed, and say so; else a run trains on
    what an older policy did without knowing it.
    """
    following, before, version = subject.hand_over
    if subject.engine.version != version:
        raise BrokenRuleError(f"after load(version={version}) the engine says version {subject.engine.version}")
    after = subject.ask(subject.requests)
    if VERSIONS in subject.engine.gives:
        _check_versions(after, version)
    if [answer.logp for answer in after] == [answer.logp for answer in before]:
        raise BrokenRuleError("after `load` every log-prob is the same to the last bit; were the weights taken over?")
    return f"version {version}; {len(following)} responses moved"


def old_weights_leave_nothing_behind(subject: Subject) -> str:
    """Keys and values that old weights computed would mix two policies within one prompt; `load` forgets them, those
    that it keeps by session and those that it keeps by prompt.
    """
    subject.require_repeatable()
    following, _, _ = subject.hand_over
    kept = subject.ask(following)
    fresh = subject.ask([replace(request, session=None) for request in following])
    difference = subject.find_difference(following, kept, fresh)
    gap = math.inf if difference else find_shared_gap(kept, fresh)
    if not gap <= subject.max_gap:
        shown = difference or f"log-probs differ by up to {gap:.3g} nats"
        raise BrokenRuleError(f"a session from before `load`, against none: {shown}")
    if SCORES in subject.engine.gives:
        pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(following, kept, strict=True)]
        gap = find_largest_gap([answer.logp for answer in kept], subject.engine.score(pairs))
        if not gap <= subject.max_gap:
            raise BrokenRuleError(
                f"after `load` sampled and scored log-probs of prompts from before differ by up to {gap:.3g} nats"
            )
    return f"{len(following)} sessions went on after the hand-over"


# An engine under check: what it is asked, and what it answered, so that rules can share the asking.

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
        check_generations(answers)
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


RULES: tuple[Callable[[Subject], str], ...] = (
    answers_every_request,
    log_probs_are_log_probs,
    same_request_gives_same_tokens,
    neighbours_change_nothing,
    other_seeds_give_other_tokens,
    tokens_come_as_often_as_log_probs_say,
    log_probs_are_those_of_score,
    temperature_zero_takes_the_likeliest,
    stop_tokens_end_a_response,
    max_tokens_cut_a_response,
    entropies_are_those_of_the_distribution,
    versions_name_the_weights_in_use,
    context_is_what_it_says,
    sessions_change_nothing,
    submit_answers_as_generate_does,
    weights_are_taken_over,
    old_weights_leave_nothing_behind,
)
"""All rules, in the order they are checked. If the first one is broken, the rest are not checked."""


def check_engine(
    engine: Engine,
    *,
    token_ids: Sequence[int],
    weights: Mapping[str, torch.Tensor] | None = None,
    max_gap: float = 1e-3,
    seconds: float = 60.0,
    seed: int = 0,
) -> list[RuleResult]:
    """Check an engine against every rule.

    Args:
        engine: the engine; one that is not needed afterwards, since it is left with the weights below.
        token_ids: ids that prompts may be made of.
        weights: other weights of the same model, by name, to hand over; None = handing over is not tested.
        max_gap: nats by which two ways of computing one log-prob may differ; some 0.5 in bfloat16. Above 0.01 tokens
            that two ways sampled are compared but for rounding.
        seconds: how long an answer to `submit` may take.
        seed: for prompts and seeds.
    """
    if len(set(token_ids)) < 2:
        raise ConfigError(f"token_ids: found {len(set(token_ids))} ids; give at least 2 that prompts can be made of")
    subject = Subject(
        engine=engine, token_ids=tuple(token_ids), weights=weights, max_gap=max_gap, seconds=seconds, seed=seed
    )
    first = try_rule(RULES[0], lambda: subject)
    if first.status == "broken":
        return [first, *(describe_result(rule, "not tested", "the engine could not be asked") for rule in RULES[1:])]
    return [first, *(try_rule(rule, lambda: subject) for rule in RULES[1:])]


# Answers to one request by two ways of computing: equal to the last token, or but for rounding.
#
# A token follows from a draw and a distribution. Where a second way through the model (other rows beside it, a prompt
# read in parts) moves log-probs by more than float32 rounds, a draw at the border of two tokens falls on the other side
# now and then, and the rest of the response is another one. Nobody can promise the tokens then; what can be promised is
# that log-probs of what both ways said agree, and that tokens part no more often than borders are met.

EXACT_GAP = 0.01
"""Nats: engines whose log-probs may differ by no more are held to every token."""


def find_other_tokens(requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation]) -> str:
    """The first request that was answered in two ways; empty = none was."""
    for request, answer, other in zip(requests, some, others, strict=True):
        if answer.response_ids != other.response_ids:
            return f"seed {request.seed} gave {answer.response_ids}, and {other.response_ids}"
    return ""


def find_difference(
    requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation], *, max_gap: float
) -> str:
    """Where two ways of answering differ in tokens, by more than rounding where `max_gap` is wide; empty = nowhere.

    Draws of their own would part with the chance that two tokens of a distribution differ; half of that is allowed.
    """
    if max_gap <= EXACT_GAP:
        return find_other_tokens(requests, some, others)
    gap, both = find_shared_gap(some, others), list(zip(some, others, strict=True))
    if not gap <= max_gap:
        return f"the same tokens have log-probs that differ by up to {gap:.3g} nats (allowed {max_gap:g})"
    gaps, chances, num_parted = list[float](), list[float](), 0
    for answer, other in both:
        shared = _count_shared(answer, other)
        has_parted = shared < min(len(answer.response_ids), len(other.response_ids))
        gaps += [abs(a - b) for a, b in zip(answer.logp[:shared], other.logp[:shared], strict=True)]
        chances += [math.exp(logp) for logp in other.logp[: shared + has_parted]]
        num_parted += has_parted
    allowed = 1 + sum(1 - chance for chance in chances) / 2
    if num_parted <= allowed:
        return ""
    if sum(gaps) > sum(chances):
        raise NotTestedError("rounding moves log-probs by more than tokens are likely, so that none can be compared")
    return (
        f"{num_parted} of {len(both)} responses parted within {len(chances)} tokens, about as often as with other "
        f"seeds; rounding explains up to {allowed:.0f}"
    )


def find_shared_gap(some: Sequence[Generation], others: Sequence[Generation]) -> float:
    """The largest difference of log-probs up to where responses part."""
    both = [(answer, other, _count_shared(answer, other)) for answer, other in zip(some, others, strict=True)]
    return find_largest_gap([a.logp[:num] for a, _, num in both], [b.logp[:num] for _, b, num in both])


def find_largest_gap(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """The largest difference of two lists of log-probs; NaN where one is none, infinite where they are not as many."""
    if [len(logps) for logps in some] != [len(logps) for logps in others]:
        return math.inf
    gaps = [abs(a - b) for logps, other in zip(some, others, strict=True) for a, b in zip(logps, other, strict=True)]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps, default=0.0)


def _count_shared(answer: Generation, other: Generation) -> int:
    """How many tokens two responses have in common before they part."""
    pairs = list(zip(answer.response_ids, other.response_ids, strict=False))
    return next((place for place, (token, another) in enumerate(pairs) if token != another), len(pairs))
