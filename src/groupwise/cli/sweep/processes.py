"""The runs of a sweep as processes: so many at a time, each with a log of its own; one that dies takes none with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from groupwise.cli.train import STOPPED
from groupwise.core.started_rank import drop_torchrun_variables
from groupwise.sweeps.plan import PlannedRun

POLL_SECONDS = 0.1
REPORT_SECONDS = 10.0
"""How often the caller is told which runs are under way."""
STOP_SECONDS = 20.0
"""How long runs may take to stop when the sweep is interrupted; then they are killed."""
TAIL_BYTES = 8192
VISIBLE = "CUDA_VISIBLE_DEVICES"


class RunProcess(Protocol):
    """A process that trains one run."""

    def poll(self) -> int | None:
        """Its exit status; None = it is under way."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run whose process ended before the run did."""

    run: PlannedRun
    """Which."""
    status: int
    """The exit status of its process; negative = the signal that killed it."""
    reason: str
    """The last line of its log."""


class SweepReport(Protocol):
    """Told what happens in a sweep."""

    def on_begin(self, run: PlannedRun) -> None:
        """A run begins, or goes on."""

    def on_end(self, run: PlannedRun, failure: FailedRun | None) -> None:
        """The process of a run ended; `failure` says why it did before the run was finished."""

    def on_time(self, under_way: Sequence[PlannedRun]) -> None:
        """Some seconds have passed."""


StartRun = Callable[[PlannedRun, int | None], RunProcess]
"""Starts the process of a run; the number is that of its GPU, None = wherever the run file says."""


def train_runs(
    runs: Sequence[PlannedRun], gpus: Sequence[int | None], report: SweepReport, start: StartRun
) -> list[FailedRun]:
    """Train runs, one at each place at a time; those that failed.

    Args:
        runs: those that are not finished, in the order in which they begin.
        gpus: a place for each run that may train at a time.
        report: told what happens.
        start: starts a process.
    """
    waiting, free = list(runs), list(gpus)
    under_way: dict[int, tuple[PlannedRun, int | None, RunProcess]] = {}
    failed: list[FailedRun] = []
    reported = time.monotonic()
    try:
        while waiting or under_way:
            while waiting and free:
                run, gpu = waiting.pop(0), free.pop(0)
                report.on_begin(run)
                process = start(run, gpu)
                under_way[id(process)] = run, gpu, process
            time.sleep(POLL_SECONDS)
            for key, (run, gpu, process) in list(under_way.items()):
                status = process.poll()
                if status is not None:
                    del under_way[key]
                    free.append(gpu)
                    failure = _describe_failure(run, status) if status not in (0, STOPPED) else None
                    failed += [failure] if failure else []
                    report.on_end(run, failure)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                report.on_time([run for run, _, _ in under_way.values()])
    finally:
        _stop([process for _, _, process in under_way.values()])
    return failed


def start_process(run: PlannedRun, gpu: int | None) -> RunProcess:
    """Start `groupwise train` for a run, which goes on where there is something to go on from."""
    environment = drop_torchrun_variables(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_find_package(), environment.get("PYTHONPATH", "")]))
    if gpu is not None:
        environment[VISIBLE] = name_gpu(gpu, os.environ.get(VISIBLE))
    command = [sys.executable, "-m", "groupwise.cli.sweep.child", str(os.getpid()), *list_arguments(run)]
    with run.log.open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def list_arguments(run: PlannedRun) -> list[str]:
    """What `groupwise` is told to train a run, whether it was begun or not."""
    return ["train", str(run.file), "--out", str(run.folder), "--resume", "--plain"]


def name_gpu(number: int, visible: str | None) -> str:
    """What CUDA calls a GPU, of which torch has the number among those that are visible.

    >>> name_gpu(1, None), name_gpu(1, "4,6")
    ('1', '6')
    """
    return visible.split(",")[number].strip() if visible else str(number)


def _find_package() -> str:
    """Where this package was imported from: a process of a sweep must not find another one."""
    import groupwise

    return str(Path(groupwise.__file__).resolve().parents[1])


def _describe_failure(run: PlannedRun, status: int) -> FailedRun:
    if status < 0:
        with suppress(ValueError):
            return FailedRun(run=run, status=status, reason=f"killed by {signal.Signals(-status).name}")
    return FailedRun(run=run, status=status, reason=_read_last_line(run.log))


def _read_last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _stop(processes: Sequence[RunProcess]) -> None:
    """Ask processes to stop, as Ctrl-C does, and kill those that do not."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for process in processes:
        if process.poll() is None:
            process.kill()
