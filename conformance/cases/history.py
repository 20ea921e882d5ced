"""History levels: which steps count as having the same past, and how levels are blended."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_agentic import THREE_ROUTES
from conformance.expectations import DOUBLE, FOUR_DECIMALS, SIX_DECIMALS, Agrees, Values
from conformance.tables import rows, walk, with_columns

SHARED_PAST = walk(
    A=[("a", 0), ("b", 0), ("c", 1.0)],
    B=[("a", 0), ("b", 0), ("c", 0.0)],
    C=[("x", 0), ("b", 0), ("c", 0.5)],
    D=[("y", 0), ("z", 0), ("c", 0.1)],
)
"""State c is reached by four rollouts, three of them through b, two through a and b."""

CONSTANT_LEVEL = walk(
    A=[("p", 0), ("s", 1)],
    B=[("p", 0), ("s", 1)],
    C=[("q", 0), ("s", 0)],
)
"""At s the returns 1, 1, 0 differ; among those who came through p they are all equal."""

PLAIN = {"gamma": 1.0, "scale": "none"}

CASES = [
    Case(
        name="each-level-asks-for-one-more-equal-state",
        why="C_k = (s_{t-k}, ..., s_t), nested groups (numbers, HGPO).",
        method="hgpo",
        options=PLAIN,
        columns=SHARED_PAST,
        # c: level 0 over 1, 0, 0.5, 0.1: mean 0.4; level 1 over A, B, C: mean 0.5; level 2 over A, B: mean 0.5.
        # A: (0.6 + 2 * 0.5 + 3 * 0.5) / 6; B: (-0.4 - 1 - 1.5) / 6; C: (0.1 + 2 * 0) / 3; D: -0.3.
        # b: A 0.5, B -0.5 on both levels, C 0. a: +-0.5. x, y, z are seen once.
        expect=Values([0.5, 0.5, 0.516667, -0.5, -0.5, -0.483333, 0, 0, 0.033333, 0, 0, -0.3], SIX_DECIMALS),
        trap=11,
    ),
    Case(
        name="depth-bounds-the-levels",
        why="Levels run from 0 to K (numbers, HGPO); here K = 1.",
        method="hgpo",
        options={**PLAIN, "depth": 1},
        columns=SHARED_PAST,
        # A at c: (0.6 + 2 * 0.5) / 3; B: (-0.4 - 1) / 3.
        expect=Values([0.533333, -0.466667, 0.033333, -0.3], SIX_DECIMALS, rows=[2, 5, 8, 11]),
        trap=11,
    ),
    Case(
        name="alpha-zero-weighs-all-levels-alike",
        why="w_k = (k + 1)^alpha (numbers, HGPO) on the numbers of Routes.",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none", "alpha": 0.0},
        columns=THREE_ROUTES,
        # A1: (3 + 4.5) / 2; B1: (-6 - 4.5) / 2.
        expect=Values([2.97, 3.75, 0, -5.13, -5.25, 2.16, 0, 3.0, 0], FOUR_DECIMALS),
        trap=11,
    ),
    Case(
        name="alpha-two-leans-to-the-deeper-level",
        why="w_k = (k + 1)^alpha (numbers, HGPO) on the numbers of Routes.",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none", "alpha": 2.0},
        columns=THREE_ROUTES,
        # A1: (3 + 4 * 4.5) / 5; B1: (-6 - 4 * 4.5) / 5.
        expect=Values([2.97, 4.2, 0, -5.13, -4.8, 2.16, 0, 3.0, 0], FOUR_DECIMALS),
        trap=11,
    ),
    Case(
        name="a-level-of-equal-returns-counts-as-zero",
        why="Average is not absent: the paper keeps the level, the release drops it (numbers, HGPO released, point 4).",
        method="hgpo",
        options=PLAIN,
        columns=CONSTANT_LEVEL,
        # A at s: (1 * 1/3 + 2 * 0) / 3 = 1/9; C has level 0 only: -2/3.
        expect=Values([0, 0.111111, 0, 0.111111, 0, -0.666667], SIX_DECIMALS),
        kind="convention",
        trap=11,
    ),
    Case(
        name="a-level-of-equal-returns-is-dropped-in-released-hgpo",
        why="The release drops entries that are exactly 0 and renormalises (numbers, HGPO released, point 4).",
        method="hgpo",
        options={**PLAIN, "reference": True},
        columns=CONSTANT_LEVEL,
        # A at s: level 0 alone, 2 * 1/3 / (2 + 1e-6).
        expect=Values([0, 0.333333, 0, 0.333333, 0, -0.666667], SIX_DECIMALS),
        kind="convention",
        trap=11,
    ),
    Case(
        name="repeat-visits-of-one-rollout-are-members",
        why="Any time index, also of the same rollout (numbers, HGPO); one could count each rollout once.",
        method="hgpo",
        options={"gamma": 0.5, "scale": "none", "depth": 0},
        columns=walk(A=[("s", 0), ("s", 1)], B=[("s", 0)]),
        # returns 0.5, 1 and 0: mean 0.5.
        expect=Values([0.0, 0.5, -0.5], DOUBLE),
        kind="convention",
        trap=11,
    ),
    Case(
        name="actions-are-no-part-of-the-history",
        why="Levels compare states only (numbers, HGPO).",
        method="hgpo",
        columns=with_columns(SHARED_PAST, action=[f"act {i}" for i in range(12)]),
        expect=Agrees(columns=SHARED_PAST, tolerance=DOUBLE),
        trap=11,
    ),
    Case(
        name="a-level-of-two-has-z-scores-of-one",
        why="The method's deviation divides by n, GiGPO's by n - 1 (numbers, HGPO released, point 10).",
        method="hgpo",
        options={"gamma": 1.0},
        columns=walk(A=[("s", 1)], B=[("s", 0)]),
        # mean 0.5, population std 0.5: 0.5 / 0.500001.
        expect=Values([0.999998, -0.999998], SIX_DECIMALS),
        kind="convention",
        trap=6,
    ),
    Case(
        name="a-missing-step-breaks-the-history",
        why="Level k needs the k steps just before, by index; rows with a gap between them are no neighbours (R1).",
        method="hgpo",
        options=PLAIN,
        columns=rows(
            "task rollout step state reward",
            ("q", "A", 0, "p", 0.0),
            ("q", "A", 2, "s", 1.0),
            ("q", "B", 0, "p", 0.0),
            ("q", "B", 1, "s", 0.0),
            ("q", "C", 0, "r", 0.0),
            ("q", "C", 1, "s", 0.8),
        ),
        # s: level 0 only, mean 0.6. Row order would give A a level 1 with B: (0.4 + 2 * 0.5) / 3.
        expect=Values([0.5, 0.4, -0.5, -0.6, 0.0, 0.2], DOUBLE),
        trap=11,
    ),
    Case(
        name="a-return-reaches-over-a-missing-step",
        why="The return-to-go runs over the recorded steps in order of their index (numbers, Notation).",
        method="hgpo",
        options={"gamma": 0.5, "scale": "none", "depth": 0},
        columns=rows(
            "task rollout step state reward",
            ("q", "A", 7, "t", 8.0),
            ("q", "A", 3, "s", 2.0),
            ("q", "B", 0, "s", 0.0),
        ),
        # A at s: 2 + 0.5 * 8 = 6; B: 0.
        expect=Values([0.0, 3.0, -3.0], DOUBLE),
        kind="convention",
    ),
]
