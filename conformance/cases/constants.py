"""Constant groups: nobody did better than anybody, so nobody gets credit."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import NOTICEABLE, SINGLE, Zero
from conformance.tables import join, rows, single_step, walk, with_columns

SHAPED = 8.57375
"""A shaped reward whose single-precision mean over 14 equal values is not the value itself."""

HALLWAY = join(
    *(walk(**{f"a{i}": [("door", 0), ("hall", 0), ("desk", 0), ("lamp", 10)]}) for i in range(8)),
)
"""Eight rollouts that take the same four steps to the same success."""

ALL_SIZES = single_step(**{f"n{n}": [0.37 * n + 0.013] * n for n in range(2, 65)})

TWO_STEPS_IN_TWO_ORDERS = rows(
    "task rollout step reward",
    *(("q", "up", t, r) for t, r in enumerate([0.1, 0.2, 0.3])),
    *(("q", "down", t, r) for t, r in enumerate([0.3, 0.2, 0.1])),
)

_R2 = "Constant groups give 0 for any constant and any size (requirement R2; NVIDIA-NeMo/RL#4158)"

CASES = [
    Case(
        name="fourteen-equal-shaped-rewards-get-zero",
        why=f"{_R2}; with a single-precision mean and std + 1e-6 this group gets +0.640.",
        method="grpo",
        columns=single_step(q=[SHAPED] * 14),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="eight-equal-rewards-of-seven-tenths-get-zero",
        why=f"{_R2}; 0.7 has no exact binary form.",
        method="grpo",
        columns=single_step(q=[0.7] * 8),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="eight-equal-negative-rewards-get-zero",
        why=f"{_R2}; penalties are constants too.",
        method="grpo",
        columns=single_step(q=[-2.6] * 8),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="all-correct-and-all-wrong-groups-get-zero",
        why="The plain 0/1 form of a constant group (numbers, Edges and GRPO, vectors T0 and TF).",
        method="grpo",
        columns=single_step(wrong=[0.0] * 8, correct=[1.0] * 8),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="a-constant-group-of-every-size-from-2-to-64-gets-zero",
        why=f"{_R2}; the rounding of a mean depends on the size of the group.",
        method="grpo",
        columns=ALL_SIZES,
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="a-constant-group-gets-zero-to-the-last-bit",
        why=f"{_R2}; we decide by equality of the values, others accept rounding noise below their eps.",
        method="grpo",
        columns=ALL_SIZES,
        expect=Zero(),
        kind="convention",
        trap=4,
    ),
    Case(
        name="returns-equal-up-to-rounding-get-no-credit",
        why="0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit, which must not be blown up (R2).",
        method="grpo",
        columns=TWO_STEPS_IN_TWO_ORDERS,
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="a-constant-group-gets-zero-without-a-deviation",
        why=f"{_R2}; with the mean alone only the rounding of the mean remains.",
        method="dr_grpo",
        columns=single_step(q=[SHAPED] * 14),
        expect=Zero(SINGLE),
        trap=4,
    ),
    Case(
        name="a-constant-group-gets-zero-without-a-deviation-to-the-last-bit",
        why=f"{_R2}; a filter that looks for credit == 0 needs the exact number, others let rounding stand.",
        method="dr_grpo",
        columns=single_step(q=[SHAPED] * 14),
        expect=Zero(),
        kind="convention",
        trap=4,
    ),
    Case(
        name="a-constant-group-gets-zero-when-each-is-left-out",
        why=f"{_R2}; the mean of the others is the same constant.",
        method="rloo",
        columns=single_step(q=[SHAPED] * 14),
        expect=Zero(SINGLE),
        trap=4,
    ),
    Case(
        name="a-batch-of-equal-returns-is-whitened-to-zero",
        why=f"{_R2}; whitening divides by sqrt(var + 1e-8), which turns rounding into signal.",
        method="reinforce_pp",
        columns=single_step(p=[SHAPED] * 7, q=[SHAPED] * 7),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="constant-groups-of-different-constants-are-whitened-to-zero",
        why=f"{_R2}; after the baseline every token is 0, so nothing is left to whiten.",
        method="reinforce_pp_baseline",
        columns=single_step(p=[SHAPED] * 14, q=[0.7] * 8),
        expect=Zero(NOTICEABLE),
        trap=4,
    ),
    Case(
        name="eight-identical-successes-get-zero-under-gigpo",
        why=f"{_R2}; discounted returns 10 * 0.95^k are no round numbers.",
        method="gigpo",
        columns=HALLWAY,
        expect=Zero(),
        trap=4,
    ),
    Case(
        name="eight-identical-successes-get-zero-under-hgpo",
        why=f"{_R2}; the released method divides rounding by std + 1e-6 here (survey of peers, trap 4).",
        method="hgpo",
        columns=HALLWAY,
        expect=Zero(),
        trap=4,
    ),
    Case(
        name="eight-identical-rollouts-get-zero-under-salt",
        why="Constant rewards leave no base credit, so merging edges leaves none either (numbers, SALT).",
        method="salt",
        columns=with_columns(HALLWAY, action=["go"] * 32),
        expect=Zero(),
        trap=4,
    ),
    Case(
        name="equal-step-rewards-in-one-state-get-zero",
        why=f"{_R2}; the group is the state, not the task (numbers, Step-GRPO).",
        method="step_grpo",
        columns=walk(**{f"a{i}": [("door", 0.7)] for i in range(8)}),
        expect=Zero(),
        trap=4,
    ),
    Case(
        name="equal-turn-rewards-of-one-role-get-zero",
        why="One distinct value only gives 0 (numbers, MARS).",
        method="mars",
        columns=single_step(q=[SHAPED] * 14),
        expect=Zero(),
        trap=4,
    ),
] + [
    Case(
        name=f"a-constant-group-gets-zero-under-{method.replace('_', '-')}",
        why=f"{_R2}; {source}.",
        method=method,
        columns=single_step(q=[constant] * 14, r=[1.0, 0.0]),
        expect=Zero(rows=range(14)),
        trap=4,
    )
    for method, constant, source in [
        ("mc_grpo", SHAPED, "std = 0 gives A = 0 (numbers, MC-GRPO)"),
        ("ngrpo", 1.0, "all at the best reward, as the virtual member is (numbers, NGRPO, vector TF)"),
        ("dgpo", 0.7, "zero-std groups have A = 0 (numbers, DGPO)"),
        ("a_grae", 0.7, "a modulator of GRPO keeps its zeros (numbers, A-GRAE)"),
        ("flow_grpo", SHAPED, "outcomes are compared as in GRPO (numbers, Flow-GRPO)"),
    ]
]
