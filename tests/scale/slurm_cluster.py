"""A Slurm cluster of this machine alone: its daemons in a folder of the test, on 127.0.0.1, ended by their numbers."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from groupwise.system.processes import find_free_port

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo")
START_SECONDS = 60.0
STOP_SECONDS = 15.0
SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacks_slurm() -> str | None:
    """Why no cluster can be started here; None where one can."""
    missing = [name for name in DAEMONS if find_daemon(name) is None]
    return f"needs Slurm (Debian: apt-get install slurm-wlm): no {', '.join(missing)}" if missing else None


def find_daemon(name: str) -> str | None:
    """A program of Slurm's; daemons are not on everybody's path."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class SlurmCluster:
    """Two nodes, n1 and n2, which are both this machine."""

    settings: Path
    """Its slurm.conf."""

    def ask(self, *words: str, cwd: Path | None = None, **variables: str) -> str:
        """Run a command of Slurm's, which must succeed; what it says."""
        env = os.environ | {"SLURM_CONF": str(self.settings)} | variables
        ran = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def read_state(self, job: str) -> str:
        """What a job is doing, such as RUNNING or COMPLETED."""
        words = self.ask("scontrol", "--oneliner", "show", "job", job)
        return words.partition(" JobState=")[2].split()[0]


@contextmanager
def start_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster as long as the context lasts; whatever it still runs is ended with it."""
    settings, key = folder / "slurm.conf", folder / "munge.key"
    ports = {name: find_free_port() for name in ("controller", "first", "second")}
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    settings.write_text(SETTINGS.format(host=host, user=user, folder=folder, **ports))
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    (folder / "state").mkdir()
    cluster, daemons = SlurmCluster(settings), []
    options = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
    options |= {"log-file": folder / "munged.log", "seed-file": folder / "munge.seed"}
    commands = [
        ["munged", "--foreground", "--force", *(f"--{name}={value}" for name, value in options.items())],
        ["slurmctld", "-D"],
        *(["slurmd", "-D", "-N", node] for node in ("n1", "n2")),
    ]
    try:
        for number, (name, *words) in enumerate(commands):
            with (folder / f"{name}_{number}.out").open("wb") as log:
                program, env = find_daemon(name), os.environ | {"SLURM_CONF": str(settings)}
                assert program is not None
                daemons.append(subprocess.Popen([program, *words], env=env, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(1.0)
        _wait_until_idle(cluster, folder)
        yield cluster
    finally:
        subprocess.run(
            ["scancel", f"--user={user}"], env=os.environ | {"SLURM_CONF": str(settings)}, check=False, timeout=60
        )
        _wait_until_empty(cluster)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _wait_until_idle(cluster: SlurmCluster, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while cluster.ask("sinfo", "--noheader", "--format=%t %D").split() != ["idle", "2"]:
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.out")))
        assert time.monotonic() < deadline, logs
        time.sleep(0.5)


def _wait_until_empty(cluster: SlurmCluster) -> None:
    deadline = time.monotonic() + START_SECONDS
    while cluster.ask("squeue", "--noheader").strip() and time.monotonic() < deadline:
        time.sleep(0.5)
