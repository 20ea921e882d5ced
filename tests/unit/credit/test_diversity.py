"""After DSDR, worked by hand: what is measured, paid and allotted, the specification's vectors, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, StepTable, methods
from groupwise.data.samples import Totals
from groupwise.losses import EntropyShare, PolicyLoss, SequenceMean
from groupwise.methods.after_dsdr import DiversityBonus, RightDiversity, share_out
from tests.unit.credit.rollouts import rollout
from tests.unit.losses.token_rows import columns, number

ROOT_HALF = 0.5**0.5


def test_the_numbers_of_the_specification() -> None:
    """D = .6, .3, .1 and a wrong one: the first is capped at .5."""
    group = [rollout({"info": {"distinctness": d}, "reward": float(d > 0)}) for d in (0.6, 0.3, 0.1, 0.0)]
    paid = [amounts[-1] for amounts in DiversityBonus()(group)]
    assert paid == pytest.approx([0.05, 0.03, 0.01, 0.0])
    earned = [1.05, 1.03, 1.01, 0.0]
    table = StepTable.from_columns(task=["q"] * 4, rollout=range(4), step=[0] * 4, reward=earned)
    credit = methods.after_dsdr().advantage(table).values
    assert credit.tolist() == pytest.approx([0.538563, 0.499748, 0.460932, -1.499244], abs=1e-5)
    shares = share_out([0.6, 0.3, 0.1], 0.1)
    assert shares == pytest.approx([0.946499, 0.047123, 0.006377], abs=1e-6)
    rows = columns(
        [-1.0] * 4,
        advantage=0.0,
        entropy=[0.4, 0.6, 0.5, 9.0],
        sample=range(4),
        trajectory=range(4),
        named={"entropy_share": [4 * share for share in shares] + [0.0]},
    )
    counted = Totals.count(tokens=[1] * 4, trajectory=range(4), step=[0] * 4, group=[0] * 4, max_tokens=4)
    loss = PolicyLoss(aggregate=SequenceMean(), penalties=(EntropyShare(weight=0.001),))
    assert number(loss(rows, counted).loss) == pytest.approx(-0.000410, abs=1e-6)


def test_where_all_are_right_a_tiny_spread_stays_tiny() -> None:
    table = StepTable.from_columns(task=["q"] * 3, rollout=range(3), step=[0] * 3, reward=[1.01, 1.0, 0.99])
    assert methods.after_dsdr().advantage(table).values.tolist() == pytest.approx([0.2, 0.0, -0.2])


POINTS = {1: [3.0, 0.0], 2: [0.0, 0.5], 3: [2.0, 2.0]}
LINES = {7: "1 + 1 = 2\nso 2", 8: "1+1=2", 9: "no"}
TOOLS: Any = SimpleNamespace(
    hidden=lambda pairs: [np.array([POINTS[response[0]]] * len(response)) for _, response in pairs],
    text=lambda ids: LINES[ids[1]],
)
"""States by the first token of a response, lines by its second."""


def make_answer(first: int, second: int, success: float) -> Any:
    made = rollout({"prompt_ids": (5,), "logp_behaviour": (-1.0, -1.0), "tokens": 2})
    steps = tuple(replace(step, response_ids=(first, second)) for step in made.steps)
    return replace(made, steps=steps, scores={"success": success})


def info_of(group: list[Any]) -> list[tuple[float, float]]:
    (of_group,) = RightDiversity()([group], TOOLS, draw=None)  # type: ignore[arg-type]
    return [(info[0]["distinctness"], info[0]["entropy_share"]) for info in of_group]


def test_right_answers_are_held_against_right_ones_alone() -> None:
    info = info_of([make_answer(1, 7, 1.0), make_answer(2, 8, 1.0), make_answer(3, 9, 1.0), make_answer(2, 7, 0.0)])
    # e: (1, 0), (0, 1), (1, 1) / sqrt 2; the formula of the first two is the same, the third has none
    apart = (1 + 1 - ROOT_HALF) / 2
    distinct = [apart / 2, apart / 2, 1 - ROOT_HALF, 0.0]
    assert [d for d, _ in info] == pytest.approx(distinct)
    assert [w for _, w in info] == pytest.approx([4 * w for w in share_out(distinct[:3], 0.1)] + [0.0])


def test_the_only_right_answer_has_no_others_and_all_of_the_exploration() -> None:
    assert info_of([make_answer(1, 7, 1.0), make_answer(2, 8, 0.0)]) == [(0.0, 2.0), (0.0, 0.0)]
    assert info_of([make_answer(1, 7, 0.0), make_answer(2, 8, 0.0)]) == [(0.0, 0.0), (0.0, 0.0)]


def test_a_bonus_that_nothing_measured_or_that_outweighs_being_right_is_refused() -> None:
    with pytest.raises(RecordError) as missing:
        DiversityBonus()([rollout({})])
    assert str(missing.value) == (
        "task 't', rollout 3: how unlike the others it is was not measured; add the scorer right_diversity"
    )
    with pytest.raises(ConfigError) as caught:
        DiversityBonus(weight=2.0)
    assert str(caught.value) == (
        "DiversityBonus: weight x cap is 1: being different would pay half as much as being right and more; give at "
        "most 0.5"
    )
