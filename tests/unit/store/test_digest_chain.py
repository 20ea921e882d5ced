"""The chain of digests: what a run's seed decides is in it, what the clock decides is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.store.journal import Journal
from tests.unit.store.journal_updates import update


def digest_with(folder: Path, **metrics: float) -> str:
    """The digest after one update that logged some metrics besides."""
    path = folder / f"{len(list(folder.iterdir()))}.sqlite"
    plain = update(1)
    with Journal(path) as journal:
        journal.write(replace(plain, metrics={**plain.metrics, **metrics}))
    with closing(sqlite3.connect(path)) as database:
        digest: str = database.execute("SELECT digest FROM updates WHERE number = 1").fetchone()[0]
        return digest


@pytest.mark.parametrize("name", ["seconds/learn", "speed/env_steps", "replicas/alive", "replicas/3/requests"])
def test_what_the_clock_decides_is_left_out(tmp_path: Path, name: str) -> None:
    assert digest_with(tmp_path, **{name: 1.0}) == digest_with(tmp_path, **{name: 2.0}) == digest_with(tmp_path)


@pytest.mark.parametrize("name", ["rollout/entropy", "weights/check_gap", "extra/replicas/0"])
def test_what_the_seed_decides_is_in_it(tmp_path: Path, name: str) -> None:
    assert len({digest_with(tmp_path, **{name: value}) for value in (1.0, 2.0)}) == 2
