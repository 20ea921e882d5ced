"""Process-wide generators lent to one environment at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise import ConfigError
from groupwise.envs.kit.draws import PrivateRandom, undo_draws


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


@given(
    kinds=st.lists(st.sampled_from(["normal", "uniform", "whole", "private"]), max_size=12), seed=st.integers(0, 2**40)
)
@settings(deadline=None)
def test_whatever_was_drawn_before_the_process_draws_on_as_if_nothing_had_been(kinds: list[str], seed: int) -> None:
    """Normal draws come in pairs, of which numpy keeps one: it is neither lost nor lent."""
    alone, private, other = np.random.RandomState(3), PrivateRandom(seed), np.random.RandomState(seed % 2**32)
    np.random.seed(3)
    for kind in kinds:
        if kind == "private":
            with private.in_place():
                assert np.random.normal() == other.normal()
            with undo_draws():
                np.random.normal(size=3)
        elif kind == "normal":
            assert np.random.normal() == alone.normal()
        elif kind == "uniform":
            assert np.random.random() == alone.random()
        else:
            assert np.random.randint(1000) == alone.randint(1000)
    assert np.random.normal() == alone.normal()


def test_another_generator_of_numpys_is_refused() -> None:
    usual, private = np.random.get_bit_generator(), PrivateRandom(3)
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(ConfigError, match="numpy's process-wide generator is a PCG64"), private.in_place():
            pass
    finally:
        np.random.set_bit_generator(usual)
