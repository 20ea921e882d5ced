"""What was played ahead, in the journal: kept for whoever goes on from there, and no longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from groupwise.store.journal import Journal, PendingRollouts
from tests.unit.store.journal_updates import update

AHEAD = PendingRollouts(contents=[b"who takes part", b"one", b"two"], clock=b"a second")


def write(journal: Journal, number: int, *following: int, checkpoints: tuple[int, ...] = ()) -> None:
    pending = dict.fromkeys(following, AHEAD)
    journal.write(replace(update(number), pending=pending), checkpoints=checkpoints)


def read(journal: Journal) -> dict[int, list[int]]:
    return {number: journal.list_pending(number) for number in range(6) if journal.list_pending(number)}


def test_a_journal_without_overlap_holds_none(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        write(journal, 1)
        assert read(journal) == {}
        assert journal.read_pending(1) == {}
        assert journal.digest_pending(1) is None


def test_rows_come_back_by_the_update_that_they_are_for(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        write(journal, 1, 2, 3)
        assert journal.read_pending(1) == {2: AHEAD, 3: AHEAD}
        assert journal.list_pending(1) == [2, 3]
    with Journal(tmp_path / "journal", read_only=True) as journal:
        assert journal.read_pending(1) == {2: AHEAD, 3: AHEAD}


def test_what_nobody_can_go_on_from_goes_with_the_next_update(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        write(journal, 1, 2)
        write(journal, 2, 3, checkpoints=(0, 1))
        assert read(journal) == {1: [2], 2: [3]}
        write(journal, 3, 4, checkpoints=(0, 1))
        assert read(journal) == {1: [2], 3: [4]}
        write(journal, 4, checkpoints=(0,))
        assert read(journal) == {}


def test_what_came_after_a_checkpoint_is_forgotten_with_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal") as journal:
        write(journal, 1, 2)
        write(journal, 2, 3, checkpoints=(1, 2))
        journal.forget_after(1)
        assert read(journal) == {1: [2]}


def test_a_journal_that_is_written_anew_keeps_them(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        write(journal, 1, 2)
        write(journal, 2, 3, checkpoints=(1, 2))
        digest = journal.digest_pending(1)
        journal.rewrite_up_to(1)
        assert read(journal) == {1: [2]}
        assert journal.digest_pending(1) == digest


def test_pending_rollouts_are_no_part_of_the_chain(tmp_path: Path) -> None:
    with Journal(tmp_path / "with") as ahead, Journal(tmp_path / "without") as alone:
        write(ahead, 1, 2)
        write(alone, 1)
        assert ahead.digest() == alone.digest()
