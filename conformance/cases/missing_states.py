"""Missing states: None means not comparable, so it equals nothing, itself included."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_agentic import SHARED_EDGES, THREE_ROUTES
from conformance.expectations import DOUBLE, FOUR_DECIMALS, SIX_DECIMALS, Agrees, Values, Zero
from conformance.tables import walk, with_columns, without

CASES = [
    Case(
        name="two-missing-states-are-not-equal-under-gigpo",
        why="A missing state is not comparable, so only the episode part remains (numbers, Notation; R5).",
        method="gigpo",
        columns=walk(A=[(None, 1)], B=[(None, 0)]),
        expect=Values([0.7071, -0.7071], FOUR_DECIMALS),
    ),
    Case(
        name="two-missing-states-are-not-equal-under-step-grpo",
        why="The group is the state; without one there is no group (numbers, Step-GRPO).",
        method="step_grpo",
        columns=walk(A=[(None, 1)], B=[(None, 0)]),
        expect=Zero(),
    ),
    Case(
        name="no-state-column-leaves-grpo-of-gigpo",
        why="GiGPO without anchor states is its episode term (numbers, GiGPO).",
        method="gigpo",
        columns=without(THREE_ROUTES, "state"),
        expect=Agrees(method="grpo", options={}, tolerance=DOUBLE),
    ),
    Case(
        name="no-state-column-leaves-nothing-of-hgpo",
        why="With no entry left the credit is 0 (numbers, HGPO released, point 5).",
        method="hgpo",
        columns=without(THREE_ROUTES, "state"),
        expect=Zero(),
    ),
    Case(
        name="a-missing-state-breaks-the-history-of-later-steps",
        why="A level with a missing state in its window does not exist (numbers, HGPO: defined states only).",
        method="hgpo",
        options={"gamma": 1.0, "scale": "none"},
        columns=walk(
            A=[("p", 0), (None, 0), ("s", 1)],
            B=[("p", 0), (None, 0), ("s", 0)],
            C=[("r", 0), ("u", 0), ("s", 0.8)],
        ),
        # s: level 0 only, mean 0.6; p: +-0.5; r and u are seen once.
        expect=Values([0.5, 0, 0.4, -0.5, 0, -0.6, 0, 0, 0.2], DOUBLE),
        trap=11,
    ),
    Case(
        name="the-empty-string-is-a-state",
        why="An environment may have an empty observation; only None is missing, not every falsy key.",
        method="step_grpo",
        columns=walk(A=[("", 1)], B=[("", 0)]),
        expect=Values([0.707106, -0.707106], SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="a-step-without-a-state-is-not-merged",
        why="An edge needs its states; a step without one keeps the base credit (numbers, SALT).",
        method="salt",
        columns=with_columns(SHARED_EDGES, state=["s0", None, "s2"] * 2 + ["s0", "s1"] + ["s0", None, "s2"]),
        # Every window that holds the missing state keeps +-0.8660. So does edge a, whose next state differs or is
        # missing: T3 alone reaches s1.
        expect=Values(
            [0.8660, 0.8660, 0.8660, 0.8660, 0.8660, 0.8660, -0.8660, -0.8660, -0.8660, -0.8660, -0.8660],
            FOUR_DECIMALS,
        ),
        kind="convention",
    ),
]
