"""The journal and the checkpoint agree, or the run stops: lost updates, changed rows, damaged pages, a damaged log."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.store.journal import Journal, Update
from groupwise.system.errors import FileError
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.faults.damaged_runs import copy_run, follow, go_on, make_run, refusal, weights_of
from tests.unit.cli.conftest import Run as Command
from tests.unit.cli.conftest import groupwise  # noqa: F401
from tests.unit.cli.run_files import small
from tests.unit.training.runs import small_config

PAGE = 4096
R3 = "r3"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six updates that replays, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    make_run(folder, updates=6, method=R3)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of seven updates that nobody damaged."""
    return make_run(tmp_path_factory.mktemp("whole"), updates=7, method=R3)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return copy_run(source, tmp_path / "run")


def change(folder: Path, *statements: str) -> None:
    database = sqlite3.connect(folder / "journal.sqlite")
    with database:
        for statement in statements:
            assert database.execute(statement).rowcount > 0, statement
    database.close()


def check_goes_on(said: str, folder: Path, whole: Run, number: str) -> None:
    """What was advised works, and the run ends as the one that nobody damaged."""
    assert follow(said, folder) == number
    run = go_on(folder, updates=7, method=R3)
    assert weights_of(run) == weights_of(whole)
    assert run.journal.update_numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert run.journal.check_digest_chain().fault is None
    assert run.journal.digest() == Journal(whole.folder / "journal.sqlite").digest(), "one run, one chain"
    assert run.journal.find_damage() is None


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("statements", "what", "number"),
    [
        (["DELETE FROM updates WHERE number IN (4, 5)"], "update 4 is missing", "0003"),
        (["DELETE FROM updates"], "update 1 is missing", "0000"),
        (["UPDATE trajectories SET outcome = 0.75 WHERE number = 2"], "update 2 is not as it was written", "0001"),
        (["UPDATE trajectories SET credit = (SELECT credit FROM trajectories WHERE number = 1 LIMIT 1) "
          "WHERE number = 6"], "update 6 is not as it was written", "0005"),
        (["DELETE FROM trajectories WHERE number = 5 AND rollout = 1"], "update 5 is not as it was written", "0004"),
        (["DELETE FROM past_rollouts WHERE number = 3 AND rollout = 2"], "update 3 is not as it was written", "0002"),
        (["UPDATE past_rollouts SET score = 0.5 WHERE number = 4"], "update 4 is not as it was written", "0003"),
        (["UPDATE metrics SET value = 9 WHERE number = 6 AND name = 'loss/total'"], "update 6 is not as it", "0005"),
        (["UPDATE updates SET digest = NULL WHERE number = 2"], "update 2 is not as it was written", "0001"),
        (["UPDATE updates SET digest = 'x' WHERE number = 2"], "update 2 is not as it was written", "0001"),
    ],
)  # fmt: skip
def test_a_journal_that_was_changed_stops_the_run_and_the_advice_works(
    folder: Path, whole: Run, statements: list[str], what: str, number: str
) -> None:
    change(folder, *statements)
    said = refusal(folder, updates=7, method=R3)
    assert said.startswith(f"{folder}: the journal does not lead to checkpoint 0006 ({what}")
    check_goes_on(said, folder, whole, number)


def test_what_the_clock_said_is_not_part_of_the_chain(folder: Path, whole: Run) -> None:
    change(folder, "UPDATE metrics SET value = 0.5 WHERE name GLOB 'seconds/*'")
    assert weights_of(go_on(folder, updates=7, method=R3)) == weights_of(whole)


def test_a_journal_that_is_gone_or_empty_goes_back_to_the_first_checkpoint(folder: Path, whole: Run) -> None:
    (folder / "journal.sqlite").write_bytes(b"")
    assert "(update 1 is missing)" in refusal(folder, updates=7, method=R3)
    (folder / "journal.sqlite").unlink()
    check_goes_on(refusal(folder, updates=7, method=R3), folder, whole, "0000")


def pages_of(path: Path, query: str) -> list[int]:
    """The numbers of a table's pages, from 1."""
    database = sqlite3.connect(path)
    try:
        rows = database.execute(f"SELECT pageno FROM dbstat WHERE {query} ORDER BY pageno").fetchall()
    except sqlite3.OperationalError:
        pytest.skip("this SQLite does not say which pages a table has")
    finally:
        database.close()
    return [int(page) for (page,) in rows]


