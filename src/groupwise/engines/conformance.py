"""The conformance suite for engines: run it on your own engine before you train with it.

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
from groupwise.parts.slots import ENTROPY, SCORES, TRUNCATION, VERSIONS
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import BrokenRuleError, NotTestedError, RuleResult, describe_result, try_rule

if TYPE_CHECKING:
    import torch


# The rules. The docstring of a rule says why it matters; users see it when their engine breaks the rule.

MAX_CONTEXT = 4096
ROUNDING = 1e-6


def answers_every_request(subject: Subject) -> str:
    """The loop matches answers to requests by position. It needs one response per request, each with at least one
    token, and no response if there is no request.
    """
    if subject.ask([]):
        raise BrokenRuleError("an empty list of requests gave responses")
    for request, answer in zip(subject.requests, subject.answers, strict=True):
        if not answer.response_ids or not all(type(token) is int for token in answer.response_ids):
            raise BrokenRuleError(
                f"seed {request.seed} gave {answer.response_ids!r}; give a tuple of at least one token id"
            )
    return f"{len(subject.answers)} responses"


def log_probs_are_log_probs(subject: Subject) -> str:
    """Losses weight a token by its log-prob. If it is a probability or NaN, the gradient is wrong."""
    logps = [logp for answer in subject.answers for logp in answer.logp]
    for logp in logps:
        if not (math.isfinite(logp) and logp <= ROUNDING):
            raise BrokenRuleError(f"a sampled token has the log-prob {logp}; give a finite number, 0 or less")
    return f"{len(logps)} log-probs, the smallest {min(logps):.3g}"


def same_request_gives_same_tokens(subject: Subject) -> str:
    """A run can be repeated and resumed only if all randomness comes from the request's seed. A generator of the
    process, or the number of earlier calls, must not matter.
    """
    if subject.unrepeatable:
        raise BrokenRuleError(f"asked twice, {subject.unrepeatable}")
    return f"{len(subject.requests)} requests asked twice"


def neighbours_change_nothing(subject: Subject) -> str:
    """The other requests in a batch depend on which rollouts still run. They must not change a response.

    With log-probs as coarse as in bfloat16 (`max_gap` above 0.01), rounding may change a sampled token. Then two things
    are required: log-probs of equal tokens agree within `max_gap`, and responses diverge less than half as often as
    with other seeds.
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
    """The rollouts of a group differ only in their seeds. Equal rollouts have no learning signal."""
    if subject.seedless:
        raise BrokenRuleError(subject.seedless)
    return "other seeds, other responses"


def tokens_come_as_often_as_log_probs_say(subject: Subject) -> str:
    """A log-prob must be that of the sampling distribution, after temperature, top-p and the like. With any other, the
    policy gradient is wrong.
    """
    if subject.seedless:
        raise NotTestedError("all seeds give the same response, so frequencies cannot be counted")
    if subject.unfair:
        raise BrokenRuleError(subject.unfair)
    return f"{len(subject.draws)} tokens drawn, {len({draw.response_ids for draw in subject.draws})} different ones"


