"""Published numbers of the common base: GRPO, Dr. GRPO, RLOO, REINFORCE++ (see conformance/numbers.md)."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import ANY_EPS, DOUBLE, SINGLE, SIX_DECIMALS, Agrees, Values
from conformance.tables import single_step, with_columns

T1 = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
T2 = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]

FOUR_LENGTHS = with_columns(single_step(p=[1.0, 0.0], q=[1.0, 1.0]), tokens=[2, 4, 1, 3])


def by_reward(group: list[float], correct: float, wrong: float) -> list[float]:
    """The credit of a 0/1 group."""
    return [correct if reward else wrong for reward in group]


CASES = [
    Case(
        name="two-of-eight-correct-gives-the-published-z-scores",
        why="Vector T1 (numbers, GRPO), to the precision that any published eps keeps.",
        method="grpo",
        columns=single_step(q=T1),
        # mean 0.25, sample std 0.462910: 0.75 / 0.462911 and -0.25 / 0.462911.
        expect=Values(by_reward(T1, 1.620182, -0.540061), ANY_EPS),
        trap=6,
    ),
    Case(
        name="six-of-eight-correct-gives-the-published-z-scores",
        why="Vector T2 (numbers, GRPO): the mirror image of T1.",
        method="grpo",
        columns=single_step(q=T2),
        expect=Values(by_reward(T2, 0.540061, -1.620182), ANY_EPS),
        trap=6,
    ),
    Case(
        name="the-deviation-is-that-of-a-sample",
        why="[1,0,0,1] gives +-0.8660 with n - 1 and +-1.0000 with n (numbers, GRPO); verl and TRL divide by n - 1.",
        method="grpo",
        columns=single_step(q=[1.0, 0.0, 0.0, 1.0]),
        expect=Values([0.866024, -0.866024, -0.866024, 0.866024], ANY_EPS),
        trap=6,
    ),
    Case(
        name="eps-of-one-millionth-is-added-to-the-deviation",
        why="verl adds 1e-6 and TRL 1e-4 (numbers, Notation); T1 to six decimals.",
        method="grpo",
        options={"eps": 1e-6, "ddof": 1},
        columns=single_step(q=T1),
        expect=Values(by_reward(T1, 1.620182, -0.540061), 2e-6),
        kind="convention",
        trap=6,
    ),
    Case(
        name="eps-of-one-ten-thousandth-is-added-to-the-deviation",
        why="TRL adds 1e-4, verl 1e-6 (numbers, GRPO): T1 with eps 1e-4.",
        method="grpo",
        options={"eps": 1e-4, "ddof": 1},
        columns=single_step(q=T1),
        # 0.75 / (0.462910 + 0.0001).
        expect=Values(by_reward(T1, 1.619835, -0.539945), 2e-6),
        kind="convention",
        trap=6,
    ),
    Case(
        name="a-population-deviation-can-be-asked-for",
        why="Dividing by n gives T1 as 1.732047 and -0.577349 (numbers, GRPO); AReaL offers both.",
        method="grpo",
        options={"eps": 1e-6, "ddof": 0},
        columns=single_step(q=T1),
        # population std sqrt(0.1875) = 0.433013.
        expect=Values(by_reward(T1, 1.732047, -0.577349), SIX_DECIMALS),
        kind="convention",
        trap=6,
    ),
    Case(
        name="eps-damps-a-spread-of-its-own-size",
        why="Rewards 0 and 2e-6 have std 1.414e-6, so eps 1e-6 counts; others give other credit (numbers, Notation).",
        method="grpo",
        options={"eps": 1e-6, "ddof": 1},
        columns=single_step(q=[0.0, 2e-6]),
        # 1e-6 / (1.414214e-6 + 1e-6) = 0.414214.
        expect=Values([-0.414214, 0.414214], SIX_DECIMALS),
        kind="convention",
        trap=4,
    ),
    Case(
        name="two-of-eight-correct-without-a-deviation",
        why="Vector T1 of Dr. GRPO (numbers, Dr. GRPO).",
        method="dr_grpo",
        columns=single_step(q=T1),
        expect=Values(by_reward(T1, 0.75, -0.25), SINGLE),
        trap=6,
    ),
    Case(
        name="two-of-eight-correct-with-each-left-out",
        why="Vector T1 of RLOO (numbers, RLOO).",
        method="rloo",
        columns=single_step(q=T1),
        # correct: 1 - 1/7; wrong: 0 - 2/7.
        expect=Values(by_reward(T1, 0.857143, -0.285714), SINGLE),
    ),
    Case(
        name="leaving-one-out-is-the-centred-reward-times-n-over-n-minus-one",
        why="RLOO = n/(n-1) x Dr. GRPO by algebra (numbers, RLOO).",
        method="rloo",
        columns=single_step(q=[0.3, 1.7, -0.4, 2.2, 0.9]),
        expect=Agrees(method="dr_grpo", factor=5 / 4, tolerance=SINGLE),
    ),
    Case(
        name="whitening-counts-every-token-of-the-batch",
        why="Vector of REINFORCE++ with lengths 2, 4, 1, 3 (numbers, REINFORCE++).",
        method="reinforce_pp",
        columns=FOUR_LENGTHS,
        # tokens: six of value 1, four of value 0: mean 0.6, variance 10/9 * 0.24 = 0.266667.
        expect=Values([0.774597, -1.161895, 0.774597, 0.774597], SINGLE),
    ),
    Case(
        name="whitening-comes-after-the-group-baseline",
        why="Vector of REINFORCE++-baseline (numbers, REINFORCE++): the all-correct group is shifted with the batch.",
        method="reinforce_pp_baseline",
        columns=FOUR_LENGTHS,
        # values 0.5, -0.5, 0, 0: token mean (1 - 2) / 10 = -0.1, variance 0.155556.
        expect=Values([1.521278, -1.014185, 0.253546, 0.253546], SINGLE),
    ),
    Case(
        name="credit-without-a-deviation-scales-with-the-reward",
        why="r - mean is linear: ten times the reward gives ten times the credit.",
        method="dr_grpo",
        columns=single_step(q=[3.0, 17.0, -4.0, 22.0]),
        expect=Agrees(columns=single_step(q=[0.3, 1.7, -0.4, 2.2]), factor=10.0, tolerance=SINGLE),
    ),
    Case(
        name="a-z-score-does-not-scale-with-the-reward",
        why="(r - mean) / std is free of the unit once eps is small against the spread (numbers, GRPO).",
        method="grpo",
        columns=single_step(q=[1000.0 * reward for reward in T1]),
        expect=Values(by_reward(T1, 1.620185, -0.540062), ANY_EPS),
    ),
    Case(
        name="gigpo-without-its-step-term-is-grpo",
        why="A = A_E + omega A_S with omega = 0 (numbers, GiGPO).",
        method="gigpo",
        options={"step_weight": 0.0},
        columns=with_columns(single_step(q=T1), state=["start"] * 8),
        expect=Agrees(method="grpo", options={}, tolerance=DOUBLE),
    ),
]