def spoil_page(path: Path, number: int) -> None:
    with path.open("r+b") as file:
        file.seek((number - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


@pytest.mark.parametrize("table", ["trajectories", "metrics", "past_rollouts", "updates", "evaluations"])
def test_a_damaged_page_is_a_sentence_and_the_advice_works(folder: Path, whole: Run, table: str) -> None:
    path = folder / "journal.sqlite"
    spoil_page(path, pages_of(path, f"name = '{table}'")[-1])
    if table == "evaluations":  # nothing learns from them: they are left out, and the run goes on
        run = go_on(folder, updates=7, method=R3)
        assert weights_of(run) == weights_of(whole)
        assert (folder / "journal.damaged.sqlite").exists()
        return
    said = refusal(folder, updates=7, method=R3)
    assert said.startswith(f"{folder}: the journal does not lead to checkpoint 0006 (update ")
    number = said.partition("fits the journal is ")[2][:4]
    check_goes_on(said, folder, whole, number)
    assert (folder / "journal.damaged.sqlite").exists(), "what was damaged is kept"


def test_damage_after_what_the_checkpoint_needs_is_mended_and_said(
    folder: Path, whole: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(folder / "journal.sqlite") as database:  # a table that is none of ours, on a page of its own
        database.execute("CREATE TABLE other (x BLOB)")
        database.execute("INSERT INTO other VALUES (zeroblob(3000))")
    database.close()
    content = (folder / "journal.sqlite").read_bytes()
    spoil_page(folder / "journal.sqlite", len(content) // PAGE)
    with caplog.at_level(logging.WARNING):
        run = go_on(folder, updates=7, method=R3)
    assert weights_of(run) == weights_of(whole)
    assert "the journal was damaged after the checkpoint" in caplog.text
    assert run.journal.find_damage() is None


def test_a_journal_whose_head_is_gone_is_a_sentence_and_the_advice_works(folder: Path, whole: Run) -> None:
    path = folder / "journal.sqlite"
    spoil_page(path, 1)
    said = refusal(folder, updates=7, method=R3)
    assert said.startswith(f"{path}: not a journal: file is not a database; ")
    assert said.endswith(
        f"move journal.sqlite and files that begin with its name out of {folder}, write `0000` into "
        f"{folder / 'checkpoints' / 'latest'} and resume"
    )
    for each in folder.glob("journal.sqlite*"):
        each.unlink()
    check_goes_on(said, folder, whole, "0000")


def test_without_the_first_checkpoint_nobody_is_sent_there(folder: Path) -> None:
    spoil_page(folder / "journal.sqlite", 1)
    shutil.rmtree(folder / "checkpoints" / "0000")
    said = refusal(folder, updates=7, method=R3)
    assert "0000" not in said
    assert said.endswith("put the journal back from a copy, or start the run again in another folder")


class Killed(RunObserver):
    """Ends a run after its sixth update, once its checkpoint is written."""

    def on_update(self, update: Update) -> None:
        if update.number == 6:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as it is on the disk when it is killed after its sixth update: its journal stands in its log."""
    folder = tmp_path_factory.mktemp("killed")
    run = open_run(small_config(updates=7, method=R3), folder / "live")
    run.journal._database.execute("PRAGMA wal_autocheckpoint = 0")
    with pytest.raises(KeyboardInterrupt):
        train(run, observers=[Killed()])
    copy = copy_run(folder / "live", folder / "run")
    run.journal.close()
    assert (copy / "journal.sqlite-wal").stat().st_size > 10 * PAGE
    return copy


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.few(2)
@pytest.mark.parametrize("spoil", [truncate, flip, Path.unlink, lambda path: path.write_bytes(b"\xff" * 9999)])
def test_a_damaged_log_stops_the_run_and_the_advice_works(
    killed: Path, tmp_path: Path, whole: Run, spoil: Callable[[Path], None]
) -> None:
    folder = copy_run(killed, tmp_path / "run")
    spoil(folder / "journal.sqlite-wal")
    (folder / "journal.sqlite-shm").unlink()
    said = refusal(folder, updates=7, method=R3)
    assert said.startswith(f"{folder}: the journal does not lead to checkpoint 0006 (update ")
    number = said.partition("fits the journal is ")[2][:4]
    assert int(number) < 6
    check_goes_on(said, folder, whole, number)


def test_the_log_as_it_was_goes_on_at_once(killed: Path, tmp_path: Path, whole: Run) -> None:
    run = go_on(copy_run(killed, tmp_path / "run"), updates=7, method=R3)
    assert weights_of(run) == weights_of(whole)
    assert run.journal.update_numbers() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("command", ["report", "inspect", "audit", "evaluate"])
def test_readers_of_a_damaged_journal_say_so_in_a_line(
    groupwise: Command,  # noqa: F811
    source: Path,
    tmp_path: Path,
    command: str,
) -> None:
    shutil.copytree(source, tmp_path / "run")
    path = tmp_path / "run" / "journal.sqlite"
    for page in range(2, path.stat().st_size // PAGE + 1):
        spoil_page(path, page)
    ran = groupwise(command, "run")
    assert ran.status == 2
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) == 1 or command == "evaluate"
    assert "damaged" in ran.err or "there is no config.toml" in ran.err


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE trajectories SET steps = x'00'", lambda journal: list(journal.trajectories(1))),
        ("UPDATE trajectories SET credit = 5", lambda journal: list(journal.trajectories(1))),
        ("UPDATE trajectories SET origin = CAST(x'ff' AS TEXT)", lambda journal: journal.rollouts()),
        ("UPDATE metrics SET value = 'much'", lambda journal: journal.curve("loss/total")),
        ("DROP TABLE metrics", lambda journal: journal.metric_names()),
        (
            "UPDATE past_rollouts SET states = x'00'",
            lambda journal: journal.past_rollouts.newest(max_rollouts=3, after=0),
        ),
    ],
)
def test_values_that_are_none_are_a_sentence(folder: Path, statement: str, read: Callable[[Journal], object]) -> None:
    database = sqlite3.connect(folder / "journal.sqlite")
    with database:
        database.execute(statement)
    database.close()
    with Journal(folder / "journal.sqlite", read_only=True) as journal, pytest.raises(FileError) as caught:
        read(journal)
    assert str(caught.value).startswith(f"{folder / 'journal.sqlite'}: the journal is damaged (")
    assert "\n" not in str(caught.value)


def test_a_finished_run_whose_evaluations_are_damaged_makes_the_last_one_again(
    groupwise: Command,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    path = tmp_path / "run" / "journal.sqlite"
    with Journal(path, read_only=True) as journal:
        before = journal.evaluations()
    spoil_page(path, pages_of(path, "name = 'evaluations'")[-1])
    assert "the journal is damaged" in groupwise("inspect", "run").err
    ran = groupwise("train", "--resume", "run")
    assert ran.status == 0, ran.err
    with Journal(path, read_only=True) as journal:
        assert journal.evaluations() == [each for each in before if each.number == 2]