def log_probs_are_those_of_score(subject: Subject) -> str:
    """The weight check and the distance to earlier rollouts compare scores with the log-probs reported when sampling,
    at the same temperature.
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
    """An evaluation at temperature 0 is greedy: it gives the same, most likely tokens each time."""
    cold = [replace(subject.requests[0], temperature=0.0, seed=seed) for seed in range(4)]
    responses = {answer.response_ids for answer in subject.ask(cold)}
    if len(responses) > 1:
        raise BrokenRuleError(f"seeds gave different responses at temperature 0: {sorted(responses)[:2]}")
    if SCORES not in subject.engine.gives:
        return "the same response for all seeds; without scores, it is not known whether it is the most likely"
    [(first, *_)] = responses
    others = sorted({answer.response_ids[0] for answer in subject.draws})
    scores = subject.engine.score([(cold[0].prompt_ids, (token,)) for token in (first, *others)])
    best = max(range(len(scores)), key=lambda place: scores[place][0])
    if scores[best][0] > scores[0][0] + subject.max_gap:
        raise BrokenRuleError(
            f"temperature 0 gave token {first} of log-prob {scores[0][0]:.3g}, but {others[best - 1]} has "
            f"{scores[best][0]:.3g}"
        )
    return f"the most likely of {len(others)} tokens"


def top_k_and_top_p_leave_the_likeliest(subject: Subject) -> str:
    """An evaluation may sample from the most likely tokens only. Log-probs are then those of what is left: they sum up
    to 1.
    """
    if TRUNCATION not in subject.engine.gives:
        raise NotTestedError("the engine does not truncate the distribution")
    if subject.is_narrow:
        raise NotTestedError("log-probs are so coarse that several tokens may be the most likely")
    if subject.seedless:
        raise NotTestedError("all seeds give the same response, so it is not known which token is the most likely")
    request = replace(subject.requests[0], max_tokens=1)
    likeliest = max(subject.draws, key=lambda answer: answer.logp[0])
    for limit, asked in (("top_k = 1", replace(request, top_k=1)), ("top_p = 1e-6", replace(request, top_p=1e-6))):
        for answer in subject.ask([replace(asked, seed=seed) for seed in range(4)]):
            if answer.response_ids != likeliest.response_ids or not abs(answer.logp[0]) <= subject.max_gap:
                raise BrokenRuleError(
                    f"{limit} gave token {answer.response_ids[0]} of log-prob {answer.logp[0]:.3g}; the most likely is "
                    f"{likeliest.response_ids[0]}, whose log-prob is then 0"
                )
    answers = subject.ask([replace(request, top_k=2, seed=seed) for seed in range(NUM_DRAWS)])
    logps = {answer.response_ids[0]: answer.logp[0] for answer in answers}
    if len(logps) > 2:
        raise BrokenRuleError(f"top_k = 2 gave {len(logps)} different tokens")
    total = sum(map(math.exp, logps.values()))
    if len(logps) == 2 and not abs(math.log(total)) <= subject.max_gap:
        raise BrokenRuleError(f"top_k = 2 gave two tokens whose probabilities sum up to {total:.3g}; they must be 1")
    return f"top_k = 2 gave {len(logps)} of two tokens"


def stop_tokens_end_a_response(subject: Subject) -> str:
    """A stop token ends the turn. It is part of the response, because the policy sampled it. `stopped` separates
    complete responses from those that were cut off.
    """
    subject.require_repeatable()
    halves = [answer.response_ids[len(answer.response_ids) // 2] for answer in subject.answers]
    requests = [replace(r, stop_ids=(stop,)) for r, stop in zip(subject.requests, halves, strict=True)]
    answers = subject.ask(requests)
    for stop, whole, answer in zip(halves, subject.answers, answers, strict=True):
        has_stop, is_whole = stop in answer.response_ids, len(answer.response_ids) == MAX_TOKENS
        may_lack_it = subject.is_narrow and is_whole  # rounding may have changed an earlier token
        if answer.stopped != has_stop or not (has_stop or may_lack_it) or stop in answer.response_ids[:-1]:
            raise BrokenRuleError(
                f"stop token {stop} made {whole.response_ids} {answer.response_ids} with stopped={answer.stopped}; it "
                "must be the last token, with True"
            )
    lengths = [whole.response_ids.index(stop) + 1 for whole, stop in zip(subject.answers, halves, strict=True)]
    _compare_beginnings(subject, answers, lengths, "with a stop token")
    return f"{len(requests)} responses stopped"


def max_tokens_cut_a_response(subject: Subject) -> str:
    """Prompts leave room for `max_tokens` more. A response that is cut off must be a prefix of the longer one, with
    stopped=False.
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
    """Fail if answers are not prefixes of the uncut responses."""
    beginnings = [
        replace(whole, response_ids=whole.response_ids[:num], logp=whole.logp[:num], entropy=(), versions=())
        for whole, num in zip(subject.answers, lengths, strict=True)
    ]
    difference = subject.find_difference(subject.requests, answers, beginnings)
    if difference:
        raise BrokenRuleError(f"{how} and without: {difference}")


