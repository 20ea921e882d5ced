"""Attempts that were played ahead come back from the journal exactly, and damage among them is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("torch")

import hypothesis.strategies as st
from hypothesis import given

from groupwise.rollout.environment_runner import EnvTiming
from groupwise.store.journal import Journal, Update
from groupwise.store.journal_file import unpack_blob
from groupwise.training.collect.collect import UpdateAttempts
from groupwise.training.collect.pending import read_pending, write_pending
from tests.laws.update_attempts import update_attempts


def write_journal(folder: Path, name: str, **pending: UpdateAttempts) -> Journal:
    """A journal whose update 1 was written with attempts that were played ahead for others."""
    journal = Journal(folder / name)
    written = {int(number.removeprefix("for_")): write_pending(attempts) for number, attempts in pending.items()}
    journal.write(Update(number=1, version=1, metrics={}, pending=written))
    return journal


@given(attempts=update_attempts(), later=update_attempts())
def test_attempts_come_back_as_they_were_down_to_types_and_signs(
    attempts: UpdateAttempts, later: UpdateAttempts
) -> None:
    with TemporaryDirectory() as folder:
        with write_journal(Path(folder), "journal", for_2=attempts, for_3=later) as journal:
            digest = journal.digest_pending(1)
        with Journal(Path(folder) / "journal") as journal:
            ready = {number: read_pending(pending) for number, pending in journal.read_pending(1).items()}
            assert journal.digest_pending(1) == digest
    assert repr(ready) == repr({2: attempts, 3: later})  # a tuple is no list here, and 0.0 neither 0 nor -0.0


@given(attempts=update_attempts())
def test_steps_that_stand_in_several_places_are_written_once(attempts: UpdateAttempts) -> None:
    copied = [replace(trajectory) for trajectory in attempts.played]
    shaped = [
        replace(trajectory, steps=(*trajectory.steps[:-1], replace(trajectory.steps[-1], shaped=1.0)))
        for trajectory in copied
    ]
    everywhere = replace(attempts, survivors=copied, chosen=shaped, recalled=(), set_aside=())
    _, *written = write_pending(everywhere).contents
    assert [len(unpack_blob(steps)) for steps in written] == [len(trajectory.steps) + 1 for trajectory in copied]


@given(attempts=update_attempts(), seconds=st.floats(0, 9), change=st.sampled_from(("left_out", "by", "number")))
def test_a_digest_says_all_but_what_the_clock_said(attempts: UpdateAttempts, seconds: float, change: str) -> None:
    slower = replace(attempts, waiting=EnvTiming(steps=1, seconds=seconds), played_in=seconds)
    other = {
        "left_out": replace(attempts, left_out=attempts.left_out + 1),
        "by": replace(attempts, set_aside=[replace(attempts.set_aside[0], by="somebody else")]),
        "number": attempts,
    }[change]
    with (
        TemporaryDirectory() as folder,
        write_journal(Path(folder), "first", for_2=attempts) as journal,
        write_journal(Path(folder), "slower", for_2=slower) as same,
        write_journal(Path(folder), "other", **{"for_3" if change == "number" else "for_2": other}) as changed,
    ):
        assert journal.digest_pending(1) == same.digest_pending(1)
        assert journal.digest_pending(1) != changed.digest_pending(1)
        assert journal.digest() == same.digest() == changed.digest()  # none of it is in the chain
