"""The batch file on a real Slurm: two nodes that are both this machine, two ranks over gloo."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measured_numbers import Numbers
from tests.scale.environment import PATIENCE, ROOT
from tests.scale.launched_runs import OPTIONS, RUN_FILE, make_model, read_digest
from tests.scale.slurm_cluster import SlurmCluster, lacks_slurm, start_cluster

BATCH_FILE = str(ROOT / "deploy" / "slurm" / "train.sbatch")
VARIABLES = {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    reason = lacks_slurm()
    if reason:
        pytest.skip(reason)
    with start_cluster(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cluster: SlurmCluster) -> Path:
    """Where jobs are submitted: with the model, and the run as torchrun makes it without Slurm."""
    folder = tmp_path_factory.mktemp("jobs")
    make_model(folder)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "groupwise", "train"]
    command = [sys.executable, *words, str(RUN_FILE), "--out", "undisturbed", "--plain", *OPTIONS]
    subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE)
    return folder


def submit(cluster: SlurmCluster, place: Path, folder: str, *words: str, **variables: str) -> str:
    """Submit the batch file; the job's number."""
    command = ["sbatch", "--parsable", *words, BATCH_FILE, str(RUN_FILE), folder, *OPTIONS]
    return cluster.ask(*command, cwd=place, **VARIABLES, **variables).strip()


def wait_for(cluster: SlurmCluster, job: str, states: set[str]) -> str:
    deadline = time.monotonic() + PATIENCE
    while (state := cluster.read_state(job)) not in states:
        assert time.monotonic() < deadline, f"the job is {state}"
        time.sleep(1.0)
    return state


def read_log(place: Path, job: str) -> str:
    path = place / f"groupwise-{job}.log"
    return path.read_text() if path.exists() else ""


def test_slurm_takes_the_batch_file(cluster: SlurmCluster, tmp_path: Path) -> None:
    command = ["sbatch", "--test-only", "--nodes=2", BATCH_FILE, "run.toml", "folder"]
    assert "to start at" in cluster.ask(*command, cwd=tmp_path)


def test_a_run_on_two_nodes_that_is_put_back_into_the_queue_goes_on_to_the_bit(
    cluster: SlurmCluster, place: Path, numbers: Numbers
) -> None:
    job, began = submit(cluster, place, "requeued", "--nodes=2"), time.monotonic()
    deadline = time.monotonic() + PATIENCE
    while "update    3" not in read_log(place, job):
        assert cluster.read_state(job) not in ENDED, read_log(place, job)
        assert time.monotonic() < deadline
        time.sleep(0.5)
    cluster.ask("scancel", "--signal=USR1", "--batch", job)  # what --signal sends before the time limit
    wait_for(cluster, job, {"PENDING"})
    assert "time is almost up: the job is put back into the queue" in read_log(place, job)
    cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would let two minutes pass
    assert wait_for(cluster, job, ENDED) == "COMPLETED", read_log(place, job)
    assert read_log(place, job).count("update    3") == 2, "the third was made again: the last checkpoint is the second"
    assert read_digest(place / "requeued") == read_digest(place / "undisturbed")
    numbers.measured["Slurm: two nodes, requeued, equal to the bit"] = True
    numbers.measured["Slurm: seconds from sbatch to the end, one requeue"] = round(time.monotonic() - began)


def test_servers_on_a_node_of_their_own_change_no_bit(cluster: SlurmCluster, place: Path, numbers: Numbers) -> None:
    variables = {"SERVER_NODES": "1", "MODEL": "model", "RANKS_PER_NODE": "2"}
    job = submit(cluster, place, "served", "--nodes=2", **variables)
    assert wait_for(cluster, job, ENDED) == "COMPLETED", read_log(place, job)
    assert read_digest(place / "served") == read_digest(place / "undisturbed")
    assert not (place / "served" / "servers").exists(), "the run started none of its own"
    numbers.measured["Slurm: two ranks on one node, a server on another, equal to the bit"] = True


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SERVER_NODES": "1"}, "SERVER_NODES is 1, but MODEL names no folder of a model for them to load; set it"),
        ({"SERVER_NODES": "2", "MODEL": "model"}, "2 nodes are too few for 2 of servers and one of the learner; give"),
    ],
)
def test_what_cannot_be_started_is_said_in_one_sentence(
    cluster: SlurmCluster, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    job = submit(cluster, tmp_path, "never", "--nodes=2", **variables)
    assert wait_for(cluster, job, ENDED) == "FAILED"
    assert read_log(tmp_path, job).startswith(f"error: {message}")
    assert not (tmp_path / "never").exists()
