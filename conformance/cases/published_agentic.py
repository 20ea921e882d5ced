"""Published numbers of HGPO, GiGPO, SALT, Flow-GRPO, MARS and Step-GRPO (see conformance/numbers.md)."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import DOUBLE, FOUR_DECIMALS, Agrees, Values
from conformance.tables import make_finished, rows, single_step, walk, with_columns

THREE_ROUTES = walk(
    A=[("s0", 0), ("s1", 0), ("s2", 10)],
    B=[("s0", 0), ("s1", 0)],
    C=[("s0", 0), ("s3", 0), ("s1", 0), ("s2", 10)],
)
"""The data of numbers, Routes. With gamma 0.9 the returns are 8.1, 9, 10; 0, 0; 7.29, 8.1, 9, 10."""

SHARED_EDGES = rows(
    "task rollout step state action reward",
    *(("q", "T1", t, s, a, r) for t, (s, a, r) in enumerate([("s0", "a", 0), ("s1", "b", 0), ("s2", "c", 1)])),
    *(("q", "T2", t, s, a, r) for t, (s, a, r) in enumerate([("s0", "a", 0), ("s1", "b", 0), ("s2", "d", 1)])),
    *(("q", "T3", t, s, a, r) for t, (s, a, r) in enumerate([("s0", "a", 0), ("s1", "e", 0)])),
    *(("q", "T4", t, s, a, r) for t, (s, a, r) in enumerate([("s0", "a", 0), ("s1", "b", 0), ("s2", "f", 0)])),
)
"""The vector of numbers, SALT: rewards 1, 1, 0, 0; edge a in all four, b in three, the others in one."""

TURNS = rows(
    "task rollout step reward",
    ("q", "A", 0, 0.2),
    ("q", "A", 1, 0.8),
    ("q", "B", 0, -0.5),
    ("q", "B", 1, -0.5),
)
"""Rewards of mean 0 whose returns are 1.0, 0.8 and -1.0, -0.5 (numbers, MARS)."""

CASES = [
    Case(
        name="three-routes-under-hgpo-with-z-scores",
        why="Vector of numbers, Routes, paper weights, population deviation.",
        method="hgpo",
        options={"gamma": 0.9},
        columns=THREE_ROUTES,
        # A1: (1 * 0.7071 + 2 * 1.0000) / 3 = 0.9024; B1: (1 * -1.4142 + 2 * -1) / 3; C2 has level 0 only.
        expect=Values([0.8154, 0.9024, 0, -1.4084, -1.1381, 0.5930, 0, 0.7071, 0], FOUR_DECIMALS),
        trap=11,
    ),
    Case(
        name="three-routes-under-hgpo-with-the-mean-alone",
        why="Vector of numbers, Routes, paper weights, mean only.",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none"},
        columns=THREE_ROUTES,
        # A1: (1 * 3.0 + 2 * 4.5) / 3 = 4; B1: (-6 + 2 * -4.5) / 3 = -5.
        expect=Values([2.97, 4.0, 0, -5.13, -5.0, 2.16, 0, 3.0, 0], FOUR_DECIMALS),
        trap=11,
    ),
    Case(
        name="three-routes-under-hgpo-with-the-released-weights",
        why="numbers, Routes: the release weighs level k with (k + 2)^alpha (numbers, HGPO released, point 3).",
        method="hgpo",
        options={"gamma": 0.9, "reference": True},
        columns=THREE_ROUTES,
        # A1: (2 * 0.7071 + 3 * 1.0) / 5 = 0.8828; B1: (2 * -1.4142 + 3 * -1.0) / 5 = -1.1657.
        expect=Values([0.8154, 0.8828, 0, -1.4084, -1.1657, 0.5930, 0, 0.7071, 0], FOUR_DECIMALS),
        kind="convention",
        trap=11,
    ),
    Case(
        name="three-routes-under-hgpo-with-the-released-weights-and-the-mean-alone",
        why="Vector of numbers, Routes, released weights, mean only.",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none", "reference": True},
        columns=THREE_ROUTES,
        # A1: (2 * 3 + 3 * 4.5) / 5 = 3.9; B1: (2 * -6 + 3 * -4.5) / 5 = -5.1.
        expect=Values([2.97, 3.9, 0, -5.13, -5.1, 2.16, 0, 3.0, 0], FOUR_DECIMALS),
        kind="convention",
        trap=11,
    ),
    Case(
        name="three-routes-under-hgpo-with-the-episode-as-one-more-entry",
        why="The optional base group weighs 1 and level k then (k + 2)^alpha (numbers, HGPO released, points 3 and 6).",
        method="hgpo",
        options={"gamma": 0.9, "episode": True},
        columns=THREE_ROUTES,
        # Episode 0.57735 (A, C) and -1.15470 (B). A1: (0.57735 + 2 * 0.70711 + 3 * 1) / 6; A2: (0.57735 + 0 + 0) / 6
        # because constant levels stay as zeros; C1: the episode alone.
        expect=Values(
            [0.73603, 0.83193, 0.09623, -1.32382, -1.16385, 0.58778, 0.57735, 0.66385, 0.09623], FOUR_DECIMALS
        ),
        kind="convention",
        trap=11,
    ),
    Case(
        name="three-routes-under-gigpo-with-z-scores",
        why="Vector of numbers, Routes: episode statistics over rollouts, sample deviation.",
        method="gigpo",
        options={"gamma": 0.9},
        columns=THREE_ROUTES,
        expect=Values([1.2431, 1.1547, 0.5774, -2.3046, -2.3094, 1.0615, 0.5774, 1.1547, 0.5774], FOUR_DECIMALS),
        trap=6,
    ),
    Case(
        name="three-routes-under-gigpo-with-the-mean-alone",
        why="Vector of numbers, Routes with F_norm = 1: episode mean 6.6667.",
        method="gigpo",
        options={"gamma": 0.9, "scale": "none"},
        columns=THREE_ROUTES,
        # A, C: 3.33333 + (2.97, 3, 0 | 2.16, 0, 3, 0); B: -6.66667 + (-5.13, -6).
        expect=Values([6.30333, 6.33333, 3.33333, -11.79667, -12.66667, 5.49333, 3.33333, 6.33333, 3.33333], 1e-5),
        trap=6,
    ),
    Case(
        name="three-routes-under-released-gigpo-count-a-rollout-once-per-step",
        why="The release takes the episode's over rows: mean 7.7778, std 4.4096 (numbers, GiGPO released and Routes).",
        method="gigpo",
        options={"gamma": 0.9, "step_weight": 0.0, "reference": True},
        columns=THREE_ROUTES,
        expect=Values([0.5040, 0.5040, 0.5040, -1.7638, -1.7638, 0.5040, 0.5040, 0.5040, 0.5040], FOUR_DECIMALS),
        kind="convention",
        trap=7,
    ),
    Case(
        name="three-routes-under-gagpo-blame-the-step-that-failed-and-not-the-one-before",
        why="Vector of numbers, GAGPO at lambda 0: 0.9 x 6 - 5.13 = 0.27 for A's and B's first steps alike.",
        method="gagpo",
        options={"gamma": 0.9, "lam": 0.0, "scale_by": "none"},
        columns=THREE_ROUTES,
        expect=Values([0.27, 3, 0, 0.27, -6, 2.16, -2.7, 3, 0], 1e-9),
    ),
    Case(
        name="three-routes-under-gagpo-at-lambda-one-are-the-state-term",
        why="Vector of numbers, GAGPO: values on the way cancel, R less the state's mean is left.",
        method="gagpo",
        options={"gamma": 0.9, "lam": 1.0, "scale_by": "none"},
        columns=THREE_ROUTES,
        expect=Values([2.97, 3, 0, -5.13, -6, 2.16, 0, 3, 0], 1e-9),
    ),
    Case(
        name="three-routes-under-hgae-value-a-state-by-its-history",
        why="Vector of numbers, GAGPO: (s0, s1) is worth (6 + 2 x 4.5) / 3 = 5, s0 5.13; 0.9 x 5 - 5.13 = -0.63.",
        method="hgae",
        options={"gamma": 0.9, "lam": 0.0, "scale_by": "none"},
        columns=THREE_ROUTES,
        expect=Values([-0.63, 4, 0, -0.63, -5, 2.16, -2.7, 3, 0], 1e-9),
    ),
    Case(
        name="shared-edges-are-tempered-and-lone-edges-keep-their-credit",
        why="Vector of numbers, SALT.",
        method="salt",
        columns=SHARED_EDGES,
        # a: the mean of all four; b: (0.8660 + 0.8660 - 0.8660) / 3 = 0.2887.
        expect=Values([0, 0.2887, 0.8660, 0, 0.2887, 0.8660, 0, -0.8660, 0, 0.2887, -0.8660], FOUR_DECIMALS),
    ),
    Case(
        name="two-turns-and-four-turns-count-as-one-rollout-each",
        why="Vector of numbers, Flow-GRPO, the paper's form: statistics over rollouts.",
        method="flow_grpo",
        columns=make_finished({("q", "A"): (2, 1.0), ("q", "B"): (4, 0.0)}),
        expect=Values([0.7071] * 2 + [-0.7071] * 4, FOUR_DECIMALS),
        trap=7,
    ),
    Case(
        name="two-turns-and-four-turns-count-as-six-rows-in-released-flow-grpo",
        why="The release averages over turns: mean 0.3333, std 0.5164 (numbers, Flow-GRPO).",
        method="flow_grpo",
        options={"reference": True},
        columns=make_finished({("q", "A"): (2, 1.0), ("q", "B"): (4, 0.0)}),
        expect=Values([1.2910] * 2 + [-0.6455] * 4, FOUR_DECIMALS),
        kind="convention",
        trap=7,
    ),
    Case(
        name="turn-returns-are-centred-on-their-distinct-values",
        why="Vector of numbers, MARS: the mean of 1, 0.8, -1, -0.5 is 0.075.",
        method="mars",
        columns=TURNS,
        expect=Values([0.925, 0.725, -1.075, -0.575], 1e-6),
    ),
    Case(
        name="step-rewards-are-compared-in-their-own-state",
        why="Vector of numbers, Step-GRPO.",
        method="step_grpo",
        columns=with_columns(single_step(q=[0.95, 0.40, 0.80, 0.0]), state=["ask"] * 4),
        expect=Values([0.9661, -0.3220, 0.6148, -1.2589], FOUR_DECIMALS),
    ),
    Case(
        name="hgpo-without-history-is-the-state-term-of-gigpo",
        why="HGPO with K = 0 equals GiGPO's A^S up to the deviation (numbers, Relations); outcomes are all equal.",
        method="hgpo",
        options={"depth": 0, "gamma": 0.9, "scale": "none"},
        columns=with_columns(THREE_ROUTES, outcome=[1.0] * 9),
        expect=Agrees(method="gigpo", options={"gamma": 0.9, "scale": "none"}, tolerance=DOUBLE),
        trap=11,
    ),
]
