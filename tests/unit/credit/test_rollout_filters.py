"""RolloutFilters that come with groupwise: who is compared at all."""

from __future__ import annotations

import pytest

from groupwise import ConfigError, StopReason
from groupwise.credit import AtMost, WithoutTruncated
from tests.unit.pasts import make_draw, rollout

CUT = StopReason.TRUNCATED


def test_rollouts_that_a_limit_cut_off_are_left_out() -> None:
    group = [rollout(0), rollout(1, stop=CUT), rollout(2, solved=True), rollout(3, stop=StopReason.INVALID)]
    admitted = WithoutTruncated()(group, draw=make_draw())
    assert [trajectory.rollout for trajectory in admitted] == [0, 2, 3]
    assert WithoutTruncated()([rollout(0, stop=CUT)], draw=make_draw()) == []


def test_at_most_so_many_are_drawn_evenly_in_their_order_and_by_the_seed() -> None:
    group = [rollout(number) for number in range(5)]
    drawn = [
        tuple(trajectory.rollout for trajectory in AtMost(rollouts=2)(group, draw=make_draw(seed)))
        for seed in range(400)
    ]
    assert len(set(drawn)) == 10, "every pair"
    assert all(first < second for first, second in drawn)
    assert min(drawn.count(pair) for pair in set(drawn)) > 15
    assert drawn == [tuple(e.rollout for e in AtMost(rollouts=2)(group, draw=make_draw(seed))) for seed in range(400)]
    assert AtMost(rollouts=5)(group, draw=make_draw()) == group


def test_another_task_is_drawn_for_apart() -> None:
    first, second = ([rollout(number, task=task) for number in range(6)] for task in ("a", "b"))
    pairs = [
        tuple(
            tuple(trajectory.rollout for trajectory in AtMost(rollouts=3)(group, draw=make_draw(seed)))
            for group in (first, second)
        )
        for seed in range(40)
    ]
    # Three of six can be drawn in 20 ways: apart, the two tasks agree in about 2 of 40 draws.
    assert sum(of_first == of_second for of_first, of_second in pairs) < 8


def test_the_draw_is_named_for_the_part_and_the_task() -> None:
    """A run that is played again draws by the same names, so that the same rollouts are admitted."""
    names: list[tuple[str | int, ...]] = []
    AtMost(rollouts=2)([rollout(number, task="a") for number in range(3)], draw=make_draw(names=names))
    assert names == [("at_most", "a")]


def test_a_group_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="rollouts"):
        AtMost(rollouts=0)
