"""Magnitudes: what single precision loses, and what must stay finite."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_episode import T1, by_reward
from conformance.expectations import ANY_EPS, DOUBLE, NOTICEABLE, SINGLE, Values, Zero
from conformance.tables import single_step, walk

_F64 = "Our statistics are in double precision, those of most trainers in single"

CASES = [
    Case(
        name="a-thousand-added-to-every-reward-changes-nothing",
        why="Adding a constant to a group leaves its z-scores (numbers, Relations).",
        method="grpo",
        columns=single_step(q=[1000.0 + reward for reward in T1]),
        expect=Values(by_reward(T1, 1.620182, -0.540061), ANY_EPS),
        trap=23,
    ),
    Case(
        name="ten-million-added-to-every-reward-changes-nothing",
        why=f"{_F64}, where the mean of 1e7 + 0.25 is 1e7 (numbers, Relations).",
        method="grpo",
        columns=single_step(q=[1e7 + reward for reward in T1]),
        expect=Values(by_reward(T1, 1.620182, -0.540061), ANY_EPS),
        kind="convention",
        trap=23,
    ),
    Case(
        name="a-hundredth-on-top-of-a-million-is-seen",
        why=f"{_F64}, where 1000000.01 is 1000000.",
        method="dr_grpo",
        columns=single_step(q=[1e6, 1e6 + 0.01]),
        expect=Values([-0.005, 0.005], 1e-4),
        kind="convention",
        trap=23,
    ),
    Case(
        name="rewards-that-agree-in-half-precision-stay-apart",
        why="bfloat16 cannot tell 0.3 from 0.3001 (R2; OpenRLHF casts up for this reason).",
        method="dr_grpo",
        columns=single_step(q=[0.3, 0.3001]),
        expect=Values([-5e-5, 5e-5], 1e-6),
        trap=23,
    ),
    Case(
        name="rewards-of-1e100-have-z-scores",
        why="Rewards up to 1e100 are our stated range; single precision ends at 3.4e38.",
        method="grpo",
        columns=single_step(q=[1e100, 0.0, 0.0, 1e100]),
        expect=Values([0.866025, -0.866025, -0.866025, 0.866025], SINGLE),
        kind="convention",
        trap=23,
    ),
    Case(
        name="rewards-of-opposite-1e100-do-not-overflow",
        why="Rewards up to 1e100 are our stated range; their difference is finite.",
        method="rloo",
        columns=single_step(q=[1e100, -1e100]),
        expect=Values([2e100, -2e100], DOUBLE),
        kind="convention",
        trap=23,
    ),
    Case(
        name="rewards-of-1e100-have-state-credit",
        why="Rewards up to 1e100 are our stated range; squares of returns stay below 1e308.",
        method="gigpo",
        options={"gamma": 1.0},
        columns=walk(A=[("s", 1e100)], B=[("s", -1e100)]),
        # +-0.7071 from the episode and as much from the state.
        expect=Values([1.414214, -1.414214], SINGLE),
        kind="convention",
        trap=23,
    ),
    Case(
        name="a-spread-of-1e-300-gives-nothing-and-no-nan",
        why="Its square underflows to 0; the credit is then 0 / eps, never 0 / 0 (R2).",
        method="grpo",
        columns=single_step(q=[0.0, 1e-300]),
        expect=Zero(NOTICEABLE),
        trap=23,
    ),
    Case(
        name="zero-and-minus-zero-are-equal",
        why="A constant group by value (R2): 0.0 == -0.0.",
        method="grpo",
        columns=single_step(q=[0.0, -0.0, 0.0, -0.0]),
        expect=Zero(),
        trap=4,
    ),
]