def entropies_are_those_of_the_distribution(subject: Subject) -> str:
    """Failed rollouts may be ranked by entropy, in nats. An engine without entropies must leave them empty: a zero
    would mean certainty.
    """
    has_entropy = [bool(answer.entropy) for answer in subject.answers]
    if ENTROPY not in subject.engine.gives:
        if any(has_entropy):
            raise BrokenRuleError("responses have entropies, but `gives` lacks 'entropy'; add it")
        raise NotTestedError("the engine does not give entropies")
    if not all(has_entropy):
        raise BrokenRuleError("`gives` has 'entropy', but a response has no entropies")
    if subject.seedless or subject.unfair:
        raise NotTestedError("tokens are not drawn from the reported distribution")
    surprises = [-answer.logp[0] for answer in subject.draws]
    expected, slack = fmean(surprises), subject.max_gap + DEVIATIONS * pstdev(surprises) / math.sqrt(len(surprises))
    for answer in subject.draws:
        if not abs(answer.entropy[0] - expected) <= slack:
            raise BrokenRuleError(
                f"an entropy is {answer.entropy[0]:.3g}, but the mean of -log p over {len(surprises)} draws is "
                f"{expected:.3g}; give the entropy of the sampling distribution, in nats"
            )
    return f"{answer.entropy[0]:.3g} nats, where -log p is {expected:.3g} on average"


def versions_name_the_weights_in_use(subject: Subject) -> str:
    """The staleness of a rollout decides whether it trains, and with which weight."""
    if VERSIONS not in subject.engine.gives:
        if any(answer.versions for answer in subject.answers):
            raise BrokenRuleError("responses have versions, but `gives` lacks 'versions'; add it")
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
    """Rollouts continue until prompt and response no longer fit into `context`. The engine must answer until then."""
    limit = subject.engine.context
    if limit is None or limit > MAX_CONTEXT:
        raise NotTestedError(
            "there is no limit" if limit is None else f"a context of {limit} tokens is too long to test"
        )
    prompt = subject.make_prompt("context", limit - 2)
    [answer] = subject.ask([replace(subject.requests[0], prompt_ids=prompt, max_tokens=2)])
    if len(answer.response_ids) != 2:
        raise BrokenRuleError(f"after {len(prompt)} tokens, with {limit} of context, it sampled {answer.response_ids}")
    return f"{limit} tokens"


def sessions_change_nothing(subject: Subject) -> str:
    """A session tells the engine that a prompt may begin like an earlier one. Cached keys and values may save work, but
    must change no token, even if the prompts diverge.
    """
    subject.require_repeatable()
    requests = [replace(request, session=f"rollout {i}") for i, request in enumerate(subject.requests)]
    answers = subject.ask(requests)
    following = [follow_up(request, answer) for request, answer in zip(requests, answers, strict=True)]
    elsewhere = [replace(request, prompt_ids=subject.make_prompt(request.session, 7)) for request in following]
    for how, asked in (("that continues", following), ("that diverges", elsewhere)):
        without = subject.ask([replace(request, session=None) for request in asked])
        difference = subject.find_difference(asked, subject.ask(asked), without)
        if difference:
            raise BrokenRuleError(f"a prompt {how}, with and without its session: {difference}")
    return f"{len(requests)} sessions, continued and diverging"


def submit_answers_as_generate_does(subject: Subject) -> str:
    """If an engine has `submit`, the loop uses only that. Each future must hold the answer to its own request, whatever
    else is running.
    """
    engine = subject.engine
    if not isinstance(engine, SubmittingEngine):
        raise NotTestedError("the engine has no `submit`; rollouts run synchronously")
    subject.require_repeatable()
    half = len(subject.requests) // 2
    futures = [*engine.submit(subject.requests[:half]), *engine.submit(subject.requests[half:])]
    if len(futures) != len(subject.requests) or not all(isinstance(future, Future) for future in futures):
        raise BrokenRuleError(
            f"`submit` gave {len(futures)} futures for {len(subject.requests)} requests; give one Future per request"
        )
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
    """After each update the engine must sample with the new weights and report their version. Else a run trains
    off-policy without knowing it.
    """
    following, before, version = subject.sync
    if subject.engine.version != version:
        raise BrokenRuleError(f"after load(version={version}) the engine has version {subject.engine.version}")
    after = subject.ask(subject.requests)
    if VERSIONS in subject.engine.gives:
        _check_versions(after, version)
    if [answer.logp for answer in after] == [answer.logp for answer in before]:
        raise BrokenRuleError("`load` changed no log-prob; were the weights loaded?")
    return f"version {version}; {len(following)} responses changed"


