"""Turns by weight: nobody gets ahead of their share by a whole turn, whatever the weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs.mixture import choose_next

WEIGHTS = st.lists(st.floats(0.01, 100.0), min_size=2, max_size=5)


def take(weights: dict[str, float], num: int) -> list[str]:
    taken, names = dict.fromkeys(weights, 0), []
    for _ in range(num):
        name = choose_next(weights, taken)
        taken[name] += 1
        names.append(name)
    return names


@given(WEIGHTS, st.integers(1, 200))
def test_nobody_is_a_turn_ahead_of_their_share_and_of_two_nobody_a_turn_behind(numbers: list[float], num: int) -> None:
    weights = {str(place): weight for place, weight in enumerate(numbers)}
    names, total = take(weights, num), sum(numbers)
    ahead = {name: names.count(name) - weight / total * num for name, weight in weights.items()}
    assert max(ahead.values()) < 1 + 1e-9
    assert min(ahead.values()) > -max(len(weights) - 1, 1) - 1e-9


def test_weights_that_come_out_even_do_in_every_round() -> None:
    names = take({"a": 3, "b": 1}, 40)
    assert [names[start : start + 4].count("a") for start in range(0, 40, 4)] == [3] * 10


def test_who_cannot_take_a_turn_leaves_the_shares_of_the_others_alone() -> None:
    taken = {"a": 50, "b": 0, "c": 0}
    for _ in range(9):
        taken[choose_next({"a": 5, "b": 2, "c": 1}, taken, among=["b", "c"])] += 1
    assert taken == {"a": 50, "b": 6, "c": 3}
