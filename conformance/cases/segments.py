"""Split rows: cutting a step into parts adds rows, not members."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import ANY_EPS, DOUBLE, SINGLE, Agrees, Values
from conformance.tables import rows

WHOLE = rows(
    "task rollout step state reward tokens",
    ("q", "A", 0, "door", 0.0, 6),
    ("q", "A", 1, "hall", 1.0, 3),
    ("q", "B", 0, "door", 0.0, 2),
    ("q", "B", 1, "hall", 0.0, 4),
    ("q", "C", 0, "door", 0.5, 5),
    ("r", "A", 0, "door", 1.0, 1),
    ("r", "B", 0, "door", 0.0, 2),
)
CUT = rows(
    "task rollout step state reward tokens segment",
    ("q", "A", 0, "door", 0.0, 1, 0),
    ("q", "A", 0, "door", 0.0, 2, 1),
    ("q", "A", 0, "door", 0.0, 3, 2),
    ("q", "A", 1, "hall", 0.0, 1, 0),
    ("q", "A", 1, "hall", 1.0, 2, 1),
    ("q", "B", 0, "door", 0.0, 2, 0),
    ("q", "B", 1, "hall", 0.0, 4, 0),
    ("q", "C", 0, "door", 0.5, 5, 0),
    ("r", "A", 0, "door", 1.0, 1, 0),
    ("r", "B", 0, "door", 0.0, 2, 0),
)
PAIRS = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (9, 6)]
"""Row of CUT, and the row of WHOLE that it is a part of."""

_CUT = "Cutting a rollout into segments changes no credit (slime suggests dividing rewards, verl copies them)"

CASES = [
    Case(
        name=f"a-step-in-three-parts-keeps-its-credit-under-{method.replace('_', '-')}",
        why=f"{_CUT}.",
        method=method,
        columns=CUT,
        expect=Agrees(columns=WHOLE, pairs=PAIRS, tolerance=tolerance),
        trap=18,
    )
    for method, tolerance in [
        ("grpo", ANY_EPS),
        ("dr_grpo", SINGLE),
        ("rloo", SINGLE),
        ("reinforce_pp", SINGLE),
        ("reinforce_pp_baseline", SINGLE),
        ("gigpo", DOUBLE),
        ("hgpo", DOUBLE),
        ("step_grpo", DOUBLE),
    ]
] + [
    Case(
        name="the-rewards-of-the-parts-add-up",
        why="A step's reward is the sum over its parts; copying it to each part would count it twice.",
        method="dr_grpo",
        columns=rows(
            "task rollout step reward segment",
            ("q", "A", 0, 0.75, 0),
            ("q", "A", 0, 0.25, 1),
            ("q", "B", 0, 0.0, 0),
        ),
        expect=Values([0.5, 0.5, -0.5], SINGLE),
        trap=18,
    ),
]
