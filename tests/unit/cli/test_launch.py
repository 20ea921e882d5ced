"""`groupwise launch`: what it refuses, and what the ranks that it places are told to do; the cluster is played."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines import ray_cluster
from groupwise.training import launch as ranks
from groupwise.training.launch import RankStatuses
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small


class PlayedCluster:
    """A cluster that places nothing, and keeps what it was asked for."""

    asked: list[Any]
    address = "127.0.0.1:6379"

    def __init__(self, address: str) -> None:
        self.asked.append(address)

    def __enter__(self) -> PlayedCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.asked.append("left")

    def reserve(self, count: int, **asked: Any) -> PlayedCluster:
        self.asked.append((count, asked))
        return self

    def give_back(self) -> None:
        self.asked.append("given back")

    def place(self, make: Any, *, name: str, **asked: Any) -> str:
        return name


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PlayedCluster]]:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(PlayedCluster, "asked", [], raising=False)
    monkeypatch.setattr(ray_cluster, "RayCluster", PlayedCluster)
    yield PlayedCluster
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[str], dict[str, str], bool]]:
    """The ranks that were started, with their command and variables; the first time one of them dies."""
    started: list[tuple[list[str], list[str], dict[str, str], bool]] = []

    def run_ranks(places: Any, arguments: Any, variables: Any, *, with_gpus: bool, show: Any) -> RankStatuses:
        started.append((places, arguments, variables, with_gpus))
        show(0, "update 1\n")
        show(1, "lost the others\n")
        return RankStatuses((2, 137), (1,)) if len(started) == 1 else RankStatuses((0, 0), ())

    monkeypatch.setattr(ranks, "run_ranks", run_ranks)
    return started


def test_ranks_train_the_run_file_and_are_started_again_where_one_died(
    groupwise: Run, cluster: type[PlayedCluster], started: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / small(tmp_path)
    words = (
        "--ranks",
        "2",
        "--gpus",
        "1",
        "--cpus",
        "4",
        "--set",
        "seed=3",
        "--unset",
        "training.tasks",
        "--out",
        "first",
    )
    ran = groupwise("launch", str(file), *words)
    assert ran.status == 0, ran.err
    folder = str(tmp_path / "first")
    command = [sys.executable, "-P", "-m", "groupwise", "train", str(file), "--out", folder, "--plain"]
    assert [arguments for _, arguments, _, _ in started] == [
        [*command, "--unset", "training.tasks", "--set", "seed=3"]
    ] * 2
    assert started[0][0] == ["rank 0", "rank 1"]
    assert started[0][2]["GROUPWISE_RAY"] == "127.0.0.1:6379 4"
    assert started[0][3]
    assert cluster.asked[:2] == ["local", (2, {"cpus": 4.0, "gpus": 1, "timeout": 600.0})]
    assert cluster.asked[-1] == "left"
    assert ran.out.splitlines()[:2] == ["update 1", "rank 1: lost the others"]
    assert "rank 1 has died; the run begins again (restart 1 of 3)" in ran.err


def test_a_run_that_has_begun_goes_on(
    groupwise: Run, cluster: type[PlayedCluster], started: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "journal.sqlite").touch()
    refused = groupwise("launch", str(small(tmp_path)), "--out", "first")
    assert refused.status == 2
    assert "already has a run; continue it with --resume" in refused.err
    assert groupwise("launch", str(small(tmp_path)), "--out", "first", "--resume").status == 0
    assert [arguments[-1] for _, arguments, _, _ in started] == ["--resume", "--resume"]


def test_a_run_that_was_given_up_ends_with_the_status_of_its_ranks(
    groupwise: Run, cluster: type[PlayedCluster], started: list[Any], tmp_path: Path
) -> None:
    ran = groupwise("launch", str(small(tmp_path)), "--restarts", "0")
    assert ran.status == 2
    assert "rank 1 has died, and 0 restarts were allowed; continue with --resume" in ran.err


def test_a_wrong_run_file_is_refused_before_a_cluster_is_joined(
    groupwise: Run, cluster: type[PlayedCluster], tmp_path: Path
) -> None:
    ran = groupwise("launch", str(small(tmp_path)), "--set", "training.updates=-1")
    assert ran.status == 2
    assert "training.updates" in ran.err
    assert cluster.asked == []


def test_ctrl_c_says_how_to_go_on(
    groupwise: Run, cluster: type[PlayedCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*arguments: Any, **settings: Any) -> RankStatuses:
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks, "run_ranks", interrupt)
    ran = groupwise("launch", str(small(tmp_path)), "--out", "first")
    assert ran.status == 130
    assert "stopped; resume with: groupwise launch" in ran.err
    assert ran.err.rstrip().endswith("--resume")
    assert cluster.asked[-2:] == ["given back", "left"]


def test_without_ray_it_says_what_to_install(groupwise: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = groupwise("launch", str(small(tmp_path)))
    assert (ran.status, ran.out) == (2, "")
    assert "launching on Ray needs Ray; install it with pip install 'groupwise[ray]'" in " ".join(ran.err.split())
