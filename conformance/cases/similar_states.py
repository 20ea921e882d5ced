"""Similar states: when two texts are the same state, and when they only look alike."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import FOUR_DECIMALS, Values
from conformance.tables import walk

MUGS = walk(A=[("You are in the kitchen. You see a mug 1.", 1)], B=[("You are in the kitchen. You see a mug 2.", 0)])
APART, MERGED = [0.7071, -0.7071], [1.4142, -1.4142]
"""The episode term alone, and with as much again from the state."""

CASES = [
    Case(
        name="mug-1-and-mug-2-are-two-states",
        why="Their texts are 0.975 alike, above the usual 0.95, yet they are two objects (numbers, Routes).",
        method="gigpo",
        options={"similarity": 0.95},
        columns=MUGS,
        expect=Values(APART, FOUR_DECIMALS),
        kind="convention",
        trap=8,
    ),
    Case(
        name="mug-1-and-mug-2-are-one-state-in-released-gigpo",
        why="The release merges by the ratio alone (numbers, GiGPO released and Routes).",
        method="gigpo",
        options={"similarity": 0.95, "reference": True},
        columns=MUGS,
        expect=Values(MERGED, FOUR_DECIMALS),
        kind="convention",
        trap=8,
    ),
    Case(
        name="texts-alike-above-the-threshold-are-one-state",
        why="difflib ratio 22/23 = 0.9565 >= 0.95 (numbers, GiGPO released).",
        method="gigpo",
        options={"similarity": 0.95},
        columns=walk(A=[("You are in the kitchen.", 1)], B=[("You are in the Kitchen.", 0)]),
        expect=Values(MERGED, FOUR_DECIMALS),
    ),
    Case(
        name="texts-alike-below-the-threshold-are-two-states",
        why="difflib ratio 0.8182 < 0.95 (numbers, Routes).",
        method="gigpo",
        options={"similarity": 0.95},
        columns=walk(A=[("You arrive at desk 1.", 1)], B=[("You arrive at shelf 12.", 0)]),
        expect=Values(APART, FOUR_DECIMALS),
    ),
    Case(
        name="without-a-threshold-only-equal-texts-are-one-state",
        why="Exact equality of the anchor observation is the default (numbers, GiGPO released).",
        method="gigpo",
        columns=walk(A=[("You are in the kitchen.", 1)], B=[("You are in the Kitchen.", 0)]),
        expect=Values(APART, FOUR_DECIMALS),
    ),
]
