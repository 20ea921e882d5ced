"""A baseline that remembers, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import RecordError, Step, StepTable, Task, Trajectory
from groupwise.advantages import AbovePrior, NoBaseline, NoScale, Relative, StepReward
from groupwise.core.parts.stateful import Observed
from groupwise.groups import ByTask
from groupwise.reports.explain.step import explain


def attempt(task: str, number: int, *rewards: float, shaped: float = 0.0) -> Trajectory:
    steps = tuple(Step(index=i, reward=reward, shaped=shaped) for i, reward in enumerate(rewards))
    return Trajectory(id=f"{task}/{number}", task=Task(id=task), attempt=number, steps=steps)


def observed(*trajectories: Trajectory) -> Observed:
    return Observed(number=1, trajectories=trajectories, credit=[None] * len(trajectories))


def test_by_hand() -> None:
    state = AbovePrior(keep=0.5).start(seed=0)
    tasks = [Task(id="t"), Task(id="other")]
    assert state.columns(tasks)["prior"].tolist() == [0.5, 0.5]
    state.observe(observed(attempt("t", 0, 0.0, 1.0), attempt("t", 1, 0.0), attempt("t", 2, 1.0)))
    # (0.5 * 1 * 0.5 + 2) / (0.5 * 1 + 3) = 2.25 / 3.5
    assert state.columns(tasks)["prior"].tolist() == [2.25 / 3.5, 0.5]
    assert state.state_dict() == {"tasks": {"t": [2.25 / 3.5, 3.5]}}
    state.observe(observed(attempt("t", 0, 0.0)))
    assert state.columns(tasks)["prior"][0] == pytest.approx(1.125 / 2.75, rel=1e-15)


def test_the_signal_is_what_goes_beyond_the_column() -> None:
    table = StepTable.from_columns(
        task=["t", "t", "u"], attempt=[0, 0, 0], index=[0, 1, 0], reward=[0.0, 1.0, 0.0], prior=[0.25, 0.25, 0.75]
    )
    assert AbovePrior()(table).tolist() == [0.75, 0.75, -0.75]
    assert AbovePrior(of=StepReward())(table).tolist() == [-0.25, 0.75, -0.75]
    with pytest.raises(RecordError, match="the table has no column 'level'"):
        AbovePrior(column="level")(table)


def test_an_attempt_counts_with_the_mean_of_what_is_compared_before_shaping() -> None:
    state = AbovePrior(of=StepReward(), keep=0.0, column="level").start(seed=0)
    state.observe(observed(attempt("t", 0, 1.0, 0.0, shaped=0.0), attempt("t", 1, 1.0)))
    assert state.columns([Task(id="t")]) == {"level": np.array([0.75])}


def test_explain_derives_it_by_hand() -> None:
    table = StepTable.from_columns(task=["t", "t"], attempt=[0, 1], index=[0, 0], reward=[1.0, 0.0], prior=[0.1, 0.1])
    credit = Relative(by=ByTask(), of=AbovePrior(), baseline=NoBaseline(), scale=NoScale())(table)
    found = explain(table, credit, task="t", attempt=0, index=0)
    assert found.value == pytest.approx(0.9)
    ((_, inner),) = found.inner
    assert (inner.value, inner.by_hand) == (0.9, 0.9)
    wrong = StepTable.from_columns(task=["t", "t"], attempt=[0, 1], index=[0, 0], reward=[1.0, 0.0], prior=[0.3, 0.3])
    assert explain(wrong, credit, task="t", attempt=0, index=0).largest_gap() == pytest.approx(0.2)


def test_a_memory_that_is_none_is_not_taken_up() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        AbovePrior().start(seed=0).load_state_dict({"levels": {}})
    with pytest.raises((KeyError, TypeError, ValueError)):
        AbovePrior().start(seed=0).load_state_dict({"tasks": {"t": [0.5]}})
