"""What holds a policy to something beside its credit, against loops over tokens: hundreds of random updates each."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from typing import Any

import pytest
import torch

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.losses import EntropyCorridor, Plain, PolicyLoss
from tests.oracles import corridor as oracle
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.unit.losses.entropies import Attempt, make_update

NUM_UPDATES = 200
SETTINGS: dict[str, dict[str, Any]] = {
    "published": {},
    "narrow": {"low": 0.8, "high": 1.2, "outside": 0.05},
    "constant": {"low": 0.5, "high": 1.5, "form": "constant"},
    "steps": {"low": 0.5, "high": 1.5, "over": "step", "smoothing": 3.0},
    "steps, constant": {"low": 0.8, "high": 1.2, "over": "step", "form": "constant"},
    "high floor": {"low": 0.9, "high": 1.1, "floor": 0.7},
}


@functools.cache
def updates() -> list[tuple[list[Token], list[float], float]]:
    """Updates, what was usual at each token's step, and the weight of the phase."""
    rng, drawn = random.Random("corridors"), []
    for _ in range(NUM_UPDATES):
        tokens = random_update(rng)
        by_step = [rng.choice([0.0, 0.005, rng.uniform(0.1, 2.0), rng.uniform(0.1, 2.0)]) for _ in range(4)]
        drawn.append((tokens, [by_step[token.step] for token in tokens], rng.uniform(0, 1)))
    return drawn


@pytest.mark.parametrize("name", SETTINGS)
def test_a_corridor_has_the_value_and_the_gradient_of_its_oracle(name: str) -> None:
    settings = {"smoothing": 1.0, "low": 0.0, "high": 2.0, "outside": 0.1, "form": "hinge", "over": "token"}
    settings |= {"floor": 0.01} | SETTINGS[name]
    part = EntropyCorridor(weight=0.3, **settings)
    num_outside = 0
    for tokens, usual, phase in updates():
        own = [token for token in tokens if token.trains]
        usual_of_own = [number for token, number in zip(tokens, usual, strict=True) if token.trains]
        loss = PolicyLoss(surrogate=Plain(), penalties=(part,))
        result = run(loss, with_past(tokens, usual, phase), totals_of(tokens))
        bare = run(PolicyLoss(surrogate=Plain()), columns_of(tokens), totals_of(tokens))
        terms = [
            oracle.corridor(own, token, number, weight_of_phase=phase, **settings)
            for token, number in zip(own, usual_of_own, strict=True)
        ]
        expected = bare.loss + 0.3 * math.fsum(term.value for term in terms) / max(len(own), 1)
        assert result.loss == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert result.by_logp == bare.by_logp
        # The slope of a step's mean is shared by its tokens, each of which costs as much: it comes to the same.
        slopes = iter(0.3 * (-1 + term.slope) / len(own) for term in terms)
        wanted = [next(slopes) if token.trains else 0.0 for token in tokens]
        assert result.by_entropy == pytest.approx(wanted, rel=1e-12, abs=1e-15)
        num_outside += sum(term.value != -token.entropy for term, token in zip(terms, own, strict=True))
    assert num_outside > 100


def with_past(tokens: list[Token], usual: list[float], phase: float) -> Any:
    named = {
        "usual_entropy": [number if token.trains else math.nan for token, number in zip(tokens, usual, strict=True)],
        "usual_entropy_phase": [phase if token.trains else math.inf for token in tokens],
    }
    columns = {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in named.items()}
    return dataclasses.replace(columns_of(tokens), named=columns)


def random_past(rng: random.Random) -> list[list[Attempt]]:
    return [
        [
            [(index, [rng.uniform(0, 2) for _ in range(rng.randint(0, 3))]) for index in range(rng.randint(0, 5))]
            for _ in range(rng.randint(0, 3))
        ]
        for _ in range(rng.randint(0, 4))
    ]


def test_what_was_usual_is_what_the_oracle_says() -> None:
    rng = random.Random("what was usual")
    for _ in range(NUM_UPDATES):
        past = random_past(rng)
        state = EntropyCorridor(updates=6).start(seed=0)
        for number, attempts in enumerate(past, start=1):
            state.observe(make_update(number, attempts))
        columns = state.columns([Task(id="a"), Task(id="b")])
        usual = columns["usual_entropy"]
        expected = [oracle.usual_by_index(past, index) for index in range(usual.shape[1])]
        assert usual.tolist() == [pytest.approx(expected, rel=1e-12, abs=0)] * 2
        assert usual[0, -1] == 0.0
        assert columns["usual_entropy_phase"].tolist() == [pytest.approx(oracle.phase(len(past), 6), rel=1e-12)] * 2


def test_an_update_without_attempts_is_over_too() -> None:
    state = EntropyCorridor(updates=2).start(seed=0)
    state.observe(ObservedUpdate(number=1, trajectories=[], credit=[]))
    assert state.columns([Task(id="a")])["usual_entropy_phase"].tolist() == [0.8]
    assert state.columns([Task(id="a")])["usual_entropy"].tolist() == [[0.0]]
