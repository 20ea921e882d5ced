"""Runs that Ray has placed: the same as others, and going on where a server or a rank is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file

from tests.measured_numbers import Numbers
from tests.scale.environment import (
    HERE,
    Command,
    lacks_ray,
    launch_on_ray,
    list_addresses,
    read_curve,
    read_processor_seconds,
    read_responses,
    start_command,
    wait_until,
    write_run_file,
)
from tests.vllm.environment import PYTHON, find_reason_to_skip

UPDATES = 16
SERVER, RANK = "groupwise.engines.server", "-m groupwise train"


@pytest.fixture(scope="module", autouse=True)
def ray_is_there() -> None:
    """Skip where there is no Ray."""
    reason = lacks_ray()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def file(beginning: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks and two servers; what was sampled decides the update, not how it was rounded on the way."""
    changes = {
        "engine": {"kind": "server", "replicas": 2},
        "algorithm.loss": {"old": "learner"},
        "training": {"updates": UPDATES, "checkpoint_every": 1},
        "training.learner": {"kind": "sharded", "ranks": 2},
        "evaluation": {"tasks": 0},
    }
    return write_run_file(tmp_path_factory.mktemp("ray") / "run.toml", beginning, changes)


@pytest.fixture(scope="module")
def undisturbed(file: Path) -> Path:
    """A run in which nothing died."""
    folder = file.parent / "undisturbed"
    with start_command(launch_on_ray(file, folder), file.parent / "undisturbed.log") as command:
        command.finish()
    return folder


def compare(some: Path, other: Path) -> None:
    """Two runs must have sampled the same tokens, and have come to the same weights, to the bit."""
    first, second = read_responses(some), read_responses(other)
    assert {number for number, _, _ in first} == set(range(1, UPDATES + 1))
    assert first == second
    last = f"checkpoints/{UPDATES:04d}/model.safetensors"
    weights, others = load_file(some / last), load_file(other / last)
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def kill_server_while_it_samples(command: Command, folder: Path, *, after: int) -> None:
    """Kill a server with the ninth signal in the middle of the update that follows one."""
    wait_until(lambda: after in read_curve(folder, "replicas/alive"), command, f"update {after} was not made")
    server = min(command.list_processes(SERVER))
    idle = read_processor_seconds(server)
    wait_until(lambda: read_processor_seconds(server) > idle + 0.3, command, "no server sampled anything")
    os.kill(server, signal.SIGKILL)


def test_a_server_that_is_killed_is_placed_again_and_the_run_goes_on(
    file: Path, undisturbed: Path, tmp_path: Path, numbers: Numbers
) -> None:
    folder = tmp_path / "run"
    with start_command(launch_on_ray(file, folder), tmp_path / "log") as command:
        kill_server_while_it_samples(command, folder, after=2)
        command.finish()
    left, back = read_curve(folder, "replicas/left"), read_curve(folder, "replicas/readmitted")
    again, alive = read_curve(folder, "replicas/sent_again"), read_curve(folder, "replicas/alive")
    numbers.measured["Ray, a server killed: in update"] = [number for number, count in left.items() if count]
    numbers.measured["Ray, a server killed: requests sent again"] = sum(again.values())
    numbers.measured["Ray, a server killed: readmitted at the end of update"] = [
        number for number, count in back.items() if count
    ]
    assert (sum(left.values()), sum(back.values())) == (1.0, 1.0)
    assert sum(again.values()) > 0
    assert (alive[1], alive[UPDATES]) == (2.0, 2.0)
    compare(undisturbed, folder)


def test_a_rank_that_is_killed_is_started_again_and_the_run_goes_on(
    file: Path, undisturbed: Path, tmp_path: Path, numbers: Numbers
) -> None:
    folder = tmp_path / "run"
    with start_command(launch_on_ray(file, folder), tmp_path / "log") as command:
        wait_until(lambda: 3 in read_curve(folder, "replicas/alive"), command, "update 3 was not made")
        [rank] = command.list_processes(RANK, RANK="1")
        os.kill(rank, signal.SIGKILL)
        command.finish()
        log = command.log.read_text(encoding="utf-8")
    assert "rank 1 has died; the run resumes from its folder (restart 1 of 3)" in log
    compare(undisturbed, folder)
    numbers.measured["Ray, a rank killed: run and weights as if it were not"] = True


def test_all_listen_here_alone_and_nothing_outlives_a_launcher_that_is_killed(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start_command(launch_on_ray(file, folder), tmp_path / "log") as command:
        wait_until(lambda: 1 in read_curve(folder, "replicas/alive"), command, "update 1 was not made")
        assert len(command.list_processes(SERVER)) == 2
        ranks = {pid for number in range(2) for pid in command.list_processes(RANK=str(number))}
        addresses = [list_addresses(pid) for pid in set(command.list_processes()) - ranks]  # torch's store is open
        assert sum(map(bool, addresses)) >= 6  # two servers, and Ray
        assert set().union(*addresses) <= HERE
        os.kill(command.pid, signal.SIGKILL)


def test_a_server_of_vllm_and_a_rank_alone_are_placed(beginning: Path, tmp_path: Path) -> None:
    reason = find_reason_to_skip()
    if reason:
        pytest.skip(reason)
    changes = {
        "engine": {"kind": "vllm", "replicas": 1, "python": PYTHON},
        "training": {"updates": 2, "tasks": 4},
        "evaluation": {"tasks": 0},
    }
    file = write_run_file(tmp_path / "run.toml", beginning, changes)
    with start_command(launch_on_ray(file, tmp_path / "run", ranks=1), tmp_path / "log") as command:
        command.finish()
    assert read_curve(tmp_path / "run", "replicas/alive") == {1: 1.0, 2: 1.0}


def test_fewer_gpus_than_asked_are_one_sentence(file: Path, tmp_path: Path) -> None:
    with start_command([*launch_on_ray(file, tmp_path / "run"), "--gpus", "1"], tmp_path / "log") as command:
        with pytest.raises(AssertionError):
            command.finish()
        log = " ".join(command.log.read_text(encoding="utf-8").split())
    assert "2 times 0.25 CPUs and 1 GPUs are requested, but the cluster has" in log
    assert log.endswith("0 GPUs; request less, or add nodes")
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_is_not_there_is_one_sentence(file: Path) -> None:
    command = [*launch_on_ray(file, file.parent / "none"), "--address", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert "the Ray cluster '127.0.0.1:1' could not be joined" in " ".join(done.stderr.split())
    assert sys.executable not in done.stderr
