"""Malformed responses: where the penalty goes, and where it does not."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_agentic import THREE_ROUTES
from conformance.expectations import DOUBLE, Agrees, Values, Zero
from conformance.tables import walk, with_columns

STUMBLE = with_columns(walk(A=[("s0", 0), ("s1", 1)], B=[("s0", 0), ("s1", 0)]), well_formed=[True, False, True, True])
"""Rollout A succeeds with a malformed response at its last step."""

CASES = [
    Case(
        name="a-penalty-is-not-discounted-back-under-hgpo",
        why="The penalty is taken off after discounting, from its step alone (numbers, HGPO released, point 9).",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none", "depth": 0},
        columns=STUMBLE,
        # returns A: 0.9 and 1 - 0.1; B: 0 and 0.
        expect=Values([0.45, 0.45, -0.45, -0.45], DOUBLE),
        trap=12,
    ),
    Case(
        name="a-penalty-lowers-the-step-return-alone-under-gigpo",
        why="We leave the episode score as it is, the release lowers it in the same row (numbers, GiGPO released).",
        method="gigpo",
        options={"gamma": 0.9, "scale": "none"},
        columns=STUMBLE,
        # Episode: 1 and 0, baseline 0.5. State: 0.9 against 0, and 1 - 0.1 against 0.
        expect=Values([0.5 + 0.45, 0.5 + 0.45, -0.5 - 0.45, -0.5 - 0.45], DOUBLE),
        kind="convention",
        trap=12,
    ),
    Case(
        name="a-penalty-lowers-the-episode-score-of-its-row-in-released-gigpo",
        why="So rows of one rollout can have different episode scores (numbers, GiGPO released).",
        method="gigpo",
        options={"gamma": 0.9, "scale": "none", "reference": True},
        columns=STUMBLE,
        # Episode over rows: 1, 0.9, 0, 0, baseline 0.475. State as before.
        expect=Values([0.525 + 0.45, 0.425 + 0.45, -0.475 - 0.45, -0.475 - 0.45], DOUBLE),
        kind="convention",
        trap=12,
    ),
    Case(
        name="the-size-of-the-penalty-is-an-option",
        why="0.1 by default, 0.01 for search (numbers, GiGPO released).",
        method="hgpo",
        options={"gamma": 0.9, "scale": "none", "depth": 0, "invalid_penalty": 0.4},
        columns=STUMBLE,
        # A at s1: 1 - 0.4 = 0.6 against 0.
        expect=Values([0.45, 0.3, -0.45, -0.3], DOUBLE),
        trap=12,
    ),
    Case(
        name="without-a-penalty-the-form-changes-nothing",
        why="A penalty of 0 is no penalty (numbers, GiGPO released).",
        method="gigpo",
        options={"invalid_penalty": 0.0},
        columns=with_columns(THREE_ROUTES, well_formed=[True, False, True, False, False, True, True, False, True]),
        expect=Agrees(columns=THREE_ROUTES, tolerance=DOUBLE),
        trap=12,
    ),
    Case(
        name="all-well-formed-responses-are-as-good-as-no-column",
        why="Without the column every response is well formed (numbers, GiGPO released).",
        method="hgpo",
        columns=with_columns(THREE_ROUTES, well_formed=[True] * 9),
        expect=Agrees(columns=THREE_ROUTES, tolerance=DOUBLE),
        trap=12,
    ),
    Case(
        name="equally-malformed-rollouts-get-zero",
        why="The same penalty everywhere leaves a group constant (R2).",
        method="gigpo",
        columns=with_columns(walk(A=[("s", 0.7)], B=[("s", 0.7)], C=[("s", 0.7)]), well_formed=[False] * 3),
        expect=Zero(),
        trap=12,
    ),
]
