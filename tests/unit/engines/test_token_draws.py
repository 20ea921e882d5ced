"""The random numbers that tokens are drawn with."""

from __future__ import annotations

import numpy as np

from groupwise.data.seeds import seed_of
from groupwise.engines.sampling import draw_uniforms


def test_a_number_depends_on_its_seed_and_position_alone() -> None:
    together = draw_uniforms([5, 6, 7], 3)
    assert [draw_uniforms([seed], 3)[0] for seed in (5, 6, 7)] == together.tolist()
    assert draw_uniforms([5], 4)[0] != together[0]


def test_numbers_are_spread_evenly_over_seeds_and_over_positions() -> None:
    over_seeds = draw_uniforms([seed_of("rollout", i) for i in range(20000)], 0)
    over_positions = np.array([draw_uniforms([42], position)[0] for position in range(20000)])
    for numbers in (over_seeds, over_positions):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts = np.histogram(numbers, bins=50, range=(0, 1))[0]
        assert ((counts - 400) ** 2 / 400).sum() < 49 + 4 * (2 * 49) ** 0.5  # chi-squared, four deviations
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.03


def test_seeds_of_different_paths_differ() -> None:
    paths = [("a", "b"), ("ab",), ("a", "b", ""), (1,), ("1",), (1, "1"), (11,)]
    assert len({seed_of(*path) for path in paths}) == len(paths)
    assert all(0 <= seed_of(*path) < 2**63 for path in paths)


def test_each_seed_may_have_a_position_of_its_own() -> None:
    positions = np.array([[0, 7], [1, 8]])
    numbers = draw_uniforms([11, 12], positions)
    for row, column in np.ndindex(2, 2):
        assert numbers[row, column] == draw_uniforms([11, 12], int(positions[row, column]))[column]
