"""Each method, in each of its settings, gives the credit of its oracle on random tables.

How equal. Credit divided by a deviation is held to 1e-9 of the largest credit of its task, credit in units of the
reward to 1e-9 of the task's largest return, also where rewards are 1e9 plus noise. This is fair because both sides
start from the same bits: the return-to-go is r_t + gamma R_{t+1} in that order, and other sums of these rewards are
exact. A method that loses digits to a common offset, or breaks a tie by summing in another order, fails.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

import groupwise
from groupwise import methods
from tests.effort import THOROUGH
from tests.oracles.clustered_hgpo import hgpo_by_clusters
from tests.oracles.history import hgpo
from tests.oracles.keep import mc_grpo_keep, ngrpo_keep
from tests.oracles.roles import is_near_a_rounding_tie
from tests.oracles.rows import Row, by_rollout, by_task, episode_returns, returns_to_go, steps_of
from tests.oracles.variants import DISCOUNTED, ORACLES, VARIANTS, WITH_CRITIC, Variant
from tests.strategies import EXTREME, MODERATE, UNIT, columns_of, random_rows, with_values

NUM_TABLES = 1000 if THOROUGH else 60
GAMMAS = (0.5, 1.0, 0.95)
LARGEST_VALUE = 4.0
"""Of what a critic says in these tables."""
SMALLEST_SCALE = 1e-6
"""Credit below this is compared absolutely; every scale of a default method holds an eps of at least this size."""

POOLS = {
    "any": MODERATE + EXTREME,
    # A softmax of returns of 1e12, or six decimals of them, is lost to rounding before any method can act.
    "moderate": MODERATE,
    "unit": UNIT,
    # MARS rounds to six decimals: a value half-way between two is rounded by its last bit, so tables with one
    # are left out (`tables`), and with them most multiples of 1/1024.
    "mars": MODERATE,
    # HGPO's release drops a level whose credit is exactly 0. Of 0.1, 0.025, 0.05, 0.1, 0, 0.025 the mean is
    # exactly 0.05, yet sums in float64 miss it by 7e-18, and the release too would keep the level. Rewards
    # whose means are exact leave no doubt; returns that repeat a constant such as 0.1 are left out.
    "exact mean": tuple(regime for regime in MODERATE + EXTREME if regime not in ("constant", "frozen")),
    "sentence": MODERATE + EXTREME,
    # NGRPO refuses returns above its best, 1 or more; tables that hold one are turned around zero (`tables`).
    "at most 1": MODERATE + EXTREME + UNIT,
}
POOL_OF = {
    "dgpo": "moderate",
    "mars": "mars",
    "a_grae": "unit",
    "after_polychromic": "unit",
    "ngrpo": "at most 1",
    "red_weight": "moderate",
    # Beside returns of 1e12, the values of a critic are lost to rounding.
    "ppo": "moderate",
    "turn_ppo": "moderate",
}


class Table(NamedTuple):
    """Rows for the oracle, the same as a step table for the method, and the size of the numbers of each task."""

    rows: list[Row]
    steps: groupwise.StepTable
    sizes: dict[object, float]


@functools.cache
def tables(pool: str) -> list[Table]:
    rng, values = random.Random(f"groupwise {pool}"), random.Random(f"values {pool}")
    # Comparing long texts pair by pair is slow, so the tables with sentences for states are smaller.
    shape = {"states": "sentence", "max_rows": 24} if pool == "sentence" else {}
    drawn: list[list[Row]] = []
    while len(drawn) < NUM_TABLES:
        rows = with_values(random_rows(rng, regimes=POOLS[pool], **shape), values)
        if pool == "at most 1" and max(episode_returns(steps_of(rows)).values()) > 1:
            rows = [
                row | {name: -abs(float(str(row[name]))) for name in ("reward", "outcome") if name in row}
                for row in rows
            ]
        if pool != "mars" or not any(is_near_a_rounding_tie(rows, gamma) for gamma in GAMMAS):
            drawn.append(rows)
    return [Table(rows, groupwise.StepTable.from_columns(**columns_of(rows)), largest_returns(rows)) for rows in drawn]


def pool_of(variant: Variant) -> str:
    if "similarity" in variant.hyper:
        return "sentence"
    if variant.method == "hgpo" and (variant.hyper.get("reference") or variant.hyper.get("skip_average")):
        return "exact mean"
    if variant.hyper.get("scale_by") == "state":  # where differences cancel, 1e-6 of 1e12 is lost in rounding
        return "moderate"
    return POOL_OF.get(variant.method, "any")


def settings_of(variant: Variant, number: int) -> dict[str, object]:
    """The variant's settings, and for methods that discount, a gamma that changes from table to table."""
    gamma = {"gamma": GAMMAS[number % len(GAMMAS)]} if variant.method in DISCOUNTED else {}
    return gamma | variant.hyper


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_method_equals_its_oracle_on_random_tables(variant: Variant) -> None:
    wrong: list[str] = []
    for number, table in enumerate(tables(pool_of(variant))):
        hyper = settings_of(variant, number)
        credit = getattr(methods, variant.method)(**hyper).advantage(table.steps)
        expected, compared = variant.oracle(table.rows, **hyper)
        allowed = tolerances(table, expected, variant)
        got = [float(value) for value in credit.values]
        for row, (value, wanted, bound) in enumerate(zip(got, expected, allowed, strict=True)):
            if not abs(value - wanted) <= bound:
                wrong.append(
                    f"table {number} row {row}: got {value!r}, oracle {wanted!r}, allowed {bound:.1e}; {hyper}"
                )
        if [bool(flag) for flag in credit.compared] != compared:
            wrong.append(f"table {number}: compared {list(credit.compared)}, oracle {compared}; {hyper}")
    assert not wrong, f"{len(wrong)} differences, the first of them:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("hyper", [{}, {"depth": 4, "alpha": 2.0}, {"scale": "none", "depth": 0}], ids=str)
