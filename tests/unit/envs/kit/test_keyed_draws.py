"""Draws and slips belong to their keys."""

from __future__ import annotations

import random

from groupwise.envs.kit.draws import Draws, draw_uniform
from groupwise.envs.kit.words import split_words, vocabulary_of


def test_draws_of_a_key_are_pinned() -> None:
    # Computed once with CPython 3.11.7 and again with 3.13.0; Python promises to keep Random.random().
    draws = Draws("household", 7)
    assert [draws.below(100) for _ in range(6)] == [58, 9, 98, 30, 32, 79]
    assert draw_uniform("gridworld", 3, 0) == 0.9841121639610543


def test_keys_are_independent_and_the_shared_generator_is_left_alone() -> None:
    random.seed(0)
    state = random.getstate()
    one, other = Draws("a", 1), Draws("a", 2)
    mixed = [(one.below(1000), other.below(1000)) for _ in range(20)]
    alone = Draws("a", 1)
    assert [pair[0] for pair in mixed] == [alone.below(1000) for _ in range(20)]
    assert [pair[0] for pair in mixed] != [pair[1] for pair in mixed]
    assert random.getstate() == state


def test_a_sample_has_no_repeats_and_everything_is_drawn_about_equally_often() -> None:
    draws = Draws("sample")
    counts = [0] * 5
    for _ in range(2000):
        drawn = draws.sample(range(5), 3)
        assert len(set(drawn)) == 3
        for each in drawn:
            counts[each] += 1
    assert all(abs(count - 1200) < 120 for count in counts)  # five standard deviations: sqrt(2000 * 0.6 * 0.4) = 22


def test_uniform_covers_the_unit_interval() -> None:
    drawn = [draw_uniform("u", step) for step in range(4000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert abs(sum(drawn) / 4000 - 0.5) < 0.025


def test_words_are_runs_and_punctuation() -> None:
    assert split_words("You see a Mug 12, (hot).") == ["you", "see", "a", "mug", "12", ",", "(", "hot", ")", "."]
    assert vocabulary_of(["b a", "a!"]) == ("!", "a", "b")
