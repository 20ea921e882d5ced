"""Filters that go by how a rollout was recorded: the age of the weights that sampled it, and what was cut off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, RecordError, Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.credit import OverlongMask, Staleness
from groupwise.parts.algorithm import Algorithm
from tests.unit.tables import single_steps, table

TASK = Task(id="t")


def rollout(number: int, *steps: Step, stop: StopReason = StopReason.TERMINATED, version: int = 0) -> Trajectory:
    return Trajectory(id=f"r{number}", task=TASK, rollout=number, steps=steps, stop=stop, versions=(version,))


def test_rollouts_of_older_weights_than_allowed_are_dropped() -> None:
    rows = StepTable.from_trajectories([rollout(n, Step(index=0), version=n) for n in range(4)], version=3)
    assert Staleness(max_staleness=0)(rows).tolist() == [False, False, False, True]
    assert Staleness(max_staleness=1)(rows).tolist() == [False, False, True, True]
    assert Staleness(max_staleness=3)(rows).tolist() == [True] * 4


def test_an_rollout_is_as_old_as_its_oldest_step() -> None:
    rows = table("task rollout step reward age", ("t", 0, 0, 0.0, 2), ("t", 0, 1, 0.0, 1), ("t", 1, 0, 0.0, 1))
    assert Staleness(max_staleness=1)(rows).tolist() == [False, False, True]


def test_what_is_stale_still_counts_in_the_statistics() -> None:
    old = rollout(0, Step(index=0, reward=1.0), version=0)
    fresh = rollout(1, Step(index=0, reward=0.0), version=9)
    algorithm = Algorithm(advantage=methods.dr_grpo().advantage, filters=(Staleness(),))
    rows = StepTable.from_trajectories([old, fresh], version=9)
    assert algorithm.keep(rows).tolist() == [False, True]
    assert algorithm.advantage(rows).values.tolist() == [0.5, -0.5]


def test_a_table_without_ages_says_where_they_come_from() -> None:
    with pytest.raises(RecordError) as caught:
        Staleness()(single_steps([1.0]))
    assert str(caught.value) == (
        "the table has no column 'age', which this method reads; from_trajectories(..., version=...) makes it of "
        "`Trajectory.versions`, or pass it to from_columns(age=...). Valid: (none)"
    )


def test_a_negative_age_allows_nothing() -> None:
    with pytest.raises(ConfigError) as caught:
        Staleness(max_staleness=-1)
    assert str(caught.value) == "Staleness: max_staleness: expected a number greater than or equal to 0, found -1"


def make_limited_table() -> StepTable:
    """Three rollouts: one with a response that was cut off, one that the limit on steps ended, one that is whole."""
    return StepTable.from_trajectories(
        [
            rollout(0, Step(index=0), Step(index=1, cut=True)),
            rollout(1, Step(index=0), Step(index=1), stop=StopReason.TRUNCATED),
            rollout(2, Step(index=0)),
        ]
    )


def test_responses_that_were_cut_off_are_dropped_and_the_rest_of_the_rollout_trains() -> None:
    assert OverlongMask()(make_limited_table()).tolist() == [True, False, True, True, True]


def test_rollouts_that_the_limit_on_steps_cut_off_are_dropped_whole_where_asked() -> None:
    assert OverlongMask(rollouts="drop")(make_limited_table()).tolist() == [True, False, False, False, True]


def test_other_ends_than_a_limit_are_no_reason_to_drop() -> None:
    ends = [stop for stop in StopReason if stop is not StopReason.TRUNCATED]
    rows = StepTable.from_trajectories([rollout(n, Step(index=0), stop=stop) for n, stop in enumerate(ends)])
    assert OverlongMask(rollouts="drop")(rows).tolist() == [True] * len(ends)


def test_what_was_cut_off_still_counts_in_the_statistics() -> None:
    algorithm = Algorithm(advantage=methods.dr_grpo().advantage, filters=(OverlongMask(),))
    steps = [Step(index=0, reward=1.0), Step(index=0, reward=0.0, cut=True)]
    rows = StepTable.from_trajectories([rollout(n, step) for n, step in enumerate(steps)])
    assert algorithm.keep(rows).tolist() == [True, False]
    assert algorithm.advantage(rows).values.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("part", "name", "source"),
    [
        (OverlongMask(), "cut", "Step.cut"),
        (OverlongMask(rollouts="drop"), "stop", "Trajectory.stop"),
    ],
)
def test_a_table_that_does_not_know_what_was_cut_says_where_it_comes_from(
    part: OverlongMask, name: str, source: str
) -> None:
    rows = table("task rollout step reward cut", ("t", 0, 0, 0.0, False)) if name == "stop" else single_steps([1.0])
    with pytest.raises(RecordError) as caught:
        part(rows)
    known = "cut" if name == "stop" else "(none)"
    assert str(caught.value) == (
        f"the table has no column {name!r}, which this method reads; from_trajectories makes it of `{source}`, or pass "
        f"it to from_columns({name}=...). Valid: {known}"
    )


rollouts_drawn = st.lists(
    st.tuples(
        st.lists(st.booleans(), min_size=1, max_size=4),
        st.sampled_from(StopReason),
        st.integers(0, 5),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@given(rollouts_drawn, st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_loop_would_keep_the_same_rows_in_any_order(drawn: list, max_staleness: int, rng: object) -> None:  # type: ignore[type-arg]
    records = [
        Trajectory(
            id=f"r{number}",
            task=Task(id=f"task {task}"),
            rollout=number,
            steps=tuple(Step(index=i, cut=cut) for i, cut in enumerate(cuts)),
            stop=stop,
            versions=(5 - age,),
        )
        for number, (cuts, stop, age, task) in enumerate(drawn)
    ]
    rng.shuffle(records)  # type: ignore[attr-defined]
    rows = StepTable.from_trajectories(records, version=5)
    steps = [(record, step) for record in records for step in record.steps]

    def keep(part: Staleness | OverlongMask) -> list[bool]:
        return Algorithm(advantage=methods.dr_grpo().advantage, filters=(part,)).keep(rows).tolist()

    assert keep(Staleness(max_staleness=max_staleness)) == [
        5 - record.versions[0] <= max_staleness for record, _ in steps
    ]
    assert keep(OverlongMask()) == [not step.cut for _, step in steps]
    assert keep(OverlongMask(rollouts="drop")) == [
        not step.cut and record.stop != "truncated" for record, step in steps
    ]
    assert np.array_equal(keep(Staleness(max_staleness=5)), [True] * len(steps))
