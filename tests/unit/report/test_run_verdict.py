"""Which task set the result of a run is about, and what there is without an evaluation."""

from __future__ import annotations

from pathlib import Path

from groupwise.report.overview import find_sampling_success, find_verdict, list_verdicts
from groupwise.store.journal import Journal
from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import write_run
from tests.unit.training.evaluation.task_set_rows import task_set_rows


def test_the_split_is_the_one_that_the_settings_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(task_set_rows(0, [1.0], split="train"))
        journal.write_evaluation(task_set_rows(1, [1.0], split="train"))
    with RunFolder(folder) as run:
        verdict = find_verdict(run)
        assert verdict is not None
        assert (verdict.split, len(verdict.scores)) == ("train", 2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(task_set_rows(0, [0.0]))
    with RunFolder(folder) as run:
        verdict = find_verdict(run)
        assert verdict is not None
        assert verdict.split == "test"
        assert [verdict.split for verdict in list_verdicts(run)] == ["test", "train"]


def test_a_run_that_was_never_evaluated_has_no_verdict(tmp_path: Path) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=2, tasks=2, rollouts=2)) as run:
        assert find_verdict(run) is None
        assert find_sampling_success(run) == tuple(run.metrics["rollout/success"][number] for number in (1, 2))
    with RunFolder(write_run(tmp_path / "none", updates=0)) as run:
        assert find_sampling_success(run) is None
