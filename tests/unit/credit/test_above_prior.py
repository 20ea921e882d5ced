"""A baseline that remembers, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import RecordError, Step, StepTable, Task, Trajectory
from groupwise.credit import AbovePrior, ByTask, ColumnSignal, NoBaseline, NoScale, Relative, StepRewardSignal
from groupwise.parts.stateful import ObservedUpdate
from groupwise.report.explain import explain_step
from tests.unit.credit.observed_updates import make_update, rollout


def test_by_hand() -> None:
    state = AbovePrior(keep=0.5).start(seed=0)
    tasks = [Task(id="t"), Task(id="other")]
    assert state.columns(tasks)["prior"].tolist() == [0.5, 0.5]
    state.observe(make_update(rollout("t", 0, 0.0, 1.0), rollout("t", 1, 0.0), rollout("t", 2, 1.0)))
    # (0.5 * 1 * 0.5 + 2) / (0.5 * 1 + 3) = 2.25 / 3.5
    assert state.columns(tasks)["prior"].tolist() == [2.25 / 3.5, 0.5]
    assert state.state_dict() == {"tasks": {"t": [2.25 / 3.5, 3.5]}}
    state.observe(make_update(rollout("t", 0, 0.0)))
    assert state.columns(tasks)["prior"][0] == pytest.approx(1.125 / 2.75, rel=1e-15)


def test_the_signal_is_what_goes_beyond_the_column() -> None:
    table = StepTable.from_columns(
        task=["t", "t", "u"], rollout=[0, 0, 0], step=[0, 1, 0], reward=[0.0, 1.0, 0.0], prior=[0.25, 0.25, 0.75]
    )
    assert AbovePrior()(table).tolist() == [0.75, 0.75, -0.75]
    assert AbovePrior(of=StepRewardSignal())(table).tolist() == [-0.25, 0.75, -0.75]
    with pytest.raises(RecordError, match="the table has no column 'level'"):
        AbovePrior(column="level")(table)


def test_a_prior_that_is_no_number_is_refused_by_the_name_of_its_column() -> None:
    table = StepTable.from_columns(task=["t"], rollout=[0], step=[0], reward=[0.0], level=["high"])
    with pytest.raises(RecordError) as caught:
        AbovePrior(column="level")(table)
    assert str(caught.value) == "column 'level', row 0: 'high' is not a number; give every row a number"


def test_an_rollout_counts_with_the_mean_of_what_is_compared_before_shaping() -> None:
    state = AbovePrior(of=StepRewardSignal(), keep=0.0, column="level").start(seed=0)
    state.observe(make_update(rollout("t", 0, 1.0, 0.0, shaped=0.0), rollout("t", 1, 1.0)))
    assert state.columns([Task(id="t")]) == {"level": np.array([0.75])}


def make_measured(task: str, number: int, luck: float | None) -> Trajectory:
    """A rollout with what a scorer found of it; None = it took no part, and nobody measured it."""
    step = Step(index=0, info={} if luck is None else {"luck": luck})
    return Trajectory(id=f"{task}/{number}", task=Task(id=task), rollout=number, steps=(step,))


def test_where_a_measure_is_compared_only_rollouts_that_took_part_count() -> None:
    state = AbovePrior(of=ColumnSignal(name="luck"), keep=0.0).start(seed=0)
    rollouts = [
        make_measured("t", 0, 3.0),
        make_measured("t", 1, None),
        make_measured("t", 2, 5.0),
        make_measured("u", 0, None),
    ]
    state.observe(ObservedUpdate(number=1, trajectories=rollouts, credit=[[1.0], None, [-1.0], None]))
    assert state.columns([Task(id="t"), Task(id="u")])["prior"].tolist() == [4.0, 0.5]


def test_a_memory_that_was_written_down_goes_on_as_it_was() -> None:
    first = AbovePrior(keep=0.5).start(seed=0)
    first.observe(make_update(rollout("t", 0, 1.0), rollout("u", 0, 0.0)))
    second = AbovePrior(keep=0.5).start(seed=0)
    second.load_state_dict(first.state_dict())
    # (0.5 * 1 * 0.5 + 1) / 1.5 = 5/6, and 0.25 / 1.5 = 1/6, each with the weight 1.5.
    assert second.state_dict() == {"tasks": {"t": [1.25 / 1.5, 1.5], "u": [0.25 / 1.5, 1.5]}}
    second.observe(make_update(rollout("t", 0, 0.0)))
    assert second.columns([Task(id="t")])["prior"].tolist() == [pytest.approx(0.625 / 1.75, rel=1e-15)]


def test_explain_derives_it_by_hand() -> None:
    table = StepTable.from_columns(task=["t", "t"], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0], prior=[0.1, 0.1])
    credit = Relative(by=ByTask(), of=AbovePrior(), baseline=NoBaseline(), scale=NoScale())(table)
    explanation = explain_step(table, credit, task="t", rollout=0, step=0)
    assert explanation.value == pytest.approx(0.9)
    ((_, inner),) = explanation.inner
    assert (inner.value, inner.by_hand) == (0.9, 0.9)
    wrong = StepTable.from_columns(task=["t", "t"], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0], prior=[0.3, 0.3])
    assert explain_step(wrong, credit, task="t", rollout=0, step=0).largest_gap() == pytest.approx(0.2)


def test_a_memory_that_is_none_is_not_taken_up() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        AbovePrior().start(seed=0).load_state_dict({"levels": {}})
    with pytest.raises((KeyError, TypeError, ValueError)):
        AbovePrior().start(seed=0).load_state_dict({"tasks": {"t": [0.5]}})