def test_the_clustered_loop_equals_the_literal_reading_of_hgpo(hyper: dict[str, object]) -> None:
    """On ordinary rewards: the clustered loop subtracts a mean it has rounded, as such loops do."""
    variant = Variant("hgpo", hyper)
    for number, table in enumerate(tables("moderate")):
        settings = settings_of(variant, number)
        expected, compared = hgpo(table.rows, **settings)
        values, is_compared = hgpo_by_clusters(table.rows, **settings)
        allowed = tolerances(table, expected, variant)
        assert is_compared == compared
        far = [abs(v - e) > a for v, e, a in zip(values, expected, allowed, strict=True)]
        assert not any(far), f"table {number} row {far.index(True)}"


def test_mc_grpo_leaves_out_the_pivot_rollout_of_each_task() -> None:
    for table in tables("any"):
        assert [bool(flag) for flag in methods.mc_grpo().keep(table.steps)] == mc_grpo_keep(table.rows)


@pytest.mark.parametrize("pool", ["any", "unit"])
@pytest.mark.parametrize("best", [1.0, 0.25, 0.1, -1e100])
def test_ngrpo_leaves_out_the_tasks_that_are_solved_by_every_rollout(pool: str, best: float) -> None:
    for table in tables(pool):
        kept = methods.ngrpo(best=best).keep(table.steps)
        assert [bool(flag) for flag in kept] == ngrpo_keep(table.rows, best=best)


def test_every_method_has_an_oracle_and_every_oracle_is_run() -> None:
    assert set(methods.names()) == set(ORACLES) == {variant.method for variant in VARIANTS}


def test_the_tables_hold_what_they_promise() -> None:
    """Singletons, lone and missing states, gaps, ragged rollouts and extremes all occur in the pool of a run."""
    rows = [row for table in tables("any") for row in table.rows]
    assert any(row["state"] is None for row in rows)
    assert any(str(row["state"]).startswith("lone") for row in rows)
    assert any(row.get("well_formed") is False and row["accepted"] for row in rows)
    assert any(row.get("well_formed", True) and not row["accepted"] for row in rows)
    assert max(abs(float(str(row["reward"]))) for row in rows) == 1e100
    assert any(0 < abs(float(str(row["reward"]))) < 1e-11 for row in rows)
    assert len({len(table.rows) for table in tables("any")}) > 30
    paths = [path for table in tables("any") for path in by_rollout(steps_of(table.rows)).values()]
    assert any(path[-1].index >= len(path) for path in paths)
    sizes = [
        len({row["rollout"] for row in table.rows if row["task"] == table.rows[0]["task"]}) for table in tables("any")
    ]
    assert {1, 2, 7} <= set(sizes)


def tolerances(table: Table, expected: Sequence[float], variant: Variant) -> list[float]:
    """What each row may be off by; see the top of this file."""
    tasks = [None if variant.is_batch_wide else row["task"] for row in table.rows]
    largest: dict[object, float] = {}
    for task, row, value in zip(tasks, table.rows, expected, strict=True):
        own = LARGEST_VALUE if variant.method in WITH_CRITIC else 0.0
        size = max(table.sizes[row["task"]], own) if variant.is_value else max(abs(value), SMALLEST_SCALE)
        largest[task] = max(largest.get(task, 0.0), size)
    return [1e-9 * largest[task] for task in tasks]


def largest_returns(rows: list[Row]) -> dict[object, float]:
    """The largest reward or return of each task, in absolute value, or the default penalty where a step incurs it."""
    steps = steps_of(rows)
    returns, ahead = episode_returns(steps), returns_to_go(steps, 1.0)
    return {
        task: max(abs(v) for s in own for v in (s.reward, returns[s.who], ahead[s], 0.1 * s.is_malformed))
        for task, own in by_task(steps).items()
    }
