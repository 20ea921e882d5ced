"""What a step says of its form and its action lives through rows, files, journal, read-back and credit done again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import Step, StepTable, Task, Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.report.derived_credit import make_step_table
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store.journal import Journal, Update
from tests.strategies import CONDUCT

SAID = ("well_formed", "accepted", "valid")


@st.composite
def rollouts(draw: st.DrawFn) -> list[Trajectory]:
    """A few rollouts, whose steps say more or less."""
    trajectories = []
    for rollout in range(draw(st.integers(1, 3))):
        steps = tuple(Step(index=i, **draw(CONDUCT)) for i in range(draw(st.integers(1, 3))))
        trajectories.append(
            Trajectory(id=f"t/{rollout}", task=Task(id="t"), rollout=rollout, steps=steps, versions=(0,))
        )
    return trajectories


@st.composite
def rollouts_of_one_file(draw: st.DrawFn) -> list[Trajectory]:
    """A few rollouts whose steps all say as much as one another."""
    words = [name for name, value in draw(CONDUCT).items() if value is not None]
    silent = dict.fromkeys(("well_formed", "accepted", "recorded_valid"))

    def speak(step: Step) -> Step:
        return replace(step, **(silent | {name: draw(st.booleans()) for name in words}))

    return [replace(one, steps=tuple(map(speak, one.steps))) for one in draw(rollouts())]


def conduct_of(table: StepTable) -> dict[str, list[bool]]:
    return {name: table.extra[name].tolist() for name in SAID if name in table.extra}


@given(CONDUCT)
def test_valid_is_well_formed_and_accepted_where_both_are_there(conduct: dict[str, bool | None]) -> None:
    step = Step(index=0, **conduct)
    if step.well_formed is None or step.accepted is None:
        assert step.valid is step.recorded_valid
    else:
        assert step.valid is (step.well_formed and step.accepted)


@given(rollouts())
def test_a_table_holds_what_every_step_says_and_nothing_invented(trajectories: list[Trajectory]) -> None:
    steps = [step for one in trajectories for step in one.steps]
    expected = {name: [getattr(step, name) for step in steps] for name in SAID}
    assert conduct_of(StepTable.from_trajectories(trajectories)) == {
        name: values for name, values in expected.items() if None not in values
    }


@given(rollouts())
def test_credit_done_again_from_rows_reads_what_the_trajectories_said(trajectories: list[Trajectory]) -> None:
    rows = [json.loads(json.dumps(row)) for one in trajectories for row in make_rows(one)]
    assert conduct_of(make_step_table(rows)) == conduct_of(StepTable.from_trajectories(trajectories))


@given(rollouts())
def test_the_journal_gives_back_what_was_said(trajectories: list[Trajectory]) -> None:
    with TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        credit = [[0.0] * len(one.steps) for one in trajectories]
        journal.write(Update(number=1, version=1, metrics={}, trajectories=trajectories, credit=credit))
        read_back = [journal.past_rollouts.read(past) for past in journal.past_rollouts.recent("t", max_rollouts=9)]
    assert [one.steps for one in read_back] == [one.steps for one in trajectories]


@pytest.mark.parametrize("name", ["rollouts.jsonl", "rollouts.parquet"])
@given(trajectories=rollouts_of_one_file())
def test_a_file_gives_back_what_was_said(name: str, trajectories: list[Trajectory]) -> None:
    with TemporaryDirectory() as folder:
        write_rollouts(Path(folder) / name, trajectories)
        (chunk,) = RolloutsFile.open(Path(folder) / name).chunks()
    assert conduct_of(chunk.table()) == conduct_of(StepTable.from_trajectories(trajectories))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_what_follows_may_be_given_too_but_not_otherwise(pairs: list[tuple[bool, bool]]) -> None:
    well_formed, accepted = np.array(pairs).T
    identity = {"task": ["t"] * len(pairs), "rollout": [0] * len(pairs), "step": list(range(len(pairs)))}
    columns = {**identity, "reward": [0.0] * len(pairs), "well_formed": well_formed, "accepted": accepted}
    both = well_formed & accepted
    assert conduct_of(StepTable.from_columns(**columns, valid=both)) == conduct_of(StepTable.from_columns(**columns))
    with pytest.raises(
        ValueError, match="column 'valid', row 0: it contradicts 'well_formed' and 'accepted'; leave it out"
    ):
        StepTable.from_columns(**columns, valid=~both)
