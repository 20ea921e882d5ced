"""What holds a policy to something beside its credit, against loops over tokens: hundreds of random updates each."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from groupwise import Part, StepTable, methods
from groupwise.credit import ColumnMean
from groupwise.data.records import Task
from groupwise.data.segments import FloatArray
from groupwise.losses import Plain, PolicyLoss
from groupwise.methods.epo import EntropyCorridor
from groupwise.methods.gardo import DistinctCredit, DoubtGate
from groupwise.parts.stateful import ObservedUpdate
from tests.oracles import corridor as oracle
from tests.oracles import doubt as oracle_of_doubt
from tests.oracles.losses import Token
from tests.oracles.rows import Row
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.unit.losses.entropies import Rollout, make_update, start_share

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


def random_past(rng: random.Random) -> list[list[Rollout]]:
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
        for number, rollouts in enumerate(past, start=1):
            state.observe(make_update(number, rollouts))
        columns = state.columns([Task(id="a"), Task(id="b")])
        usual = columns["usual_entropy"]
        expected = [oracle.usual_by_index(past, index) for index in range(usual.shape[1])]
        assert usual.tolist() == [pytest.approx(expected, rel=1e-12, abs=0)] * 2
        assert usual[0, -1] == 0.0
        assert columns["usual_entropy_phase"].tolist() == [pytest.approx(oracle.phase(len(past), 6), rel=1e-12)] * 2


def test_an_update_without_rollouts_is_over_too() -> None:
    state = EntropyCorridor(updates=2).start(seed=0)
    state.observe(ObservedUpdate(number=1, trajectories=[], credit=[]))
    assert state.columns([Task(id="a")])["usual_entropy_phase"].tolist() == [0.8]
    assert state.columns([Task(id="a")])["usual_entropy"].tolist() == [[0.0]]


def random_rows(rng: random.Random) -> list[Row]:
    """Rollouts of a few steps with a point and an auxiliary reward each; points are sometimes the same."""
    points = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(3)]
    return [
        {
            "task": task,
            "rollout": rollout,
            "step": index,
            "reward": rng.choice([0.0, 1.0, rng.gauss(0, 1)]),
            "embedding": rng.choice([*points, [rng.gauss(0, 1) for _ in range(3)]]),
            "taste": rng.choice([0.0, 0.5, rng.random()]),
            "trains": rng.random() < 0.8,
        }
        for task in range(rng.randint(1, 3))
        for rollout in range(rng.randint(1, 5))
        for index in range(rng.randint(1, 3))
    ]


def table_of(rows: list[Row]) -> StepTable:
    return StepTable.from_columns(**{name: [row[name] for row in rows] for name in rows[0]})


def test_distinct_credit_is_what_the_oracle_says() -> None:
    rng, part = random.Random("points"), DistinctCredit(of=methods.dr_grpo().advantage)
    for _ in range(NUM_UPDATES):
        rows = random_rows(rng)
        credit = part(table_of(rows))
        expected, compared = oracle_of_doubt.gardo(rows)
        assert credit.values.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert credit.compared.tolist() == compared


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("auxiliary", [(), ("taste",), ("taste", "step")])
def test_the_gate_is_open_where_the_oracle_says(auxiliary: tuple[str, ...], share: float) -> None:
    rng, num_shut = random.Random(f"gates {share}"), 0
    signals = tuple(ColumnMean(name=name) if name != "step" else StepIndex() for name in auxiliary)
    part = DoubtGate(auxiliary=signals, first=share, lowest=0.01, highest=1.0)
    for _ in range(NUM_UPDATES // 4):
        rows = random_rows(rng)
        rollouts: dict[object, list[list[float]]] = {}
        for row in rows:
            own = rollouts.setdefault((row["task"], row["rollout"]), [[] for _ in (0, *auxiliary)])
            for place, name in enumerate(("reward", *auxiliary)):
                own[place].append(row[name])  # type: ignore[arg-type]
        signals_of = {
            name: [sum(own[0]), *(sum(values) / len(values) for values in own[1:])] for name, own in rollouts.items()
        }
        is_open = oracle_of_doubt.find_open(signals_of, share)
        kept = [row for row in rows if row["trains"]]
        num_open = sum((row["task"], row["rollout"]) in is_open for row in kept)
        weight = len(kept) / num_open if num_open else 0.0
        expected = [weight if (row["task"], row["rollout"]) in is_open else 0.0 for row in rows]
        table = table_of(rows)
        credit = part(table)
        assert credit.values.tolist() == pytest.approx(expected, rel=1e-12)
        derived = [credit.trace.derive(table, step).value for step in range(len(table))]  # type: ignore[union-attr]
        assert derived == pytest.approx(credit.trace.values.tolist(), rel=1e-12)
        num_shut += expected.count(0.0) if num_open else 0
    assert (num_shut > 0) == bool(auxiliary)


class StepIndex(Part, slot="signal"):
    """Which step it is."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.step.astype(np.float64)


def test_the_share_follows_as_the_oracle_says() -> None:
    rng = random.Random("shares")
    for _ in range(20):
        means = [rng.choice([0.0, 0.25, rng.random()]) for _ in range(60)]
        state = start_share(iter(means))
        for number in range(1, len(means) + 1):
            rollout = make_update(number, [[(0, [1.0])]])
            state.observe(dataclasses.replace(rollout, credit=[(0.0,)]))
        assert state.state_dict() == {
            "share": pytest.approx(oracle_of_doubt.follow(0.1, means), rel=1e-12),
            "recent": means[-20:],
        }
