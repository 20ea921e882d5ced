"""Forced tokens in a rollouts file: kept, counted out of what was sampled, and refused where they cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from groupwise import RecordError, StepTable
from groupwise.data.records import check_steps
from groupwise.data.step_columns import make_rows
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store.rollout_rows import find_row_fault
from tests.unit.pasts import rollout

ROW = {"task": "t", "rollout": 0, "step": 0, "reward": 0.0}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_the_number_of_forced_tokens_survives_a_file_and_leaves_the_count(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    forced = rollout(0)
    forced = replace(forced, steps=(replace(forced.steps[0], forced=1),))
    trajectories = [forced, rollout(1)]
    path = tmp_path / name
    write_rollouts(path, [row for one in trajectories for row in make_rows(one)])
    assert [row.get("forced") for row in RolloutsFile.open(path).rows()] == [1, None]
    (chunk,) = RolloutsFile.open(path).chunks()
    assert chunk.table().column("tokens").tolist() == [1, 2], "two tokens each, one of them forced"
    assert StepTable.from_trajectories(trajectories).column("tokens").tolist() == [1, 2]


def test_more_forced_tokens_than_there_are_is_an_error() -> None:
    assert find_row_fault(ROW | {"response_ids": [5], "forced": 2}) == (
        "'forced' is 2, but there are 1 response_ids; count those they begin with"
    )
    assert find_row_fault(ROW | {"forced": 1}) == (
        "'forced' without 'response_ids'; store the ids of the sampled tokens too, or leave it out"
    )
    with pytest.raises(RecordError, match="step 0: `forced` is 3, but the response has 2 tokens; `forced` counts"):
        check_steps([replace(rollout(0).steps[0], forced=3)])