def old_weights_leave_nothing_behind(subject: Subject) -> str:
    """Keys and values of old weights would mix two policies within one prompt. `load` must forget all of them, whether
    cached by session or by prompt.
    """
    subject.require_repeatable()
    following, _, _ = subject.sync
    kept = subject.ask(following)
    fresh = subject.ask([replace(request, session=None) for request in following])
    difference = subject.find_difference(following, kept, fresh)
    gap = math.inf if difference else find_shared_gap(kept, fresh)
    if not gap <= subject.max_gap:
        shown = difference or f"log-probs differ by up to {gap:.3g} nats"
        raise BrokenRuleError(f"a session from before `load`, compared with no session: {shown}")
    if SCORES in subject.engine.gives:
        pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(following, kept, strict=True)]
        gap = find_largest_gap([answer.logp for answer in kept], subject.engine.score(pairs))
        if not gap <= subject.max_gap:
            raise BrokenRuleError(
                f"after `load`, sampled and scored log-probs of earlier prompts differ by up to {gap:.3g} nats"
            )
    return f"{len(following)} sessions continued after the weight sync"


# An engine that is checked: its requests and answers, which several rules share.

NUM_REQUESTS = 12
MAX_TOKENS = 6
NUM_DRAWS = 400
DEVIATIONS = 5.0
"""Standard deviations by which a count or a mean may be off."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The engine and the arguments of `check_engine`."""

    engine: Engine
    token_ids: tuple[int, ...]
    weights: Mapping[str, torch.Tensor] | None
    max_gap: float
    seconds: float
    seed: int

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        """The engine's answers; a rule is broken unless there is one per request."""
        answers = self.engine.generate(requests)
        if len(answers) != len(requests):
            raise BrokenRuleError(f"{len(requests)} requests were answered with {len(answers)} responses")
        for answer in answers:
            if not isinstance(answer, Generation):
                raise BrokenRuleError(f"`generate` gave a {type(answer).__name__}; give a Generation for each request")
        check_generations(answers)
        return list(answers)

    def make_prompt(self, name: object, length: int) -> tuple[int, ...]:
        """A random prompt; the same name gives the same prompt."""
        draw = Random(f"{self.seed} {name}")
        return tuple(draw.choice(self.token_ids) for _ in range(length))

    @cached_property
    def requests(self) -> list[Request]:
        """Prompts of several lengths, some of them equal, each with its own seed."""
        prompts = [self.make_prompt(number, 2 + 3 * number) for number in range(5)]
        return [
            Request(prompt_ids=prompts[number % len(prompts)], seed=1000 * self.seed + number, max_tokens=MAX_TOKENS)
            for number in range(NUM_REQUESTS)
        ]

    @cached_property
    def answers(self) -> list[Generation]:
        return self.ask(self.requests)

    @cached_property
    def unrepeatable(self) -> str:
        """The first difference if the same requests are asked again; empty = none."""
        return find_other_tokens(self.requests, self.ask(self.requests), self.answers)

    @cached_property
    def seedless(self) -> str:
        """An error message if all seeds gave the same response, and this is unlikely by chance; else empty."""
        request = self.requests[0]
        answers = self.ask([replace(request, seed=seed) for seed in range(NUM_REQUESTS)])
        responses = {answer.response_ids for answer in answers}
        if len(responses) > 1:
            return ""
        if math.exp(sum(answers[0].logp)) > 0.5:
            raise NotTestedError("the model's distribution is almost deterministic, so seeds hardly matter")
        return f"{NUM_REQUESTS} seeds gave the same response {answers[0].response_ids}"

    @cached_property
    def draws(self) -> list[Generation]:
        """Single tokens after one prompt, each with its own seed."""
        request = replace(self.requests[0], max_tokens=1)
        return self.ask([replace(request, seed=seed) for seed in range(NUM_DRAWS)])

    @cached_property
    def unfair(self) -> str:
        """An error message if a token's frequency does not match its log-prob; else empty."""
        counts = Counter(answer.response_ids for answer in self.draws)
        for answer in self.draws:
            p = min(math.exp(answer.logp[0]), 1.0)
            expected, count = NUM_DRAWS * p, counts[answer.response_ids]
            if abs(count - expected) > 1 + DEVIATIONS * math.sqrt(expected * (1 - p)):
                return (
                    f"token {answer.response_ids[0]} was sampled {count} of {NUM_DRAWS} times, but its log-prob of "
                    f"{answer.logp[0]:.3g} predicts {expected:.1f}"
                )
        return ""

    def find_difference(
        self, requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation]
    ) -> str:
        return find_difference(requests, some, others, max_gap=self.max_gap)

    @property
    def is_narrow(self) -> bool:
        return self.max_gap > EXACT_GAP

    def require_repeatable(self) -> None:
        if self.unrepeatable:
            raise NotTestedError("the same request does not give the same tokens, so tokens cannot be compared")

    @cached_property
    def sync(self) -> tuple[list[Request], list[Generation], int]:
        """Sync the weights, once: requests that continue earlier sessions, the earlier answers, and the new version."""
        if self.weights is None:
            raise NotTestedError("there are no other weights to load; give check_engine(weights=...)")
        requests = [replace(request, session=f"before {i}") for i, request in enumerate(self.requests)]
        answers = self.ask(requests)
        version = self.engine.version + 3
        self.engine.load(self.weights, version=version)
        following = [follow_up(request, answer) for request, answer in zip(requests, answers, strict=True)]
        return following, answers, version


