"""Whitening over the batch: which numbers, weighed how, over which rows."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import SINGLE, Agrees, Values, Whitened
from conformance.tables import make_finished, rows, single_step, with_columns

LENGTHS = with_columns(single_step(p=[1.0, 0.0, 0.3], q=[2.0, 1.0, 1.0]), tokens=[2, 4, 1, 3, 7, 5])

CASES = [
    Case(
        name="whitened-credit-has-mean-zero-and-variance-one-over-tokens",
        why="A = (R - mean_tok) / sqrt(var_tok + 1e-8) with Bessel's correction (numbers, REINFORCE++).",
        method="reinforce_pp",
        columns=LENGTHS,
        expect=Whitened(1e-4),
    ),
    Case(
        name="whitened-credit-after-a-baseline-has-mean-zero-and-variance-one-over-tokens",
        why="Whitening comes last (numbers, REINFORCE++).",
        method="reinforce_pp_baseline",
        columns=LENGTHS,
        expect=Whitened(1e-4),
    ),
    Case(
        name="whitening-does-not-look-at-tasks",
        why="REINFORCE++ has no groups: one task or six, the batch is the same (numbers, REINFORCE++).",
        method="reinforce_pp",
        columns=LENGTHS,
        expect=Agrees(
            columns=with_columns(LENGTHS, task=[f"t{i}" for i in range(6)], rollout=[0] * 6), tolerance=SINGLE
        ),
    ),
    Case(
        name="rows-without-token-counts-weigh-one-each",
        why="Without lengths a row is one unit (numbers, REINFORCE++ with all L_i = 1).",
        method="reinforce_pp",
        columns=single_step(p=[1.0, 0.0, 0.3], q=[2.0, 1.0, 1.0]),
        expect=Agrees(columns=with_columns(LENGTHS, tokens=[1] * 6), tolerance=SINGLE),
    ),
    Case(
        name="an-early-reward-does-not-count-for-later-steps",
        why="The return-to-go of a step holds this and later rewards only (numbers, REINFORCE++, numbers, Notation).",
        method="reinforce_pp",
        columns=rows("task rollout step reward", ("q", "A", 0, 1.0), ("q", "A", 1, 1.0), ("q", "B", 0, 0.0)),
        # returns 2, 1, 0: mean 1, variance 1.
        expect=Values([1.0, 0.0, -1.0], SINGLE),
    ),
    Case(
        name="later-rewards-are-discounted-by-step",
        why="gamma acts from step to step; verl discounts from token to token (numbers, REINFORCE++).",
        method="reinforce_pp",
        options={"gamma": 0.5},
        columns=make_finished({("q", "A"): (2, 1.0), ("q", "B"): (2, 0.0)}),
        # returns 0.5, 1, 0, 0: mean 0.375, variance 0.229167.
        expect=Values([0.261116, 1.305582, -0.783349, -0.783349], SINGLE),
        kind="convention",
    ),
    Case(
        name="turn-credit-can-be-whitened-over-the-batch",
        why="Step 4 of MARS is optional whitening (numbers, MARS).",
        method="mars",
        options={"whiten": True},
        columns=with_columns(single_step(p=[1.0, 0.0], q=[5.0, 1.0]), tokens=[1, 1, 1, 1]),
        # centred 0.5, -0.5, 2, -2: mean 0, sample variance 8.5 / 3.
        expect=Values([0.297044, -0.297044, 1.188177, -1.188177], 1e-6),
    ),
    Case(
        name="a-duller-batch-does-not-change-the-order-of-credit",
        why="Whitening is one increasing map of the returns over the batch (numbers, REINFORCE++).",
        method="reinforce_pp",
        columns=single_step(p=[4.0], q=[2.0], r=[0.0]),
        # mean 2, sample variance 4.
        expect=Values([1.0, 0.0, -1.0], SINGLE),
    ),
]
