"""Disks that are full or read-only: one sentence, nothing lost, and the run goes on once there is space."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.store.journal import EvaluatedRollout, Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import FileError, TrainingError
from groupwise.training.checkpoints import save_checkpoint
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.faults.damaged_runs import go_on, make_run, weights_of
from tests.faults.full_disks import no_space
from tests.read_only_folders import read_only
from tests.unit.cli.conftest import Run as Command
from tests.unit.cli.conftest import groupwise  # noqa: F401
from tests.unit.cli.run_files import small
from tests.unit.learner.learners import learner, tiny
from tests.unit.training.runs import small_config


def test_a_tokenizer_that_cannot_be_written_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = tiny()
    made = learner(model)
    save_checkpoint(tmp_path, 1, made, tokenizer, {})
    monkeypatch.setattr(made.model, "save_pretrained", lambda folder: None)  # so that the tokenizer is the first
    with no_space(), pytest.raises(TrainingError) as caught:
        save_checkpoint(tmp_path, 2, made, tokenizer, {})
    assert str(caught.value).startswith(f"checkpoint {tmp_path / '0002'} could not be written (")
    assert str(caught.value).endswith("; the earlier ones are untouched. Free some space, then continue with --resume")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001", "latest"]


@pytest.mark.parametrize("how", ["full", "limit"])
def test_an_evaluation_that_cannot_be_written_is_a_sentence_and_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    whole = make_run(tmp_path / "whole", updates=2)
    run = open_run(small_config(updates=2), tmp_path / "run")
    write, database = run.journal.write_evaluation, run.journal._database

    def write_on_a_full_disk(rollouts: Sequence[EvaluatedRollout]) -> None:
        if run.journal.last_number() < 2:
            write(rollouts)
        elif how == "limit":
            with no_space(1):
                write(rollouts)
        else:
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            database.execute(f"PRAGMA max_page_count = {pages}")
            write([replace(each, seed=seed) for each in rollouts for seed in range(500)])  # which need further pages

    monkeypatch.setattr(run.journal, "write_evaluation", write_on_a_full_disk)
    with pytest.raises(FileError) as caught:
        train(run)
    reason = "database or disk is full" if how == "full" else "disk I/O error"
    assert str(caught.value) == (
        f"{tmp_path / 'run' / 'journal.sqlite'}: the evaluation could not be written ({reason}); the journal is "
        "unchanged. Free some space, check that you may write into the folder, or end the other process that writes "
        "there. Then use --resume"
    )
    run.journal.close()
    again = go_on(tmp_path / "run", updates=2)
    assert weights_of(again) == weights_of(whole)
    with Journal(tmp_path / "whole" / "journal.sqlite") as journal:
        assert again.journal.evaluations() == journal.evaluations()


def test_an_update_and_what_is_forgotten_are_a_sentence_too(tmp_path: Path) -> None:
    make_run(tmp_path, updates=2)
    run = open_run(small_config(updates=3), tmp_path)
    with no_space(1), pytest.raises(FileError, match=r"the end of the journal after update 1 could not be written \("):
        run.journal.forget_after(1)
    assert run.journal.update_numbers() == [1, 2]
    assert run.journal.check_digest_chain().fault is None


def test_settings_that_cannot_be_written_leave_those_that_were_there(tmp_path: Path) -> None:
    RunPaths(tmp_path).write_config(small_config().config())
    before = (tmp_path / "config.toml").read_bytes()
    with no_space(10), pytest.raises(FileError) as caught:
        RunPaths(tmp_path).write_config(small_config(updates=9).config())
    assert str(caught.value) == (
        f"{tmp_path / 'config.toml'}: cannot be written (File too large); free some space, or use another folder"
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"config.toml": before}


@pytest.mark.parametrize("command", ["train", "warmup"])
def test_a_command_on_a_full_disk_says_so_and_leaves_nothing(
    groupwise: Command,  # noqa: F811
    tmp_path: Path,
    command: str,
) -> None:
    small(tmp_path)
    with no_space(5):
        ran = groupwise(command, "small.toml", "--out", "run")
    assert ran.status == 2
    assert ran.err.startswith("error: ")
    assert "cannot be written (No space left on device); use a folder" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--resume", "{}/run", "--set", "training.updates=3"),
        ("train", "{}/small.toml", "--out", "{}/new"),
        ("evaluate", "{}/run"),
        ("warmup", "{}/small.toml", "--out", "{}/warm"),
    ],
    ids=["resume", "train", "evaluate", "warmup"],
)
def test_a_read_only_folder_is_a_sentence(
    groupwise: Command,  # noqa: F811
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    (tmp_path / "there").mkdir()
    assert groupwise("train", f"there/{small(tmp_path / 'there')}", "--out", "there/run").status == 0
    with read_only(tmp_path / "there") as there:
        ran = groupwise(*(each.format(there) for each in arguments))
    assert ran.status == 2
    assert ran.err.splitlines()[-1].startswith(f"error: {there}/")
    assert "cannot be written (Permission denied); use a folder that you may write to, on a disk with space" in ran.err
    assert "Traceback" not in ran.err


def test_a_read_only_folder_can_be_evaluated_without_keeping_it(groupwise: Command, tmp_path: Path) -> None:  # noqa: F811
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    with read_only(tmp_path / "run") as run:
        ran = groupwise("evaluate", str(run), "--dry-run")
    assert ran.status == 0, ran.err


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A disk of a size, where this process may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)]
    with suppress(FileNotFoundError):
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            try:
                yield
            finally:
                subprocess.run(["umount", "-l", str(folder)], check=True)
            return
    pytest.skip("no right to mount a file system")


@pytest.mark.parametrize("kilobytes", [4, 40, 100, 160, 200, 260, 320])
def test_a_disk_that_fills_up_stops_the_run_with_a_sentence_and_more_space_lets_it_go_on(
    groupwise: Command,  # noqa: F811
    tmp_path: Path,
    kilobytes: int,
) -> None:
    small(tmp_path)
    with small_disk(tmp_path / "disk", kilobytes):
        ran = groupwise("train", "small.toml", "--out", "disk/run")
        assert ran.status == 2, "it fits"
        assert ran.err.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in ran.err
        subprocess.run(["mount", "-o", "remount,size=9m", str(tmp_path / "disk")], check=True)
        ran = groupwise("train", "small.toml", "--out", "disk/run", "--resume")
        assert ran.status == 0, ran.err
        assert groupwise("report", "disk/run").status == 0
