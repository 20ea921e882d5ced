"""Process-wide generators lent to one environment at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from groupwise.envs.private_random import PrivateRandom


def draw(private: PrivateRandom) -> tuple[float, float, float]:
    with private.in_place():
        return random.random(), float(np.random.random()), float(np.random.normal())


def test_it_gives_what_the_seeded_generators_give() -> None:
    private, numpy_draws, draws = PrivateRandom(7), np.random.RandomState(7), random.Random(7)
    for _ in range(3):
        assert draw(private) == (draws.random(), numpy_draws.random(), numpy_draws.normal())


def test_two_take_turns_and_the_process_notices_neither() -> None:
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), float(np.random.random())
    random.seed(1)
    np.random.seed(1)
    one, other, alone = PrivateRandom(3), PrivateRandom(4), PrivateRandom(3)
    together = [draw(each) for _ in range(3) for each in (one, other)]
    assert together[::2] == [draw(alone) for _ in range(3)]
    assert (random.random(), float(np.random.random())) == expected


def test_what_raises_inside_still_gives_the_generators_back() -> None:
    before = random.getstate()
    with pytest.raises(IndexError), PrivateRandom(3).in_place():
        [][random.randrange(7)]
    assert random.getstate() == before


def test_a_fork_goes_on_by_itself() -> None:
    private = PrivateRandom(5)
    draw(private)
    fork = private.fork()
    assert [draw(private), draw(private)] == [draw(fork), draw(fork)]
