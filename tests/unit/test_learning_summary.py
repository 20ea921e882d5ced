"""The benchmark's summary: parts of runs, and medians over runs that never got there."""

from __future__ import annotations

from benchmarks.learning.summary import (
    _curve,
    compute_censored_median,
    first_reaching,
    interquartile_mean,
    last_quarter,
    summary,
)

SHORT = [[100, 10, 0.0, 1.0, 0.0], [200, 20, 0.4, 1.0, 0.5]]
LONG = [[50 * (i + 1), i, i / 8, 0.5, 0.0] for i in range(8)]


def test_a_run_is_cut_by_its_own_end_and_a_part_without_updates_is_open() -> None:
    points = _curve([LONG])
    assert [point["success"]["iqm"] for point in points] == [i / 8 for i in range(8)]
    assert [point["steps"] for point in points] == [50 * (i + 1) for i in range(8)]
    assert [point["success"] is None for point in _curve([LONG, SHORT])] == [i not in (3, 7) for i in range(8)]
    assert last_quarter([LONG, SHORT])["success"]["iqm"] == round((0.4 + (6 + 7) / 16) / 2, 4)


def test_never_is_later_than_any_step() -> None:
    assert compute_censored_median([3.0, None, 1.0]) == 3.0
    assert compute_censored_median([3.0, None, None]) is None
    assert first_reaching(LONG, 0.5, 0) == 350  # the mean of updates 3 to 7 is 4 / 8
    assert first_reaching(LONG, 0.9, 0) is None


def test_the_middle_half_counts() -> None:
    assert interquartile_mean([0.0, 1.0, 2.0, 3.0, 100.0]) == 2.0


def test_others_are_timed_to_the_baselines_last_level() -> None:
    record = {"environment": "e", "seed": 0, "before": 0.0, "after": 0.5}
    summaries = summary(
        [{**record, "method": "base", "curve": LONG}, {**record, "method": "other", "curve": LONG[::-1]}], "base"
    )
    assert [one["level"] for one in summaries] == [0.625, 0.625]
    assert summaries[0]["steps_to_level"] == [400]