def follow_up(request: Request, answer: Generation) -> Request:
    """The next request of a rollout: its prompt, its response, and something new."""
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
    top_k_and_top_p_leave_the_likeliest,
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
"""All rules, in their order. If the first one is broken, the others are not checked."""


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
        engine: the engine to check; it has the weights below afterwards.
        token_ids: ids for prompts.
        weights: other weights of the same model, by name; None = the weight sync is not tested.
        max_gap: allowed difference of two computations of one log-prob, in nats; about 0.5 in bfloat16. Above 0.01,
            tokens may differ as far as rounding explains it.
        seconds: time-out of an answer to `submit`.
        seed: for prompts and requests.
    """
    if len(set(token_ids)) < 2:
        raise ConfigError(f"token_ids: found {len(set(token_ids))} ids; give at least 2 ids for prompts")
    subject = Subject(
        engine=engine, token_ids=tuple(token_ids), weights=weights, max_gap=max_gap, seconds=seconds, seed=seed
    )
    first = try_rule(RULES[0], lambda: subject)
    if first.status == "broken":
        return [first, *(describe_result(rule, "not tested", "the engine gives no answers") for rule in RULES[1:])]
    return [first, *(try_rule(rule, lambda: subject) for rule in RULES[1:])]


# Compare two computations of the same response: exactly, or up to rounding.
#
# A random number and a distribution decide a token. A second computation (in another batch, or with the prompt read in
# parts) may change log-probs by more than float32 rounding. Then some random numbers select a neighbouring token, and
# the rest of the response differs. In this case tokens cannot be required to be equal. Two things can: log-probs of the
# common tokens agree, and responses diverge no more often than rounding explains.

EXACT_GAP = 0.01
"""If `max_gap` is at most this, in nats, all tokens must be equal."""


def find_other_tokens(requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation]) -> str:
    """The first request with two different responses; empty = none."""
    for request, answer, other in zip(requests, some, others, strict=True):
        if answer.response_ids != other.response_ids:
            return f"seed {request.seed} gave {answer.response_ids}, and {other.response_ids}"
    return ""


def find_difference(
    requests: Sequence[Request], some: Sequence[Generation], others: Sequence[Generation], *, max_gap: float
) -> str:
    """Compare tokens exactly, or up to rounding if `max_gap` is wide; empty = no difference.

    With independent random numbers, responses would diverge with the probability that two sampled tokens differ. Half
    of that is allowed.
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
        raise NotTestedError("rounding is larger than the tokens' probabilities, so tokens cannot be compared")
    return (
        f"{num_parted} of {len(both)} responses diverged within {len(chances)} tokens, about as often as with other "
        f"seeds; rounding explains up to {allowed:.0f}"
    )


def find_shared_gap(some: Sequence[Generation], others: Sequence[Generation]) -> float:
    """The largest difference of log-probs in the common prefixes of responses."""
    both = [(answer, other, _count_shared(answer, other)) for answer, other in zip(some, others, strict=True)]
    return find_largest_gap([a.logp[:num] for a, _, num in both], [b.logp[:num] for _, b, num in both])


def find_largest_gap(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """The largest difference of two lists of log-probs; NaN if one is NaN, infinite if the lengths differ."""
    if [len(logps) for logps in some] != [len(logps) for logps in others]:
        return math.inf
    gaps = [abs(a - b) for logps, other in zip(some, others, strict=True) for a, b in zip(logps, other, strict=True)]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps, default=0.0)


def _count_shared(answer: Generation, other: Generation) -> int:
    pairs = list(zip(answer.response_ids, other.response_ids, strict=False))
    return next((place for place, (token, another) in enumerate(pairs) if token != another), len(pairs))
