"""Identity: groups come from ids, never from position, stride, text or a bare hash."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_agentic import SHARED_EDGES, THREE_ROUTES
from conformance.cases.published_episode import T1
from conformance.expectations import ANY_EPS, DOUBLE, SINGLE, Agrees, Values
from conformance.tables import join, rows, single_step, walk, with_columns

OTHER_ROUTES = walk("r", A=[("s0", 5), ("s1", 70)], B=[("s0", -30), ("s1", 2), ("s2", 1)])
"""A second task whose state names are those of THREE_ROUTES."""

NINE = [(i, i) for i in range(9)]
"""The rows of THREE_ROUTES, which come first."""

CASES = [
    Case(
        name="rollouts-of-two-tasks-may-share-their-ids",
        why="A rollout id is scoped to its task (R1; rLLM#776 grouped by the wrong id).",
        method="grpo",
        columns=with_columns(single_step(p=[1.0, 0.0], q=[5.0, 9.0]), state=["start"] * 4),
        expect=Values([0.70711, -0.70711, -0.70711, 0.70711], ANY_EPS),
        trap=8,
    ),
    Case(
        name="interleaved-rows-of-two-tasks-find-their-groups",
        why="A sliding window over an interleaved batch mixes tasks (prime-rl#600).",
        method="grpo",
        columns=rows(
            "task rollout step reward",
            *((task, i, 0, reward) for i in range(4) for task, reward in (("p", T1[i]), ("q", float(i == 3)))),
        ),
        # p: 1,0,0,1 gives +-0.8660; q: 0,0,0,1 gives -0.5 and 1.5.
        expect=Values([0.86602, -0.5, -0.86602, -0.5, -0.86602, -0.5, 0.86602, 1.5], ANY_EPS),
        trap=8,
    ),
    Case(
        name="groups-of-three-and-five-are-not-cut-by-a-stride",
        why="Fixed strides mis-group partial groups (AReaL#1419).",
        method="dr_grpo",
        columns=single_step(p=[3.0, 0.0, 0.0], q=[0.0, 0.0, 0.0, 0.0, 10.0]),
        # p: mean 1; q: mean 2.
        expect=Values([2.0, -1.0, -1.0, -2.0, -2.0, -2.0, -2.0, 8.0], SINGLE),
        trap=17,
    ),
    Case(
        name="seven-survivors-of-eight-are-compared-with-each-other",
        why="A failed rollout leaves the statistics; partial groups normalise over the survivors (R6).",
        method="grpo",
        columns=single_step(q=T1[:7]),
        # mean 2/7, sample std 0.487950.
        expect=Values([1.46385, -0.58554, -0.58554, 1.46385, -0.58554, -0.58554, -0.58554], ANY_EPS),
        trap=17,
    ),
    Case(
        name="ids-that-read-alike-when-joined-stay-apart",
        why="Keys made by joining task and rollout with an underscore collide: a_1 + 0 and a + 1_0 (R1).",
        method="dr_grpo",
        columns=rows(
            "task rollout step reward",
            ("a", "1_0", 0, 8.0),
            ("a", "2_0", 0, 0.0),
            ("a_1", "0", 0, 1.0),
            ("a_1", "1", 0, 3.0),
        ),
        expect=Values([4.0, -4.0, -1.0, 1.0], SINGLE),
        trap=8,
    ),
    Case(
        name="another-task-in-the-table-changes-no-z-score",
        why="Credit of one task ignores other tasks unless a method says so (R5).",
        method="grpo",
        columns=single_step(q=T1, other=[900.0, -700.0, 3.0, 1.0, 4.0, 1.0, 5.0, 9.0]),
        expect=Agrees(columns=single_step(q=T1), pairs=[(i, i) for i in range(8)], tolerance=SINGLE),
        trap=8,
    ),
    Case(
        name="another-task-in-the-table-changes-no-leave-one-out-baseline",
        why="Credit of one task ignores other tasks unless a method says so (R5).",
        method="rloo",
        columns=single_step(q=T1, other=[900.0, -700.0, 3.0, 1.0, 4.0, 1.0, 5.0, 9.0]),
        expect=Agrees(columns=single_step(q=T1), pairs=[(i, i) for i in range(8)], tolerance=SINGLE),
        trap=8,
    ),
    Case(
        name="equal-states-of-two-tasks-are-not-compared-under-gigpo",
        why="State groups are scoped by task (R5); ROLL and Trinity bucket states over the whole batch.",
        method="gigpo",
        columns=join(THREE_ROUTES, OTHER_ROUTES),
        expect=Agrees(columns=THREE_ROUTES, pairs=NINE, tolerance=DOUBLE),
        trap=8,
    ),
    Case(
        name="equal-states-of-two-tasks-are-not-compared-under-hgpo",
        why="Groups of every level belong to one task (numbers, HGPO; R5).",
        method="hgpo",
        columns=join(THREE_ROUTES, OTHER_ROUTES),
        expect=Agrees(columns=THREE_ROUTES, pairs=NINE, tolerance=DOUBLE),
        trap=8,
    ),
    Case(
        name="equal-states-of-two-tasks-are-not-compared-under-step-grpo",
        why="State groups are scoped by task (R5).",
        method="step_grpo",
        columns=join(THREE_ROUTES, OTHER_ROUTES),
        expect=Agrees(columns=THREE_ROUTES, pairs=NINE, tolerance=DOUBLE),
        trap=8,
    ),
    Case(
        name="equal-edges-of-two-tasks-are-not-merged",
        why="One graph per prompt (numbers, SALT).",
        method="salt",
        columns=join(SHARED_EDGES, with_columns(SHARED_EDGES, task=["r"] * 11, reward=[0] * 10 + [7])),
        expect=Agrees(columns=SHARED_EDGES, pairs=[(i, i) for i in range(11)], tolerance=DOUBLE),
        trap=8,
    ),
    Case(
        name="renaming-tasks-and-rollouts-changes-nothing",
        why="An id is a name, its spelling and sort order carry no meaning (R1).",
        method="hgpo",
        columns=THREE_ROUTES,
        expect=Agrees(
            columns=with_columns(THREE_ROUTES, task=[10] * 9, rollout=[9] * 3 + [100] * 2 + [11] * 4), tolerance=DOUBLE
        ),
        trap=8,
    ),
    Case(
        name="the-episode-return-is-the-sum-of-the-rewards",
        why="Without an outcome column R(tau) is the sum of the step rewards (numbers, Notation).",
        method="dr_grpo",
        columns=walk(A=[("x", 1), ("y", 2)], B=[("x", 0), ("y", 1)]),
        # 3 and 1: mean 2.
        expect=Values([1.0, 1.0, -1.0, -1.0], SINGLE),
    ),
    Case(
        name="an-outcome-column-takes-the-place-of-the-sum",
        why="A recorded outcome is the episode score, whatever the step rewards add up to (numbers, Notation).",
        method="dr_grpo",
        columns=with_columns(walk(A=[("x", 1), ("y", 2)], B=[("x", 0), ("y", 1)]), outcome=[0, 0, 1, 1]),
        expect=Values([-0.5, -0.5, 0.5, 0.5], SINGLE),
    ),
]
