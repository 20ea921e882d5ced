"""A run as data frames: what the journal holds, nothing more, in either library."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("pandas")
pytest.importorskip("polars")

from groupwise import ConfigError, FileError, read_run, train
from groupwise.report import recorded_run
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.training.evaluation.summary import Evaluation

SETTINGS = {
    "algorithm": {"method": "hgpo"},
    "env": {"kind": "household", "max_steps": 3},
    "model": {"kind": "tiny"},
    "rollout": {"group_size": 3},
    "training": {"updates": 2, "tasks": 2},
    "evaluation": {"tasks": 3, "rollouts": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(SETTINGS, tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_hold_what_the_journal_holds(folder: Path, library: Any) -> None:
    with Journal(RunPaths(folder).journal, read_only=True) as journal, read_run(folder, frames=library) as run:
        metrics, rollouts, credit = run.metrics(), run.rollouts(), run.credit()
        assert type(metrics).__module__.partition(".")[0] == library
        assert list(metrics["update"]) == [1, 2]
        assert set(metrics.columns) == {"update", *journal.metric_names()}
        for name in journal.metric_names():
            curve = dict(journal.curve(name))
            for number, value in zip(metrics["update"], metrics[name], strict=True):
                assert value == curve[number] if number in curve else value is None or math.isnan(value)
        assert len(rollouts) == len(journal.rollouts()) == 12
        assert list(rollouts["outcome"]) == [row["outcome"] for row in journal.rollouts()]
        expected = [value for number in (1, 2) for row in journal.trajectories(number) for value in row["credit"]]
        assert list(credit["credit"]) == expected
        assert set(credit["compared"]) <= {True, False}
        first = run.credit(update=1)
        assert list(first["credit"]) == expected[: len(first)]
        evaluations = run.evaluations()
        assert list(evaluations["update"]) == [0, 2]
        rows = [row for row in journal.evaluations() if row.number == 2]
        summary = Evaluation.from_rows(rows)
        assert (list(evaluations["low"])[-1], list(evaluations["high"])[-1]) == summary.interval
        assert len(run.evaluation_rollouts()) == len(journal.evaluations()) == 12
        assert run.settings["algorithm"]["advantage"]["kind"] == "blend"


def test_a_library_that_is_not_there_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: Any = "arrow"
    with pytest.raises(ConfigError, match="give 'pandas' or 'polars'"):
        read_run(folder, frames=unknown)
    monkeypatch.setattr(recorded_run, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[polars\]'"):
        read_run(folder, frames="polars")
    with pytest.raises(ConfigError, match="a data frame needs pandas or polars"):
        read_run(folder)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="give the folder"):
        read_run(tmp_path)


def test_a_response_is_told_whole_also_where_it_is_the_action(folder: Path) -> None:
    with read_run(folder, frames="pandas") as run:
        credit = run.credit()
    assert any(credit["response"].str.lower() == credit["action"].str.lower()), "the model said the action alone"
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        steps = [step for number in (1, 2) for row in journal.trajectories(number) for step in row["steps"]]
    assert [not said for said in credit["response"]] == [not step["response_ids"] for step in steps]


def test_a_run_that_was_closed_says_so(folder: Path) -> None:
    run = read_run(folder, frames="pandas")
    run.close()
    run.close()
    for read in (run.metrics, run.rollouts, run.credit, run.evaluations):
        with pytest.raises(FileError) as caught:
            read()
        assert str(caught.value) == (
            f"{RunPaths(folder).journal}: the run is closed; open it again to continue or to read it"
        )
