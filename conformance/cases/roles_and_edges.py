"""Roles and edges: who plays, and which steps are one and the same step of a graph."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_agentic import SHARED_EDGES, TURNS
from conformance.expectations import DOUBLE, FOUR_DECIMALS, SIX_DECIMALS, Agrees, Values
from conformance.tables import rows, single_step, with_columns

EDGE_COLUMNS = "task rollout step state action reward"

DETOUR = rows(
    EDGE_COLUMNS,
    ("q", "A", 0, "x", "look", 0.0),
    ("q", "A", 1, "s", "take", 1.0),
    ("q", "B", 0, "y", "look", 0.0),
    ("q", "B", 1, "s", "take", 0.0),
)
"""Two rollouts that take the same last step from different pasts."""

LOOP = rows(
    EDGE_COLUMNS,
    ("q", "A", 0, "s", "wait", 0.0),
    ("q", "A", 1, "s", "wait", 0.0),
    ("q", "A", 2, "s", "open", 1.0),
    ("q", "B", 0, "s", "wait", 0.0),
    ("q", "B", 1, "s", "shut", 0.0),
)
"""Edge (s, wait, s) is walked twice by A and once by B."""

CASES = [
    Case(
        name="each-role-is-centred-on-its-own-turns",
        why="Players have different reward distributions (numbers, MARS).",
        method="mars",
        columns=rows(
            "task rollout step reward role",
            ("q", "A", 0, 1.0, "buyer"),
            ("q", "A", 1, 10.0, "seller"),
            ("q", "B", 0, 0.0, "buyer"),
            ("q", "B", 1, 30.0, "seller"),
        ),
        # buyer: mean 0.5; seller: mean 20; returns run within a role.
        expect=Values([0.5, -10.0, -0.5, 10.0], DOUBLE),
    ),
    Case(
        name="rewards-are-centred-game-by-game-and-credit-over-all-games",
        why="A player's turn returns of all games are normalised together (numbers, MARS, step 3).",
        method="mars",
        columns=with_columns(single_step(chess=[1.0, 0.0, 0.0], poker=[5.0, 1.0]), role=["white"] * 5),
        # chess: mean 1/3, so 2/3, -1/3, -1/3; poker: mean 3, so 2, -2; the four distinct values have mean 1/12.
        expect=Values([7 / 12, -5 / 12, -5 / 12, 23 / 12, -25 / 12], 1e-6),
    ),
    Case(
        name="equal-turn-returns-count-once",
        why="The mean is over distinct values, so repeats do not pull it (numbers, MARS).",
        method="mars",
        columns=single_step(q=[3.0, 3.0, 3.0, 0.0]),
        # centred on 2.25: 0.75 x3 and -2.25; distinct mean -0.75.
        expect=Values([1.5, 1.5, 1.5, -1.5], DOUBLE),
    ),
    Case(
        name="turn-returns-that-differ-by-rounding-are-one-value",
        why="Values are rounded to 1e-6 before they count as distinct, the release compares floats (numbers, MARS).",
        method="mars",
        columns=single_step(q=[0.3, 0.1 + 0.2, 0.3, 0.0]),
        # centred on 0.225: 0.075 x3 and -0.225; two distinct values, their mean -0.075.
        expect=Values([0.15, 0.15, 0.15, -0.15], 1e-6),
        kind="convention",
    ),
    Case(
        name="turn-credit-can-be-scaled-by-the-spread-of-distinct-values",
        why="Mode mean_std divides by their deviation + 1e-6 (numbers, MARS).",
        method="mars",
        options={"scale": "std"},
        columns=TURNS,
        # distinct 1, 0.8, -1, -0.5: mean 0.075, sample std 0.977667.
        expect=Values([0.946129, 0.741560, -1.099555, -0.588134], SIX_DECIMALS),
    ),
    Case(
        name="merging-is-off-when-the-past-differs",
        why="With a window of one previous state the last steps are different edges (numbers, SALT).",
        method="salt",
        columns=DETOUR,
        expect=Values([0.7071, 0.7071, -0.7071, -0.7071], FOUR_DECIMALS),
    ),
    Case(
        name="merging-by-the-current-state-alone-can-be-asked-for",
        why="h = 0 is state only (numbers, SALT): the shared last step gets the mean of both.",
        method="salt",
        options={"history": 0},
        columns=DETOUR,
        expect=Values([0.7071, 0.0, -0.7071, 0.0], FOUR_DECIMALS),
    ),
    Case(
        name="equal-actions-with-different-effects-are-not-merged",
        why="The next state is part of the edge; a variant drops it (numbers, SALT).",
        method="salt",
        columns=with_columns(DETOUR, state=["x", "s", "x", "u"]),
        expect=Values([0.7071, 0.7071, -0.7071, -0.7071], FOUR_DECIMALS),
    ),
    Case(
        name="equal-actions-with-different-effects-are-merged-without-the-next-state",
        why="The variant without s_{t+1} averages over outcomes (numbers, SALT).",
        method="salt",
        options={"next_state": False},
        columns=with_columns(DETOUR, state=["x", "s", "x", "u"]),
        expect=Values([0.0, 0.7071, 0.0, -0.7071], FOUR_DECIMALS),
    ),
    Case(
        name="an-edge-walked-twice-counts-once-per-rollout",
        why="A loop must not outvote others (numbers, SALT, our choice; the option counts occurrences).",
        method="salt",
        options={"history": 0},
        columns=LOOP,
        # wait from s to s: A and B once each, mean 0; the others are lone edges.
        expect=Values([0.0, 0.0, 0.7071, 0.0, -0.7071], FOUR_DECIMALS),
        kind="convention",
    ),
    Case(
        name="an-edge-walked-twice-counts-twice-when-asked",
        why="The option counts each occurrence (numbers, SALT): (0.7071 + 0.7071 - 0.7071) / 3.",
        method="salt",
        options={"history": 0, "count": "step"},
        columns=LOOP,
        expect=Values([0.2357, 0.2357, 0.7071, 0.2357, -0.7071], FOUR_DECIMALS),
        kind="convention",
    ),
    Case(
        name="case-and-white-space-do-not-split-an-edge",
        why="norm() lower-cases and collapses white space (numbers, SALT).",
        method="salt",
        columns=with_columns(SHARED_EDGES, action=["a", "b", "c", " A", "B ", "d", "a", "e", "A", "b", "f"]),
        expect=Agrees(columns=SHARED_EDGES, tolerance=DOUBLE),
    ),
    Case(
        name="merging-works-on-leave-one-out-credit-too",
        why="SALT stands on GRPO or RLOO (numbers, SALT); RLOO of 1, 1, 0, 0 is +-0.6667.",
        method="salt",
        options={"base": "rloo"},
        columns=SHARED_EDGES,
        # a: 0; b: 0.6667 / 3.
        expect=Values([0, 0.2222, 0.6667, 0, 0.2222, 0.6667, 0, -0.6667, 0, 0.2222, -0.6667], FOUR_DECIMALS),
    ),
]
