"""Rollouts that were played ahead come back from the journal exactly, and damage among them is noticed."""

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
from groupwise.training.collect.collect import UpdateRollouts
from groupwise.training.collect.pending import read_pending, write_pending
from tests.laws.update_rollouts import update_rollouts


def write_journal(folder: Path, name: str, **pending: UpdateRollouts) -> Journal:
    """A journal whose update 1 was written with rollouts that were played ahead for others."""
    journal = Journal(folder / name)
    written = {int(number.removeprefix("for_")): write_pending(rollouts) for number, rollouts in pending.items()}
    journal.write(Update(number=1, version=1, metrics={}, pending=written))
    return journal


@given(rollouts=update_rollouts(), later=update_rollouts())
def test_rollouts_come_back_as_they_were_down_to_types_and_signs(
    rollouts: UpdateRollouts, later: UpdateRollouts
) -> None:
    with TemporaryDirectory() as folder:
        with write_journal(Path(folder), "journal", for_2=rollouts, for_3=later) as journal:
            digest = journal.digest_pending(1)
        with Journal(Path(folder) / "journal") as journal:
            ready = {number: read_pending(pending) for number, pending in journal.read_pending(1).items()}
            assert journal.digest_pending(1) == digest
    assert repr(ready) == repr({2: rollouts, 3: later})  # a tuple is no list here, and 0.0 neither 0 nor -0.0


@given(rollouts=update_rollouts())
def test_steps_that_stand_in_several_places_are_written_once(rollouts: UpdateRollouts) -> None:
    copied = [replace(trajectory) for trajectory in rollouts.played]
    shaped = [
        replace(trajectory, steps=(*trajectory.steps[:-1], replace(trajectory.steps[-1], shaped=1.0)))
        for trajectory in copied
    ]
    everywhere = replace(rollouts, survivors=copied, chosen=shaped, replayed=(), set_aside=())
    _, *written = write_pending(everywhere).contents
    assert [len(unpack_blob(steps)) for steps in written] == [len(trajectory.steps) + 1 for trajectory in copied]


@given(rollouts=update_rollouts(), seconds=st.floats(0, 9), change=st.sampled_from(("left_out", "by", "number")))
def test_a_digest_says_all_but_what_the_clock_said(rollouts: UpdateRollouts, seconds: float, change: str) -> None:
    slower = replace(rollouts, waiting=EnvTiming(steps=1, seconds=seconds), played_in=seconds)
    other = {
        "left_out": replace(rollouts, left_out=rollouts.left_out + 1),
        "by": replace(rollouts, set_aside=[replace(rollouts.set_aside[0], by="somebody else")]),
        "number": rollouts,
    }[change]
    with (
        TemporaryDirectory() as folder,
        write_journal(Path(folder), "first", for_2=rollouts) as journal,
        write_journal(Path(folder), "slower", for_2=slower) as same,
        write_journal(Path(folder), "other", **{"for_3" if change == "number" else "for_2": other}) as changed,
    ):
        assert journal.digest_pending(1) == same.digest_pending(1)
        assert journal.digest_pending(1) != changed.digest_pending(1)
        assert journal.digest() == same.digest() == changed.digest()  # none of it is in the chain
