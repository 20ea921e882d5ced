"""Long rollouts: a rollout is one rollout, however many steps it took."""

from __future__ import annotations

from conformance.case import Case
from conformance.expectations import ANY_EPS, FOUR_DECIMALS, SINGLE, Values
from conformance.tables import make_finished

QUICK_WIN = make_finished({("q", "win"): (2, 1.0), ("q", "lose"): (20, 0.0)})
LONG_WIN = make_finished({("q", "win"): (3, 1.0), ("q", "lose"): (1, 0.0)})
LONG_WIN_AND_PAIR = make_finished(
    {("q", "win"): (3, 1.0), ("q", "lose"): (1, 0.0), ("r", "win"): (1, 1.0), ("r", "lose"): (1, 0.0)}
)

_R4 = "A baseline is over rollouts unless asked otherwise (R4; langfengQ/verl-agent#138)"

CASES = [
    Case(
        name="a-two-step-win-and-a-twenty-step-loss-are-compared-as-two",
        why=f"{_R4}: the z-scores are those of 1 and 0.",
        method="grpo",
        columns=QUICK_WIN,
        expect=Values([0.70711] * 2 + [-0.70711] * 20, ANY_EPS),
        trap=7,
    ),
    Case(
        name="the-baseline-of-a-two-step-win-and-a-twenty-step-loss-is-one-half",
        why=f"{_R4}: 0.5, not 2/22 = 0.09.",
        method="dr_grpo",
        columns=QUICK_WIN,
        expect=Values([0.5] * 2 + [-0.5] * 20, SINGLE),
        trap=7,
    ),
    Case(
        name="leaving-one-out-leaves-out-the-rollout-not-the-row",
        why="The baseline is the mean of the other rollouts (numbers, RLOO); over rows a win is held against itself.",
        method="rloo",
        columns=LONG_WIN,
        # win: 1 - 0; lose: 0 - 1. Over rows: 1 - 2/3 and 0 - 1.
        expect=Values([1.0, 1.0, 1.0, -1.0], SINGLE),
        trap=7,
    ),
    Case(
        name="the-group-baseline-before-whitening-is-over-rollouts",
        why=f"{_R4}: REINFORCE++-baseline first subtracts the mean of the group's responses (numbers, REINFORCE++).",
        method="reinforce_pp_baseline",
        columns=LONG_WIN_AND_PAIR,
        # values 0.5 x3, -0.5; 0.5, -0.5: mean 1/6, sample variance 0.266667. Over rows the second group would get +-1.
        expect=Values([0.645497] * 3 + [-1.290994, 0.645497, -1.290994], SINGLE),
        trap=7,
    ),
    Case(
        name="statistics-over-rows-can-be-asked-for",
        why="verl-agent and AgentFlow average over rows, we on request (numbers, Flow-GRPO): 1.2910 and -0.6455.",
        method="grpo",
        options={"average": "step"},
        columns=make_finished({("q", "win"): (2, 1.0), ("q", "lose"): (4, 0.0)}),
        # mean 1/3, sample std of six rows 0.516398.
        expect=Values([1.2910] * 2 + [-0.6455] * 4, ANY_EPS),
        kind="convention",
        trap=7,
    ),
    Case(
        name="a-mean-over-rows-can-be-asked-for",
        why="verl-agent averages over rows by default, we on request (numbers, GiGPO released).",
        method="dr_grpo",
        options={"average": "step"},
        columns=LONG_WIN,
        expect=Values([0.25, 0.25, 0.25, -0.75], FOUR_DECIMALS),
        kind="convention",
        trap=7,
    ),
]
