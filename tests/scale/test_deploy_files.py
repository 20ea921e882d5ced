"""Files of deploy/ put to the validators of those who will read them, and the pods' commands run for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from groupwise.system.processes import find_free_port
from tests.measured_numbers import Numbers
from tests.scale.environment import PATIENCE, ROOT
from tests.scale.launched_runs import OPTIONS, RUN_FILE, make_model, read_digest

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "k8s").glob("*.yaml"))


def validate(name: str, *words: str | Path) -> str:
    """Run a validator, which must find nothing; skipped where there is none."""
    program = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip(f"needs {name}, which `make test-scale` installs")
    ran = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_kubernetes_takes_every_manifest(numbers: Numbers) -> None:
    said = validate("kubernetes-validate", "--strict", *MANIFESTS)
    documents = [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())]
    assert said.count(" passed for resource ") == len(documents)
    numbers.measured["Kubernetes: objects that pass the official schema, strictly"] = len(documents)
    numbers.measured["Kubernetes: version of the schema"] = said.split(" against version ")[1].split()[0]


def test_a_manifest_with_a_slip_is_found(tmp_path: Path) -> None:
    wrong = (DEPLOY / "k8s" / "train_one_node.yaml").read_text().replace("backoffLimit:", "backofLimit:")
    (tmp_path / "wrong.yaml").write_text(wrong)
    with pytest.raises(AssertionError, match="backofLimit"):
        validate("kubernetes-validate", "--strict", tmp_path / "wrong.yaml")


def test_shellcheck_finds_nothing(numbers: Numbers) -> None:
    validate("shellcheck", DEPLOY / "slurm" / "train.sbatch")
    numbers.measured["Slurm: shellcheck finds nothing"] = True


def test_hadolint_finds_nothing(numbers: Numbers) -> None:
    validate("hadolint", DEPLOY / "Dockerfile")
    numbers.measured["image: hadolint finds nothing; not built"] = True


def read_command(path: Path, node: int, place: Path, port: int) -> list[str]:
    """The command of the learner's pod on a node, for this machine: other folders, and one rank a node."""
    [job] = [item for item in yaml.safe_load_all(path.read_text()) if item["kind"] == "Job"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    changes = {
        "$(NODE_RANK)": str(node),
        "--nproc-per-node=8": "--nproc-per-node=1",
        "groupwise-train-0.groupwise-train": "127.0.0.1",
        "--master-port=29500": f"--master-port={port}",
        "/config/run.toml": str(RUN_FILE),
        "/runs/first": str(place / "first"),
    }
    words: list[str] = container["args"]
    for old, new in changes.items():
        assert any(old in word for word in words), old
        words = [word.replace(old, new) for word in words]
    assert container["command"] == ["torchrun"]
    return [sys.executable, "-m", "torch.distributed.run", *words, *OPTIONS]


def test_the_pods_of_two_nodes_train_the_run_of_one(tmp_path: Path, numbers: Numbers) -> None:
    make_model(tmp_path)
    port, env = find_free_port(), os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    settings: dict[str, Any] = {"cwd": tmp_path, "env": env}
    path = DEPLOY / "k8s" / "train_two_nodes.yaml"
    # The second pod may be there first.
    second = subprocess.Popen(read_command(path, 1, tmp_path, port), **settings)
    time.sleep(3.0)
    first = subprocess.Popen(read_command(path, 0, tmp_path, port), **settings)
    try:
        assert (first.wait(timeout=PATIENCE), second.wait(timeout=PATIENCE)) == (0, 0)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "groupwise", "train"]
    one_node = [sys.executable, *words, str(RUN_FILE), "--out", "one_node", "--plain", *OPTIONS]
    subprocess.run(one_node, check=True, timeout=PATIENCE, **settings)
    assert read_digest(tmp_path / "first") == read_digest(tmp_path / "one_node")
    numbers.measured["Kubernetes: commands of two pods, run here, equal to one node to the bit"] = True
