"""Values for which small groups borrow from larger ones, worked out by hand."""

from __future__ import annotations

import pytest

from groupwise.credit import ByHistory, ByTask, StepRewardSignal
from groupwise.methods.hgae import Shrunk
from groupwise.report.explain import explain_step
from tests.unit.tables import walks

# What is compared is the reward. All seven: 1, 3, 8, 0, 2, 6, 1, mean 3. s: 1, 8, 6, mean 5; x: 3, 0, mean 3/2.
# x after s: 3 alone, and 0 after y.
ROWS = walks(["s", "x"], ["s", "y", "x"], ["s", None], rewards=[[1, 3], [8, 2, 0], [6, 1]])
LEVELS = (ByTask(), ByHistory(depth=0), ByHistory(depth=1))


def shrink(strength: float) -> Shrunk:
    return Shrunk(levels=LEVELS, of=StepRewardSignal(), strength=strength)


def test_a_group_of_few_is_drawn_towards_the_many() -> None:
    # Strength 1. s: (15 + 3) / 4 = 4.5, with no past. x: (3 + 3) / 3 = 2; after s, alone: (3 + 2) / 2 = 2.5;
    # after y: (0 + 2) / 2 = 1. y: (2 + 3) / 2 = 2.5, after s again alone: (2 + 2.5) / 2 = 2.25. No state: 3.
    expected = [1 - 4.5, 3 - 2.5, 8 - 4.5, 2 - 2.25, 0 - 1.0, 6 - 4.5, 1 - 3.0]
    assert shrink(1.0)(ROWS).values.tolist() == pytest.approx(expected)


def test_without_strength_the_finest_group_alone_counts() -> None:
    assert shrink(0.0)(ROWS).values.tolist() == pytest.approx([-4, 0, 3, 0, 0, 1, -2])


def test_with_much_of_it_only_the_coarsest_does() -> None:
    assert shrink(1e12)(ROWS).values.tolist() == pytest.approx([-2, 0, 5, -1, -3, 3, -2], abs=1e-6)


def test_a_task_of_one_step_is_compared_with_nobody() -> None:
    alone = shrink(1.0)(walks(["s"], rewards=[[5]]))
    assert (alone.values.tolist(), alone.compared.tolist()) == ([0], [False])
    assert shrink(1.0)(ROWS).compared.all()


def test_the_number_is_derived_again_level_by_level() -> None:
    explanation = explain_step(ROWS, shrink(1.0)(ROWS), task="q", rollout=0, step=1)
    assert explanation.formula == (
        "ByTask: 7 steps, mean 3: 3; ByHistory(depth=0): 2 steps, mean 1.5: 2; "
        "ByHistory(depth=1): 1 steps, mean 3: 2.5; 3 - 2.5 = 0.5"
    )
    assert [member.value for member in explanation.members] == [1, 3, 8, 2, 0, 6, 1]
    assert explanation.largest_gap() == 0
