"""R^3's mixed advantage, its ranking and both ways to replay equal their slow loops on random input."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import groupwise
from groupwise import StopReason, methods
from groupwise.credit import FixedUnlessSolved, Relative
from groupwise.methods.r3 import CrossContextReplay, EntropyRanking, HistoryKeyedReplay
from tests.oracles import rescue as oracle
from tests.oracles.variants import Variant
from tests.strategies import MODERATE, columns_of, random_rows
from tests.unit.pasts import journal, make_draw, rollout, update

NUM_TABLES = 300
MIXED = [
    Variant("r3"),
    Variant("r3", {"alpha": 0.5}),
    Variant("r3", {"with_replay": False}),
    Variant("r3_hgpo"),
    Variant("r3_hgpo", {"depth": 1, "alpha": 3.0, "gamma": 0.5}),
]


def with_replayed(rows: list[dict[str, object]], rng: random.Random) -> list[dict[str, object]]:
    """The rows, with some rollouts of some tasks replayed."""
    share = rng.choice((0.0, 0.2, 0.5))
    replayed = {who: rng.random() < share for who in sorted({(str(r["task"]), str(r["rollout"])) for r in rows})}
    return [row | {"off_policy": replayed[str(row["task"]), str(row["rollout"])]} for row in rows]


@pytest.mark.parametrize("variant", MIXED, ids=str)
def test_groups_with_replayed_members_get_the_credit_of_the_oracle(variant: Variant) -> None:
    rng, num_mixed = random.Random(f"replayed {variant}"), 0
    for number in range(NUM_TABLES):
        rows = with_replayed(random_rows(rng, regimes=MODERATE), rng)
        num_mixed += any(row["off_policy"] for row in rows)
        table = groupwise.StepTable.from_columns(**columns_of(rows))
        credit = getattr(methods, variant.method)(**variant.hyper).advantage(table)
        expected, compared = variant.oracle(rows, **variant.hyper)
        assert credit.values.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9), number
        assert credit.compared.tolist() == compared, number
    assert num_mixed > NUM_TABLES / 4


def test_a_fixed_scale_gives_the_credit_of_the_oracle() -> None:
    rng, num_fixed = random.Random("fixed scale"), 0
    for number in range(NUM_TABLES):
        rows = with_replayed(random_rows(rng, regimes=MODERATE), rng)
        fixed, above = rng.choice((0.5, 2.0)), rng.choice((0.0, 0.5, 1.0))
        table = groupwise.StepTable.from_columns(**columns_of(rows))
        relative = methods.r3(alpha=2.0).advantage
        assert isinstance(relative, Relative)
        scale = FixedUnlessSolved(ddof=0, fixed=fixed, above=above)
        credit = relative.model_copy(update={"scale": scale})(table)
        expected, compared = oracle.r3_fixed_scale(rows, fixed=fixed, above=above, alpha=2.0)
        assert credit.values.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9), number
        assert credit.compared.tolist() == compared, number
        num_fixed += expected != oracle.r3(rows, alpha=2.0)[0]
    assert num_fixed > NUM_TABLES / 10


ENTROPIES = st.lists(st.integers(0, 40).map(lambda number: number / 8), min_size=1, max_size=12)


@given(
    entropies=st.lists(ENTROPIES, min_size=1, max_size=7),
    p=st.sampled_from([0.1, 0.2, 0.5, 1.0]),
    best=st.sampled_from([0.25, 0.5]),
    others=st.integers(0, 2),
    finished=st.sampled_from(["mean", "zero"]),
)
def test_failed_rollouts_are_paid_what_the_loop_pays(
    entropies: list[list[float]], p: float, best: float, others: int, finished: str
) -> None:
    """Those that were cut off are ranked; `others` finished, and get nothing, or the mean of the ranked."""
    group = []
    for number, values in enumerate(entropies):
        made = rollout(number, stop=StopReason.TRUNCATED)
        ids, logps = (5,) * len(values), (-1.0,) * len(values)
        step = replace(made.steps[0], response_ids=ids, logp_behaviour=logps, entropy=tuple(values))
        group.append(replace(made, steps=(step,)))
    group += [rollout(len(entropies) + number) for number in range(others)]
    paid = [amount for (amount,) in EntropyRanking(p=p, best=best, finished=finished)(group)]
    ranked = oracle.rank_by_entropy(entropies, p=p, best=best)
    if finished == "mean" and max(ranked) == min(ranked):  # ours: where nobody is told apart, nothing is paid
        ranked = [0.0] * len(ranked)
    rest = sum(ranked) / len(ranked) if finished == "mean" else 0.0
    assert paid == pytest.approx([*ranked, *[rest] * others], abs=1e-12)


@st.composite
def pasts(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Updates of rollouts at one task through few states, some not comparable."""
    updates = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        updates.append(
            [
                {"number": number, "rollout": i, "version": number - 1, **draw(rollouts())}
                for i in range(draw(st.integers(1, 4)))
            ]
        )
    return updates


@st.composite
def rollouts(draw: st.DrawFn) -> dict[str, Any]:
    """The states, the rewards and the success of a rollout."""
    states = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=4))
    rewards = [draw(st.sampled_from([0.0, 0.0, 0.5])) for _ in states]
    return {"states": states, "rewards": rewards, "score": float(draw(st.booleans()))}


def play(one: dict[str, Any], number: int, version: int = 0) -> Any:
    return rollout(number, states=one["states"], rewards=one["rewards"], solved=bool(one["score"]), version=version)


@given(past=pasts(), group=st.lists(rollouts(), min_size=1, max_size=4), ring=st.integers(1, 8), age=st.integers(1, 3))
def test_a_group_replays_what_the_loop_replays(
    past: list[list[dict[str, Any]]], group: list[dict[str, Any]], ring: int, age: int
) -> None:
    every, version = [one for entries in past for one in entries], len(past)
    with TemporaryDirectory() as folder:
        updates = [
            update(number, *(play(one, one["rollout"], one["version"]) for one in entries))
            for number, entries in enumerate(past, start=1)
        ]
        made = journal(Path(folder), *updates)
        own = [play(one, number) for number, one in enumerate(group)]
        across = CrossContextReplay(k=99, ring=ring, max_staleness=age)
        by_task = across([own], made.past_rollouts, version=version, draw=make_draw())
        by_history = HistoryKeyedReplay(depth=2, max_rollouts=2, gamma=0.5)(
            [own], made.past_rollouts, version=version, draw=make_draw()
        )
        made.close()
    wanted = oracle.recallable([one["score"] for one in group], every, ring=ring, since=version - age)
    replayed = [(one.past.number, one.past.rollout) for one in by_task]
    assert sorted(replayed) == sorted((one["number"], one["rollout"]) for one in wanted)
    assert [number for number, _ in replayed] == sorted((number for number, _ in replayed), reverse=True)
    expected = oracle.replay_by_history(group, every, depth=2, max_replayed=2, gamma=0.5)
    assert [(one.past.number, one.past.rollout) for one in by_history] == expected
