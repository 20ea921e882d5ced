"""Objectives beside the clipped one: value and gradient of their oracles on random updates.

How equal: to 1e-10 of the largest entry of the update, in float64; a masked token's gradient is exactly 0.
"""

from __future__ import annotations

import functools
import math
import random

import pytest

from groupwise.losses import PolicyLoss, SquaredChange, SquaredDrift
from groupwise.methods.rec import Reinforce
from tests.oracles import losses as oracle
from tests.oracles.loss_parts import RECS
from tests.oracles.losses import Counted, Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of


@functools.cache
def updates() -> list[list[Token]]:
    rng = random.Random("objectives")
    return [random_update(rng) for _ in range(200)]


def check(loss: PolicyLoss, tokens: list[Token], terms: list[Counted]) -> None:
    """Compare with the expected loss and slope of each token that trains, all counting the same."""
    num = max(len(terms), 1)
    result = run(loss, columns_of(tokens), totals_of(tokens))
    size = max((abs(number) for term in terms for number in term), default=0.0) + 1e-3
    assert abs(result.loss - math.fsum(term.value for term in terms) / num) <= 1e-10 * size
    slopes = iter(terms)
    for token, slope in zip(tokens, result.by_logp, strict=True):
        assert abs(slope - next(slopes).slope / num) <= 1e-10 * size if token.trains else slope == 0.0


@pytest.mark.parametrize("name", RECS)
def test_rec_equals_its_oracle(name: str) -> None:
    part, judge = RECS[name]
    for tokens in updates():
        trained = [token for token in tokens if token.trains]
        terms = []
        for token, rho in zip(trained, oracle.token_ratio(trained), strict=True):
            term = judge(token, rho.value)
            terms.append(Counted(term.value, term.by_logp))
        check(PolicyLoss(surrogate=part), tokens, terms)


def test_opmd_equals_its_oracle() -> None:
    loss = PolicyLoss(surrogate=Reinforce(), penalties=(SquaredChange(weight=0.3),))
    for tokens in updates():
        terms = []
        for token in [token for token in tokens if token.trains]:
            own, pull = oracle.reinforce(token, math.nan), oracle.square_change(token)
            terms.append(Counted(own.value + 0.3 * pull.value, own.by_logp + 0.3 * pull.slope))
        check(loss, tokens, terms)


def test_bcpg_equals_its_oracle() -> None:
    loss = PolicyLoss(surrogate=Reinforce(), penalties=(SquaredDrift(weight=0.3),))
    for tokens in updates():
        trained, terms = [token for token in tokens if token.trains], []
        for token in trained:
            own, pull = oracle.reinforce(token, math.nan), oracle.square_drift(trained, token)
            terms.append(Counted(own.value + 0.3 * pull.value, own.by_logp + 0.3 * pull.slope))
        check(loss, tokens, terms)
