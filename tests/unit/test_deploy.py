"""Files that launch runs stay true to the product: they parse, and what they name is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from groupwise.cli.main import make_app
from groupwise.system.processes import NUMBERS
from groupwise.training.config.engine_config import VARIABLE
from groupwise.training.config.run_file import load_run

DEPLOY = Path(__file__).parents[2] / "deploy"
BATCH_FILE = (DEPLOY / "slurm" / "train.sbatch").read_text()
TORCHRUN = {"standalone", "nnodes", "node-rank", "nproc-per-node", "master-addr", "master-port", "max-restarts"}
"""Its options that the files use."""
OWN = {"PYTHON", "RANKS_PER_NODE", "SERVER_NODES", "SERVERS_PER_NODE", "MODEL", "SERVE_OPTIONS", "PORT"}
"""What the batch file reads, and says so at its head."""
SLURM = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_GPUS_ON_NODE", "SLURM_NODEID"}


def list_objects() -> list[tuple[str, Any]]:
    paths = sorted((DEPLOY / "k8s").glob("*.yaml"))
    return [(path.name, item) for path in paths for item in yaml.safe_load_all(path.read_text())]


def list_pods() -> Iterator[tuple[str, Any, Any]]:
    for name, item in list_objects():
        if "template" in item.get("spec", {}):
            pod = item["spec"]["template"]["spec"]
            [container] = pod["containers"]
            yield name, item, container


def check_command(words: list[str]) -> None:
    """Every command exists, with every option."""
    command: Any = get_command(make_app())
    name, *rest = words
    assert name in command.commands, name
    known = {option for parameter in command.commands[name].params for option in parameter.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known


def test_the_run_file_is_one_for_all() -> None:
    config = load_run(DEPLOY / "household.toml").config()
    assert config["engine"]["kind"] == "server"
    assert config["engine"]["urls"] == []
    assert config["training"]["learner"]["kind"] == "sharded"
    assert config["training"]["weight_sync"]["kind"] == "through_file", "other nodes have no memory in common"


def test_every_object_has_a_kind_and_a_name_once_in_a_file() -> None:
    names = [(path, item["kind"], item["metadata"]["name"]) for path, item in list_objects()]
    assert len(set(names)) == len(names) == 8
    assert {kind for _, kind, _ in names} >= {"Job", "StatefulSet", "Service", "PersistentVolumeClaim", "ConfigMap"}


@pytest.mark.parametrize(("item", "container"), [pytest.param(*pod, id=name) for name, *pod in list_pods()])
def test_what_pods_run_exists(item: Any, container: Any) -> None:
    words = [*container["command"], *container["args"]]
    if words[0] == "torchrun":
        place = words.index("-m")
        assert {word.removeprefix("--").partition("=")[0] for word in words[1:place]} <= TORCHRUN
        assert words[place + 1] == "groupwise"
        assert words[place + 2 :] == ["train", "/config/run.toml", "--out=/runs/first", "--resume", "--plain"]
        gpus = container["resources"]["limits"]["nvidia.com/gpu"]
        assert f"--nproc-per-node={gpus}" in words, "a rank for each GPU"
        words = words[place + 1 :]
    assert words[0] == "groupwise"
    check_command(words[1:])
    assert container["image"] == "groupwise", "a placeholder, no registry"
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in item["spec"]["template"]["spec"]["volumes"]}


def test_names_that_objects_call_each_other_by_are_theirs() -> None:
    objects = {(item["kind"], item["metadata"]["name"]): item for _, item in list_objects()}
    claim, engine = objects["PersistentVolumeClaim", "groupwise-runs"], objects["StatefulSet", "groupwise-engine"]
    for _, item, container in list_pods():
        pod = item["spec"]["template"]["spec"]
        [runs] = [volume for volume in pod["volumes"] if volume["name"] == "runs"]
        assert runs["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        for source in container.get("envFrom", ()):
            assert ("ConfigMap", source["configMapRef"]["name"]) in objects
    service = engine["spec"]["serviceName"]
    assert objects["Service", service]["spec"]["clusterIP"] == "None", "each pod has a name of its own"
    port = objects["Service", service]["spec"]["ports"][0]["port"]
    urls = [f"http://groupwise-engine-{number}.{service}:{port}" for number in range(engine["spec"]["replicas"])]
    assert objects["ConfigMap", "groupwise-engine"]["data"] == {VARIABLE: " ".join(urls)}
    assert f"--port={port}" in engine["spec"]["template"]["spec"]["containers"][0]["args"]


def test_two_nodes_meet_at_the_first_pod() -> None:
    items = [item for name, item in list_objects() if name == "train_two_nodes.yaml"]
    [service], [job] = ([item for item in items if item["kind"] == kind] for kind in ("Service", "Job"))
    spec = job["spec"]
    args = spec["template"]["spec"]["containers"][0]["args"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 2
    assert "--nnodes=2" in args
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert f"--master-addr={job['metadata']['name']}-0.{service['metadata']['name']}" in args
    assert f"--master-port={service['spec']['ports'][0]['port']}" in args
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_batch_file_reads_variables_that_exist_and_says_which_are_its_own() -> None:
    head, _, body = BATCH_FILE.partition("set -euo pipefail")
    read = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", body))
    assert read == OWN | SLURM
    assert {line.split()[1] for line in head.splitlines() if re.match(r"#     [A-Z_]+ ", line)} == OWN
    assert set(re.findall(r"^ *export ([A-Z_]+)", body, re.MULTILINE)) == {VARIABLE}
    assert not read & set(NUMBERS), "those are torchrun's to set"


def test_the_batch_file_runs_commands_that_exist() -> None:
    lines = BATCH_FILE.replace("\\\n", " ").splitlines()
    commands = [line.partition("-m groupwise ")[2].rstrip(" &") for line in lines if "-m groupwise " in line]
    assert len(commands) == 2
    for command in commands:
        check_command([word for word in shlex.split(command) if not word.startswith("$")])
    torchrun = re.findall(r"(?:run|\") --([a-z-]+)|\s--(nnodes|nproc-per-node|max-restarts)", "\n".join(lines))
    assert {first or second for first, second in torchrun} & TORCHRUN >= {"nnodes", "node-rank", "nproc-per-node"}


def test_servers_of_the_batch_file_listen_at_their_nodes_address_alone() -> None:
    assert "0.0.0.0" not in BATCH_FILE
    [serve] = [line for line in BATCH_FILE.replace("\\\n", " ").splitlines() if " serve " in line and "srun" in line]
    assert '--host "$address"' in serve
    assert 'address=$(getent ahostsv4 "$(find_address "$node")"' in BATCH_FILE


def test_the_batch_file_takes_no_port_that_linux_gives_out_by_itself() -> None:
    [(first, number)] = re.findall(r"\$\(\((\d+) \+ SLURM_JOB_ID % (\d+)\)\)", BATCH_FILE)
    assert int(first) + int(number) + 500 <= 32768, "there are further ones for servers"


def test_the_image_has_a_compiler_before_anything_else_is_installed() -> None:
    trainer = (DEPLOY / "Dockerfile").read_text().partition(" AS trainer")[2].partition("FROM ")[0]
    installed = trainer.partition("apt-get install")[2].partition("&&")[0].split()
    assert {"gcc", "g++", "libc6-dev"} <= set(installed), "Triton compiles at run time"


def test_files_name_no_registry_and_no_ones_folder() -> None:
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file():
            assert not re.search(r"/(home|Users|root)/|\.(io|com)/[a-z]+/[a-z-]+:", path.read_text()), path.name
