"""History: how much of the past a prompt shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError
from groupwise.rollout import AnchoredWindow, Full, Window


@given(st.integers(0, 60), st.integers(0, 8))
def test_a_window_shows_the_last_steps(num_past: int, steps: int) -> None:
    assert num_past - Window(steps=steps).first_shown(num_past) == min(steps, num_past)


@given(st.integers(0, 60))
def test_a_full_memory_shows_everything(num_past: int) -> None:
    assert Full().first_shown(num_past) == 0


@given(st.integers(0, 80), st.integers(0, 6), st.integers(1, 6))
def test_an_anchored_window_shows_between_low_and_high_steps(num_past: int, low: int, more: int) -> None:
    shown = num_past - AnchoredWindow(low=low, high=low + more).first_shown(num_past)
    assert shown <= low + more
    assert shown >= min(low + 1, num_past)


def test_an_anchored_window_grows_then_is_cut_back() -> None:
    history = AnchoredWindow(low=2, high=4)
    # Shown: 0 1 2 3 4 | 3 4 | 3 4: after a cut two are left, and the step just made joins them.
    assert [history.first_shown(n) for n in range(9)] == [0, 0, 0, 0, 0, 2, 2, 4, 4]


def test_a_window_that_cannot_grow_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        AnchoredWindow(low=3, high=3)
    assert "high is 3 but must exceed low, 3; the window has to grow" in str(caught.value)
