"""Whole runs with a sharded learner: rank 0 leads, the others follow, and a run that was killed goes on to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.local_files import MODEL, OPTIMIZER
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_config import RunConfig, WarmStartConfig
from groupwise.training.open_run import is_follower
from tests.unit.learner import rank_jobs
from tests.unit.learner.several_ranks import run_on_ranks, run_whole
from tests.unit.training.runs import small_config


def make_config(updates: int, **settings: Any) -> RunConfig:
    """A small run with a warm start, whose learner is in shares."""
    config = small_config(updates=updates, method="grpo")
    learner = ShardedLearnerConfig(learning_rate=1e-2, token_budget=64, minibatches=2, timeout=60.0, **settings)
    training = config.training.model_copy(update={"learner": learner})
    warm_start = WarmStartConfig(tasks=8, epochs=2)
    return config.model_copy(update={"training": training, "warm_start": warm_start})


def read_run(folder: Path, updates: int) -> tuple[Any, ...]:
    """What two runs must have in common to the bit."""
    paths = RunPaths(folder)
    with Journal(paths.journal, read_only=True) as journal:
        digest = journal.digest()
    checkpoint = paths.checkpoint(updates)
    return digest, (checkpoint / MODEL).read_bytes(), (checkpoint / OPTIMIZER).read_bytes()


def test_a_run_of_two_ranks_that_was_killed_goes_on_to_the_bit(tmp_path: Path) -> None:
    config = make_config(3)
    run_whole(rank_jobs.play_run, config, tmp_path / "whole", False, None)
    [leader, follower] = run_on_ranks(rank_jobs.play_run, config, tmp_path / "killed", False, 2)
    assert leader.error is None
    assert "lost the others" in str(follower.error)
    run_whole(rank_jobs.play_run, config, tmp_path / "killed", True, None)
    assert read_run(tmp_path / "killed", 3) == read_run(tmp_path / "whole", 3)


def test_a_run_of_a_single_rank_is_the_run_of_the_local_learner(tmp_path: Path) -> None:
    config = make_config(2)
    plain = {name: value for name, value in config.training.learner.config().items() if name not in SHARDED_ONLY}
    local = config.model_copy(
        update={"training": config.training.model_copy(update={"learner": LearnerConfig(**plain)})}
    )
    run_whole(rank_jobs.play_run, config, tmp_path / "sharded", False, None, world=1)
    run_whole(rank_jobs.play_run, local, tmp_path / "local", False, None, world=1)
    assert read_run(tmp_path / "sharded", 2) == read_run(tmp_path / "local", 2)


SHARDED_ONLY = {"kind", "ranks", "gather", "timeout"}


def start_as(monkeypatch: pytest.MonkeyPatch, *, rank: int | str, world: int) -> None:
    """Set what torchrun would."""
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_fewer_gpus_than_processes_of_a_machine_are_named_by_each_before_anything_opens(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for rank in (0, 1):
        start_as(monkeypatch, rank=rank, world=2)
        with pytest.raises(ConfigError) as caught:
            is_follower(make_config(1).model_copy(update={"device": device}))
        assert str(caught.value) == (
            f"rank {rank} is one of 2 processes on its machine, which has 1 GPU; start at most one process per GPU "
            "(torchrun --nproc-per-node), or use more GPUs"
        )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert is_follower(make_config(1).model_copy(update={"device": device}))


def test_several_processes_need_a_learner_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(monkeypatch, rank=1, world=2)
    with pytest.raises(ConfigError, match=r"2 processes were started, but the learner .* uses one"):
        is_follower(small_config())
    assert is_follower(make_config(1))


def test_other_numbers_of_processes_than_asked_for_are_refused_where_a_run_trains(tmp_path: Path) -> None:
    config = make_config(1, ranks=4)
    with pytest.raises(ConfigError, match=r"training.learner.ranks is 4, but 1 process was started.*torchrun"):
        is_follower(config)
    run_whole(rank_jobs.look_at_run, config, tmp_path, world=1)


def test_ranks_that_are_no_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(monkeypatch, rank="first", world=2)
    with pytest.raises(ConfigError, match="start the run with torchrun"):
        is_follower(make_config(1))


def test_every_process_of_a_run_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(monkeypatch, rank=0, world=2)
    config = make_config(1).model_copy(update={"device": "cuda:1"})
    with pytest.raises(ConfigError, match="would put every process on one GPU"):
        is_follower(config)


def test_a_reference_from_a_checkpoint_is_held_on_two_ranks_and_a_follower_that_is_gone_is_no_error(
    tmp_path: Path,
) -> None:
    run_whole(rank_jobs.play_run, make_config(1), tmp_path / "run", False, None)
    [leader, _] = run_on_ranks(rank_jobs.hold_and_lose_a_follower, RunPaths(tmp_path / "run").checkpoint(1))
    assert leader.error is None, leader.said
    saved, of_reference, now = leader.value
    assert saved == of_reference != now
