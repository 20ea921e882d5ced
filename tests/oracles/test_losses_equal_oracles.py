"""Every combination of loss parts gives the value and the gradient of its oracle on hundreds of random updates.

How equal: to 1e-10 of the largest entry of the update, in float64. Masked tokens hold NaN, infinities and rubbish, and
their gradient must be exactly 0.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from groupwise.data.samples import Totals
from groupwise.losses import EntropyBonus, Kl, Plain, PolicyLoss, TokenColumns, TokenRatio
from tests.oracles import losses as oracle
from tests.oracles.loss_parts import AGGREGATES, CORRECTIONS, LENGTH, RATIOS, SURROGATES
from tests.oracles.losses import Counted, Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of

NUM_UPDATES = 300
DETACHED = {"cispo", "reinforce", "ring"}
"""Surrogates through whose ratio no gradient runs."""


@functools.cache
def updates() -> list[list[Token]]:
    rng = random.Random("groupwise losses")
    return [random_update(rng) for _ in range(NUM_UPDATES)]


@functools.cache
def tensors(number: int) -> tuple[TokenColumns, Totals]:
    return columns_of(updates()[number]), totals_of(updates()[number])


def select_trained(tokens: Sequence[Token]) -> list[Token]:
    return [token for token in tokens if token.trains]


@functools.cache
def policy_terms(ratio: str, surrogate: str) -> list[list[Counted]]:
    """For each update, the loss of each token that trains and its slope."""
    ratio_of, surrogate_of = RATIOS[ratio][1], SURROGATES[surrogate][1]
    terms = []
    for tokens in updates():
        own = []
        for token, rho in zip(select_trained(tokens), ratio_of(select_trained(tokens)), strict=True):
            term = surrogate_of(token, rho.value)
            own.append(Counted(term.value, term.by_ratio * rho.slope + term.by_logp))
        terms.append(own)
    return terms


@functools.cache
def shares(aggregate: str) -> list[list[float]]:
    """For each update, how much each token that trains counts."""
    return [AGGREGATES[aggregate][1](select_trained(tokens)) for tokens in updates()]


def check(loss: PolicyLoss, number: int, expected: Sequence[Counted], by_entropy: Sequence[float] = ()) -> None:
    """Compare an update with the expected share of each token that trains in the loss and in the gradients."""
    tokens = updates()[number]
    result = run(loss, *tensors(number))
    by_entropy = by_entropy or [0.0] * len(expected)
    size = max((abs(number) for term in expected for number in term), default=0.0) + 1e-3
    assert abs(result.loss - math.fsum(term.value for term in expected)) <= 1e-10 * size * max(len(expected), 1)
    assert_gradient(result.by_logp, tokens, [term.slope for term in expected], 1e-10 * size)
    assert_gradient(result.by_entropy, tokens, by_entropy, 1e-12)


def assert_gradient(slopes: Sequence[float], tokens: Sequence[Token], expected: Sequence[float], bound: float) -> None:
    wanted = iter(expected)
    for token, slope in zip(tokens, slopes, strict=True):
        if token.trains:
            assert abs(slope - next(wanted)) <= bound
        else:
            assert slope == 0.0


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_ratio_surrogate_and_aggregate_equal_their_oracle(ratio: str, surrogate: str, aggregate: str) -> None:
    """A ratio and a surrogate meet all 300 updates, an eighth of them under each aggregate."""
    loss = PolicyLoss(ratio=RATIOS[ratio][0], surrogate=SURROGATES[surrogate][0], aggregate=AGGREGATES[aggregate][0])
    turn = sum(list(names).index(name) for names, name in ((RATIOS, ratio), (AGGREGATES, aggregate))) % len(AGGREGATES)
    cases = enumerate(zip(policy_terms(ratio, surrogate), shares(aggregate), strict=True))
    for number, (terms, own) in itertools.islice(cases, turn, None, len(AGGREGATES)):
        expected = [Counted(t.value * share, t.slope * share) for t, share in zip(terms, own, strict=True)]
        check(loss, number, expected)


def test_a_clamped_ratio_has_no_gradient_beyond_its_bound() -> None:
    bounded = functools.partial(oracle.token_ratio, bound=0.25)
    loss = PolicyLoss(ratio=TokenRatio(clamp=0.25), surrogate=Plain())
    for number, (tokens, own) in enumerate(zip(updates(), shares("token mean"), strict=True)):
        ratios = zip(select_trained(tokens), bounded(select_trained(tokens)), own, strict=True)
        expected = [Counted(-s * t.advantage * rho.value, -s * t.advantage * rho.slope) for t, rho, s in ratios]
        check(loss, number, expected)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_correction_multiplies_the_surrogate_and_carries_no_gradient(correction: str) -> None:
    part, weights_of = CORRECTIONS[correction]
    loss = PolicyLoss(surrogate=SURROGATES["clip"][0], corrections=(part,))
    cases = zip(updates(), policy_terms("token", "clip"), shares("token mean"), strict=True)
    for number, (tokens, terms, own) in enumerate(cases):
        weights = weights_of(select_trained(tokens))
        scaled = [share * weight for share, weight in zip(own, weights, strict=True)]
        expected = [Counted(t.value * factor, t.slope * factor) for t, factor in zip(terms, scaled, strict=True)]
        check(loss, number, expected)


@pytest.mark.parametrize("names", list(itertools.pairwise(CORRECTIONS)), ids=str)
def test_corrections_multiply_one_another_but_not_the_penalties(names: tuple[str, str]) -> None:
    parts = tuple(CORRECTIONS[name][0] for name in names)
    loss = PolicyLoss(surrogate=SURROGATES["clip"][0], corrections=parts, penalties=(Kl(weight=0.3),))
    cases = zip(updates(), policy_terms("token", "clip"), shares("token mean"), strict=True)
    for number, (tokens, terms, own) in enumerate(cases):
        if number % 3:
            continue
        first, second = (CORRECTIONS[name][1](select_trained(tokens)) for name in names)
        weights = [a * b for a, b in zip(first, second, strict=True)]
        pulls = [oracle.kl(token, "k3", "own") for token in select_trained(tokens)]
        expected = [
            Counted(s * (w * t.value + 0.3 * k.value), s * (w * t.slope + 0.3 * k.slope))
            for s, w, t, k in zip(own, weights, terms, pulls, strict=True)
        ]
        check(loss, number, expected)


@pytest.mark.parametrize("gradient", ["own", "straight_through", "unbiased"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_and_entropy_are_added_at_their_weights(estimator: str, gradient: str) -> None:
    aggregate = {"own": "token mean", "straight_through": "sequence mean", "unbiased": "trajectory mean"}[gradient]
    penalties = (Kl(estimator=estimator, gradient=gradient, weight=0.3), EntropyBonus(weight=0.02))
    loss = PolicyLoss(surrogate=SURROGATES["clip"][0], aggregate=AGGREGATES[aggregate][0], penalties=penalties)
    cases = zip(updates(), policy_terms("token", "clip"), shares(aggregate), strict=True)
    for number, (tokens, terms, own) in enumerate(cases):
        expected = []
        for token, term, share in zip(select_trained(tokens), terms, own, strict=True):
            pull = oracle.kl(token, estimator, gradient)
            value = term.value + 0.3 * pull.value - 0.02 * token.entropy
            expected.append(Counted(share * value, share * (term.slope + 0.3 * pull.slope)))
        check(loss, number, expected, [-0.02 * share for share in own])


def test_totals_are_counted_as_the_loops_count_them() -> None:
    for tokens in updates():
        ids = sorted({(token.sample, token.trajectory, token.step) for token in tokens})
        if len({sample for sample, _, _ in ids}) < len(ids):
            continue  # a sample that holds a whole rollout has no step of its own
        sizes = [len(select_trained([token for token in tokens if token.sample == sample])) for sample, _, _ in ids]
        counted = Totals.count(
            tokens=sizes,
            trajectory=[trajectory for _, trajectory, _ in ids],
            step=[step for _, _, step in ids],
            group=[0] * len(ids),
            max_tokens=LENGTH,
        )
        assert counted == totals_of(tokens)


@pytest.mark.parametrize("surrogate", [name for name in SURROGATES if name not in DETACHED])
def test_the_slopes_of_the_surrogate_oracles_are_numerical_derivatives(surrogate: str) -> None:
    value_at = SURROGATES[surrogate][1]
    for token in some_tokens():
        for rho in (0.31, 0.79, 0.99, 1.0, 1.11, 1.31, 1.77, 3.3):
            slope = numerical(lambda x, token=token: value_at(token, x).value, rho)
            assert slope == pytest.approx(value_at(token, rho).by_ratio, abs=1e-6)


@pytest.mark.parametrize("gradient", ["own", "unbiased"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_slopes_of_the_kl_oracles_are_numerical_derivatives(estimator: str, gradient: str) -> None:
    for token in some_tokens():

        def value(logp: float, token: Token = token) -> float:
            return oracle.kl(with_logp(token, logp), estimator, gradient).value

        assert numerical(value, token.logp) == pytest.approx(oracle.kl(token, estimator, gradient).slope, abs=1e-5)


@pytest.mark.parametrize("length", ["mean", "sum"])
def test_averaged_over_the_unit_the_sequence_slopes_are_those_of_the_sequence_ratio(length: str) -> None:
    """mean_t(ratio_t) moves with logp_t as exp(mean or sum of all log-ratios) does."""
    tokens = [replace(token, sample=0, step=0, trajectory=0) for token in some_tokens()[:5]]
    slopes = oracle.sequence_ratio(tokens, "step", length)
    for position, token in enumerate(tokens):

        def value(logp: float, position: int = position, token: Token = token) -> float:
            changed = [*tokens[:position], with_logp(token, logp), *tokens[position + 1 :]]
            return oracle.sequence_ratio(changed, "step", length)[0].value

        assert numerical(value, token.logp) == pytest.approx(slopes[position].slope / len(tokens), abs=1e-6)


def test_the_updates_hold_what_they_promise() -> None:
    tokens = [token for update in updates() for token in update]
    trained = select_trained(tokens)
    assert any(not select_trained(update) for update in updates())
    assert any(math.isnan(token.logp) for token in tokens if not token.trains)
    assert any(token.logp == token.old for token in trained)
    assert any(abs(token.logp - token.old) > 20 for token in trained)
    assert any(abs(token.ref - token.logp) > 20 for token in trained)
    assert {0, 1} <= {len({token.sample for token in select_trained(update)}) for update in updates()}


def some_tokens() -> list[Token]:
    """Tokens that no clamp or cap concerns."""
    trained = select_trained(list(itertools.chain.from_iterable(updates())))
    return [token for token in trained if max(abs(token.ref - token.logp), abs(token.old - token.logp)) < 2][:40]


def with_logp(token: Token, logp: float) -> Token:
    return replace(token, logp=logp)


def numerical(function: Callable[[float], float], x: float, width: float = 1e-6) -> float:
    return (function(x + width) - function(x - width)) / (2 * width)
