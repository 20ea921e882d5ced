"""Row order: a table is a set of rows; where a row sits says nothing."""

from __future__ import annotations

import random

from conformance.case import Case, Columns
from conformance.cases.published_agentic import THREE_ROUTES
from conformance.expectations import DOUBLE, FOUR_DECIMALS, OrderFree, Values
from conformance.tables import reorder, rows


def make_wandering(terminal_only: bool) -> Columns:
    """Three tasks of four rollouts with two to six steps through five states, irregular rewards throughout."""
    draw = random.Random(7)
    table = []
    for task in ("ask", "buy", "cook"):
        for rollout in range(4):
            length = draw.randint(2, 6)
            for t in range(length):
                reward = draw.uniform(-1.0, 3.0) if not terminal_only or t == length - 1 else 0.0
                state = draw.choice(["door", "hall", "desk", "lamp", "roof"])
                action, role = draw.choice(["go", "take"]), draw.choice(["buyer", "seller"])
                table.append((task, rollout, t, state, reward, action, role, draw.randint(1, 9)))
    return rows("task rollout step state reward action role tokens", *table)


WANDERING = make_wandering(terminal_only=False)
OUTCOMES = make_wandering(terminal_only=True)

_R1 = "Permuting rows permutes credit (R1)"
_BITS = "bit for bit is our promise (R1, acceptance check), others promise rounding at most"

CASES = (
    [
        Case(
            name=f"shuffled-rows-keep-their-credit-under-{method.replace('_', '-')}",
            why=f"{_R1}; balanced batches and replay shuffle rows.",
            method=method,
            columns=table,
            expect=OrderFree(tolerance),
            trap=9,
        )
        for method, table, tolerance in [
            ("grpo", OUTCOMES, 1e-4),
            ("rloo", OUTCOMES, 1e-4),
            ("reinforce_pp", OUTCOMES, 1e-4),
            ("reinforce_pp_baseline", OUTCOMES, 1e-4),
            ("gigpo", WANDERING, DOUBLE),
            ("salt", WANDERING, DOUBLE),
            ("mars", WANDERING, DOUBLE),
            ("step_grpo", WANDERING, DOUBLE),
        ]
    ]
    + [
        Case(
            name="shuffled-rows-keep-their-credit-under-hgpo",
            why=f"{_R1}; the released method reads history from row order (survey of peers, trap 9).",
            method="hgpo",
            columns=WANDERING,
            expect=OrderFree(DOUBLE),
            trap=9,
        ),
        Case(
            name="shuffled-rows-keep-their-credit-under-hgpo-with-the-released-weights",
            why=f"{_R1}; reference=True reproduces the release's numbers, not its dependence on row order.",
            method="hgpo",
            options={"reference": True, "episode": True},
            columns=WANDERING,
            expect=OrderFree(DOUBLE),
            trap=9,
        ),
        Case(
            name="steps-handed-over-last-first-keep-their-returns-and-history",
            why="Time is the index column, not the position of the row (numbers, Routes, the same vector reversed).",
            method="hgpo",
            options={"gamma": 0.9, "scale": "none"},
            columns=reorder(THREE_ROUTES, range(8, -1, -1)),
            expect=Values([0, 3.0, 0, 2.16, -5.0, -5.13, 0, 4.0, 2.97], FOUR_DECIMALS),
            trap=9,
        ),
        Case(
            name="shuffled-rows-keep-their-clusters-of-similar-states",
            why="First-match clustering depends on the walk (numbers, GiGPO released); ours walks by id, not by row.",
            method="gigpo",
            options={"similarity": 0.5},
            columns=WANDERING,
            expect=OrderFree(),
            kind="convention",
            trap=9,
        ),
    ]
    + [
        Case(
            name=f"shuffled-rows-keep-their-credit-bit-for-bit-under-{method.replace('_', '-')}",
            why=f"{_R1}; {_BITS}.",
            method=method,
            columns=table,
            expect=OrderFree(),
            kind="convention",
            trap=9,
        )
        for method, table in [("grpo", OUTCOMES), ("reinforce_pp", OUTCOMES), ("hgpo", WANDERING)]
    ]
)
