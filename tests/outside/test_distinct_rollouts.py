"""A rollout filter from outside the tree: what it leaves out leaves the statistics, and stays in the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from tests.outside.running import SMALL_RUN, groupwise, train_from_file

RUN = (
    SMALL_RUN
    + """
[algorithm]
method = "dr_grpo"
rollout_filters = ["distinct_rollouts:Distinct"]
"""
)


def test_rollouts_that_repeat_another_are_compared_once(tmp_path: Path) -> None:
    words = ("env={kind='identity', num_words=4, length=1}", "rollout.max_tokens=1", "rollout.group_size=6")
    warm = "warm_start={tasks=4, epochs=40, expert_noise=0.5, learning_rate=1e-2}"
    run = train_from_file(tmp_path, RUN, *(part for setting in (*words, warm) for part in ("--set", setting)))
    repeated = 0
    with Journal(run / "journal.sqlite", read_only=True) as journal:
        for number in journal.update_numbers():
            rows = list(journal.trajectories(number))
            aside = journal.set_aside(number)
            for task in {row["task"] for row in rows}:
                actions = {row["rollout"]: row["steps"][0]["action"] for row in rows if row["task"] == task}
                left_out = {row["rollout"]: row["steps"][0]["action"] for row in aside if row["task"] == task}
                assert len(set(actions.values())) == len(actions)
                assert sorted([*actions, *left_out]) == list(range(6))
                for rollout, action in left_out.items():
                    assert any(said == action and first < rollout for first, said in actions.items())
                credit = [row["credit"][0] for row in rows if row["task"] == task]
                assert sum(credit) == pytest.approx(0.0, abs=1e-9), "the mean is that of those who are compared"
            repeated += len(aside)
        share = dict(journal.curve("rollout/filtered_out"))
    assert repeated > 0
    assert sum(share.values()) == pytest.approx(repeated / 12)
    shown = groupwise("inspect", "run", "--update", "2", "--trust", cwd=tmp_path)
    assert "left out by the rollout filter distinct_rollouts:Distinct" in shown.stdout
