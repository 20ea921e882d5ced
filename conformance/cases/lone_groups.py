"""Groups of one: nothing to compare with."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import ANY_EPS, DOUBLE, SINGLE, SIX_DECIMALS, Agrees, Values, Zero
from conformance.tables import rows, single_step, walk

PAIR_AND_LONE = single_step(p=[1.0, 0.0], q=[0.7])
_RAW = "verl, SkyRL and Trinity pass the raw reward, TRL refuses the set-up, we give 0 (R3; numbers, Edges)"

FORK = walk(A=[("door", 0), ("hall", 1)], B=[("door", 0), ("roof", 0)])
"""Two rollouts that share their first state and part ways."""

CASES = [
    Case(
        name="a-lone-rollout-gets-zero",
        why=f"{_RAW}; a raw reward is no comparison.",
        method="grpo",
        columns=PAIR_AND_LONE,
        # p: mean 0.5, sample std sqrt(0.5): +-0.7071.
        expect=Values([0.70711, -0.70711, 0.0], ANY_EPS),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-lone-rollout-keeps-its-reward-when-asked",
        why=f"{_RAW} unless alone='raw' is set.",
        method="grpo",
        options={"alone": "raw"},
        columns=PAIR_AND_LONE,
        expect=Values([0.70711, -0.70711, 0.7], ANY_EPS),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-lone-rollout-gets-zero-without-a-deviation",
        why=f"{_RAW}.",
        method="dr_grpo",
        columns=PAIR_AND_LONE,
        expect=Values([0.5, -0.5, 0.0], SINGLE),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-lone-rollout-has-no-others-to-average",
        why=f"{_RAW}; leave-one-out has an empty mean (numbers, RLOO: G = 1 gives 0).",
        method="rloo",
        columns=PAIR_AND_LONE,
        expect=Values([1.0, -1.0, 0.0], SINGLE),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-lone-rollout-leaves-other-groups-alone",
        why="Whatever a group of one gets, the other groups do not notice it (R1, R6).",
        method="grpo",
        columns=PAIR_AND_LONE,
        expect=Agrees(columns=single_step(p=[1.0, 0.0]), pairs=[(0, 0), (1, 1)], tolerance=SINGLE),
        trap=5,
    ),
    Case(
        name="a-lone-rollout-is-held-against-the-virtual-best",
        why="The release passes the raw reward for G = 1, we use the two-element virtual group (numbers, NGRPO).",
        method="ngrpo",
        columns=single_step(q=[0.0]),
        # {0, 1}: mean 0.5, sample std 0.707107: -0.5 / 0.707108.
        expect=Values([-0.707106], SIX_DECIMALS),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-lone-rollout-keeps-its-reward-in-released-ngrpo",
        why="reference=True reproduces the release: mean 0 and std 1 for G = 1 (numbers, NGRPO).",
        method="ngrpo",
        options={"reference": True},
        columns=single_step(q=[0.4]),
        expect=Values([0.4], SIX_DECIMALS),
        kind="convention",
        trap=5,
    ),
    Case(
        name="lone-rollouts-still-learn-from-the-batch",
        why="REINFORCE++ whitens over the batch and needs no group, so G = 1 has a signal (numbers, REINFORCE++).",
        method="reinforce_pp",
        columns=single_step(p=[1.0], q=[0.0]),
        # mean 0.5, sample variance 0.5: +-0.5 / sqrt(0.5).
        expect=Values([0.707107, -0.707107], SINGLE),
        trap=5,
    ),
    Case(
        name="a-batch-of-one-token-gets-zero",
        why="One token has no variance; others raise here, we give 0 (numbers, REINFORCE++: at least 2 tokens).",
        method="reinforce_pp",
        columns=single_step(p=[1.0]),
        expect=Zero(),
        kind="convention",
        trap=5,
    ),
    Case(
        name="a-state-seen-once-gets-zero-under-hgpo",
        why="Clusters with one member are skipped, and no level left gives 0 (numbers, HGPO released, points 2 and 5).",
        method="hgpo",
        columns=FORK,
        expect=Zero(rows=[1, 3]),
        trap=5,
    ),
    Case(
        name="all-distinct-states-get-zero-under-hgpo",
        why="With no state in common there is nothing to compare (numbers, Relations).",
        method="hgpo",
        columns=walk(A=[("a", 0), ("b", 3)], B=[("c", 1), ("d", 0)], C=[("e", 7)]),
        expect=Zero(),
        trap=5,
    ),
    Case(
        name="a-state-seen-once-keeps-the-episode-part-under-gigpo",
        why="One member of a step group gives 0, the episode term stays (numbers, GiGPO released and Routes, step C1).",
        method="gigpo",
        options={"gamma": 1.0, "scale": "none"},
        columns=FORK,
        # Episode: 1 - 0.5 and 0 - 0.5. door: returns 1 and 0, so +-0.5 more. hall and roof: seen once.
        expect=Values([1.0, 0.5, -1.0, -0.5], DOUBLE),
        trap=5,
    ),
    Case(
        name="a-state-seen-once-gets-zero-under-step-grpo",
        why="The group of a step is its prompt; one sample of it is no group (numbers, Step-GRPO and Edges).",
        method="step_grpo",
        columns=FORK,
        expect=Zero(rows=[1, 3]),
        trap=5,
    ),
    Case(
        name="a-role-with-one-turn-gets-zero",
        why="One distinct value only gives 0 (numbers, MARS).",
        method="mars",
        columns=rows(
            "task rollout step reward role",
            ("q", "A", 0, 1.0, "buyer"),
            ("q", "B", 0, 0.0, "buyer"),
            ("q", "A", 1, 9.0, "seller"),
        ),
        # buyer: mean 0.5. seller: its own mean.
        expect=Values([0.5, -0.5, 0.0], DOUBLE),
        trap=5,
    ),
]
