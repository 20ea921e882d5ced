"""What runs of several processes need here: run files, commands with a mark, and who bears that mark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import tomli_w

from groupwise.store.journal import Journal
from groupwise.system.errors import FileError
from groupwise.training.config.run_file import read_run_file
from groupwise.training.evaluation.summary import Evaluation

ROOT = Path(__file__).parents[2]
RUN_FILE = ROOT / "tests" / "vllm" / "household.toml"
"""The home in which the tests of vLLM train, too."""
MARK = "GROUPWISE_SCALE_TEST"
"""A variable that every process of a command inherits, whoever starts it."""
PATIENCE = 1200.0
"""Seconds that a run may take on a machine that is shared."""
HERE = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same within IPv6, and ::1."""
GONE_SECONDS = 150.0
"""How long processes may take to end after the command that started them; agents of Ray look for it for a minute."""


def lacks_ray() -> str | None:
    """Why nothing can be launched on Ray here; None where it can."""
    return None if find_spec("ray") else "needs an environment with Ray, which `make test-scale` builds"


def write_run_file(path: Path, beginning: Path, changes: Mapping[str, Mapping[str, Any]]) -> Path:
    """The home's run from a warm start, with other settings in some of its tables."""
    tables = read_run_file(RUN_FILE).content
    del tables["warm_start"]
    tables["model"] = {"kind": "pretrained", "path": str(beginning)}
    for name, settings in changes.items():
        place = tables
        for word in name.split("."):
            place = place.setdefault(word, {})
        place.update(settings)
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    return path


class Command:
    """A command that was started with a log, and its processes, whoever started them.

    They are looked for among its children and theirs all the while, since one whose parent has ended is nobody's, and
    by a mark that they inherit; some write over it to be called something.
    """

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.mark, self.log = uuid4().hex, log
        variables = {**os.environ, MARK: self.mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                arguments, env=variables, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._known: set[Process] = {process for process in list_all() if process.pid == self.pid}
        self._is_done = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        try:
            status = self._process.wait(timeout=PATIENCE)
        finally:
            self.end()
        assert status == 0, self.log.read_text(encoding="utf-8")[-6000:]

    def end(self) -> None:
        """End it where it has not ended."""
        if not self.has_ended():
            self._process.terminate()
            try:
                self._process.wait(timeout=GONE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._is_done.set()
        self._looking.join()

    def list_processes(self, words: str = "", **variables: str) -> list[int]:
        """Its processes: those whose command line has some words, and that have some variables.

        Not their supervisors, whose command lines hold those that they guard.
        """
        wanted = {f"{name}={value}".encode() for name, value in variables.items()}
        return [
            process.pid
            for process in sorted(self._find_processes())
            if words in (line := _read(process.pid, "cmdline").replace(b"\0", b" ").decode())
            and wanted <= set(_read(process.pid, "environ").split(b"\0"))
            and not (words and "system/supervisor.py" in line)
        ]

    def _look(self) -> None:
        while not self._is_done.wait(0.5):
            self._find_processes()

    def _find_processes(self) -> set[Process]:
        """Those that live now."""
        living, mark = list_all(), f"{MARK}={self.mark}".encode()
        known = {process for process in living if process in self._known or mark in _read(process.pid, "environ")}
        while children := {child for child in living if child.parent in {process.pid for process in known}} - known:
            known |= children
        self._known = self._known | known
        return known


@dataclass(frozen=True, order=True)
class Process:
    """A process, which keeps its number and its beginning, and may be left by its parent."""

    pid: int
    began: int
    parent: int = field(compare=False)


def list_all() -> set[Process]:
    """All processes of the machine that have not ended."""
    processes: set[Process] = set()
    for pid in (int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()):
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if fields and fields[0] != b"Z":
            processes.add(Process(pid=pid, began=int(fields[19]), parent=int(fields[1])))
    return processes


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended meanwhile, or is another user's
        return b""


def read_processor_seconds(pid: int) -> float:
    """How long a process has computed."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def list_addresses(pid: int) -> set[str]:
    """The addresses at which a process listens, as the kernel writes them."""
    try:
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # it has ended meanwhile
        return set()
    return {
        fields[1].rpartition(b":")[0].decode()
        for table in ("tcp", "tcp6")
        for fields in map(bytes.split, _read(pid, f"net/{table}").splitlines())
        if fields[3] == b"0A" and f"socket:[{fields[9].decode()}]" in links
    }


@contextmanager
def start_command(arguments: list[str], log: Path) -> Iterator[Command]:
    """A command; where it is left, it must have ended, and every process that it started."""
    command = Command(arguments, log)
    try:
        yield command
    finally:
        command.end()
        deadline = time.monotonic() + GONE_SECONDS
        while (left := command.list_processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        stayed = [_read(pid, "cmdline").replace(b"\0", b" ").decode() for pid in left]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not stayed, "\n".join(["processes outlived the command that started them", *stayed])


def start_ranks(file: Path, out: Path, *, ranks: int = 2) -> list[str]:
    """The command that trains with several ranks under torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*torchrun, "-m", "groupwise", "train", str(file), "--out", str(out), "--plain"]


def launch_on_ray(file: Path, out: Path, *, ranks: int = 2) -> list[str]:
    """The command that trains with several ranks on a cluster of this machine."""
    words = ["--ranks", str(ranks), "--cpus", "0.25"]  # two cores hold all of them, one after the other
    return [sys.executable, "-m", "groupwise", "launch", str(file), "--out", str(out), *words]


def wait_until(is_so: Callable[[], bool], command: Command, what: str) -> None:
    """Wait for something that a running command does."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert not command.has_ended(), f"{what}\n{command.log.read_text(encoding='utf-8')[-6000:]}"
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def read_curve(folder: Path, name: str) -> dict[int, float]:
    """A metric of a run by update; empty where nothing is written yet."""
    try:
        with Journal(folder / "journal.sqlite", read_only=True) as journal:
            return dict(journal.curve(name))
    except FileError:  # not there, or being made at this moment
        return {}


def read_responses(folder: Path) -> dict[tuple[int, str, int], list[list[int]]]:
    """Every response of a run as token ids, by update, task and rollout."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        return {
            (number, row["task"], row["rollout"]): [list(step["response_ids"]) for step in row["steps"]]
            for number in journal.update_numbers()
            for row in journal.trajectories(number)
        }


def read_evaluations(folder: Path) -> list[Evaluation]:
    """How the policy did before and after."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        rows = journal.evaluations()
    numbers = sorted({row.number for row in rows})
    return [Evaluation.from_rows([row for row in rows if row.number == number]) for number in numbers]
