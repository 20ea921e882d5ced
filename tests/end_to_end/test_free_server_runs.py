"""Free lag through our own server in another process: rollouts go on over real weight syncs, and all are trained."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.training.config.run_file import decode_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.end_to_end.overlapping_runs import KINDS

pytestmark = pytest.mark.more

UPDATES = 5


def test_a_free_run_trains_what_it_asked_for_and_evaluates_while_others_play(tmp_path: Path) -> None:
    settings = ["rollout.lag=free", "rollout.max_staleness=2", f"training.updates={UPDATES}", "warm_start.tasks=30"]
    content = KINDS["rounds"] | {"engine": {"kind": "server"}}
    settings += ["rollout.plan=flat", "rollout.group_size=4", "evaluation.tasks=4", "evaluation.every=2"]
    config = decode_run(content, overrides=settings)
    with open_run(config, tmp_path) as run:
        train(run)
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        assert journal.check_digest_chain().fault is None
        assert journal.update_numbers() == list(range(1, UPDATES + 1))
        assert {row.number for row in journal.evaluations()} == {0, 2, 4, UPDATES}
        ages = dict(journal.curve("rollout/max_staleness"))
        rollouts = [list(journal.trajectories(number)) for number in range(1, UPDATES + 1)]
    assert max(ages.values()) <= 2
    assert ages[1] == 0
    assert [len(of_update) for of_update in rollouts] == [4 * config.training.tasks] * UPDATES
    for number, of_update in enumerate(rollouts, start=1):
        versions = {step["version"] for rollout in of_update for step in rollout["steps"]}
        assert versions <= set(range(max(number - 3, 0), number)), (number, versions)
