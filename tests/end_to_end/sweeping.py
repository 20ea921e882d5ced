"""Runs `groupwise sweep` whole, and once more with kills, of the sweep and of a run, in forks that have all imported.

    python -m tests.end_to_end.sweeping RUN.toml FOLDER

Prints as JSON what was found on the way.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_to_end.killing import import_all

SETTINGS = ["--seeds", "5", "--set", "training.learner.learning_rate=1e-2,1e-3", "--jobs", "2"]
VARIANTS = ("learning_rate=0.01", "learning_rate=0.001")
PATIENCE = 120.0


class ForkedProcess:
    """A fork of this process, as a sweep handles processes."""

    def __init__(self, act: Callable[[], None], log: Path) -> None:
        self.pid = os.fork()
        self._status: int | None = None
        if not self.pid:
            try:
                output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(output, 1)
                os.dup2(output, 2)
                act()
            except SystemExit as stopped:
                sys.stdout.flush()
                os._exit(stopped.code if isinstance(stopped.code, int) else 0)
            finally:
                os._exit(1)  # this copy must not go on as its parent would

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def send_signal(self, sig: int) -> None:
        os.kill(self.pid, sig)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        wait_until(lambda: self.poll() is not None)
        status = self.poll()
        assert status is not None
        return status


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.005)


def start_sweep(file: Path, folder: Path) -> ForkedProcess:
    """Begin or go on with a sweep, whose runs are forks too; the id of each is beside its folder."""
    from groupwise.cli import sweep as cli_sweep
    from groupwise.cli.main import main
    from groupwise.system.sandbox import die_with_parent

    for path in folder.glob("*/seed*.pid"):  # of a sweep that was killed
        path.unlink()

    def act() -> None:
        sweep = os.getpid()

        def start(run: Any, gpu: int | None) -> ForkedProcess:
            def train() -> None:
                die_with_parent(sweep)
                sys.argv = ["groupwise", *cli_sweep.list_arguments(run)]
                main()

            process = ForkedProcess(train, run.log)
            run.folder.with_suffix(".pid").write_text(str(process.pid), encoding="utf-8")
            return process

        cli_sweep.start_process = start
        cli_sweep.POLL_SECONDS = 0.01
        sys.argv = ["groupwise", "sweep", str(file), "--out", str(folder), *SETTINGS]
        main()

    return ForkedProcess(act, folder.with_suffix(".log"))


def list_begun(folder: Path) -> list[Path]:
    """Runs of the sweep that is under way which have a first update and are not at their end."""
    begun = [path.parent for path in folder.glob("*/seed*/checkpoints") if (path / "0001").exists()]
    return [path for path in begun if path.with_suffix(".pid").exists() and not (path / "checkpoints/0004").exists()]


def count_finished(folder: Path) -> int:
    return len(list(folder.glob("*/seed*/checkpoints/0004")))


def kill_sweep(file: Path, folder: Path, min_finished: int) -> dict[str, Any]:
    """Begin or go on with a sweep, and kill it with SIGKILL while a run is in the middle of it."""
    sweep = start_sweep(file, folder)
    wait_until(lambda: sweep.poll() is not None or (count_finished(folder) >= min_finished and list_begun(folder)))
    begun = list_begun(folder)
    sweep.kill()
    status = sweep.wait()
    pids = [int(path.with_suffix(".pid").read_text(encoding="utf-8")) for path in begun]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))  # the runs die with the sweep
    return {"status": status, "finished": count_finished(folder), "in_flight": len(begun)}


def kill_run(file: Path, folder: Path) -> dict[str, Any]:
    """Go on with a sweep, and kill one of its runs in the middle; the sweep comes to its end without it."""
    sweep = start_sweep(file, folder)
    wait_until(lambda: sweep.poll() is not None or list_begun(folder))
    [victim, *_] = list_begun(folder)
    os.kill(int(victim.with_suffix(".pid").read_text(encoding="utf-8")), signal.SIGKILL)
    status = sweep.wait()
    missing = json.loads((folder / "results.json").read_text(encoding="utf-8"))["missing"]
    return {"status": status, "victim": f"{victim.parent.name} seed {victim.name[4:]}", "missing": missing}


def run_all(file: Path, folder: Path) -> dict[str, Any]:
    import groupwise.report.runs  # noqa: F401

    import_all(file)
    whole, killed = folder / "whole", folder / "killed"
    info: dict[str, Any] = {"whole": start_sweep(file, whole).wait()}
    info["kills"] = [kill_sweep(file, killed, number) for number in (1, 4)]
    info["killed_run"] = kill_run(file, killed)
    stamps = {path: path.stat().st_mtime_ns for path in killed.glob("*/seed*/journal.sqlite")}
    info["resumed"] = start_sweep(file, killed).wait()
    after = {path: path.stat().st_mtime_ns for path in killed.glob("*/seed*/journal.sqlite")}
    info["touched"] = sorted(
        f"{path.parts[-3]} seed {path.parts[-2][4:]}" for path in after if after[path] != stamps[path]
    )
    return info


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_all(Path(sys.argv[1]), Path(sys.argv[2]))))
