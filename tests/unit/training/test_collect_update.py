"""Gathering an update's rollouts: tasks by turns, further rollouts at a task that comes again, refills."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.rollout import TopUp
from groupwise.training.collect.collect import collect_update
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config, small_run


def test_each_task_gets_its_rollouts_and_every_rollout_is_chosen(tmp_path: Path) -> None:
    rollouts = collect_update(small_run(tmp_path), 1)
    assert len(rollouts.played) == len(rollouts.survivors) == len(rollouts.chosen) == 16
    assert sorted({trajectory.rollout for trajectory in rollouts.chosen}) == list(range(8))
    assert len({trajectory.id for trajectory in rollouts.chosen}) == 16


def test_a_task_that_comes_again_gets_further_rollouts(tmp_path: Path) -> None:
    config = small_config()
    more = config.model_copy(update={"training": config.training.model_copy(update={"tasks": 6})})
    run = open_run(more, tmp_path)
    rollouts = collect_update(run, 1)
    assert len(rollouts.chosen) == 48
    assert len({trajectory.id for trajectory in rollouts.chosen}) == 48, "no rollout is made twice"
    assert len({trajectory.task.id for trajectory in rollouts.chosen}) == len(run.tasks[:6])


def test_a_topped_up_update_trains_on_groups_that_differ_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    config = small_config(updates=4)
    plan = config.rollout.model_copy(update={"group_size": 8, "plan": TopUp(rounds=5)})
    config = config.model_copy(update={"rollout": plan})
    whole = open_run(config, tmp_path / "whole")
    train(whole)
    groups: dict[tuple[int, str], set[float]] = {}
    for number in range(1, 5):
        for row in whole.journal.trajectories(number):
            groups.setdefault((number, row["task"]), set()).add(row["success"])
    assert groups
    assert all(len(scores) == 2 for scores in groups.values()), "every group that trains has both"
    cut = open_run(
        config.model_copy(update={"training": config.training.model_copy(update={"updates": 2})}), tmp_path / "cut"
    )
    train(cut)
    resumed = open_run(config, tmp_path / "cut")
    train(resumed, resume=True)
    for number in range(1, 5):
        assert list(resumed.journal.trajectories(number)) == list(whole.journal.trajectories(number))
