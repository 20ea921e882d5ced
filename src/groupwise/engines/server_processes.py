"""Servers as child processes, each with its own log: start them, wait until they are healthy, stop them.

A child ends when it is stopped, and when this interpreter ends or is killed: see `GuardedProcess`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from groupwise.engines.http_client import ServerClient, ServerFault
from groupwise.system.errors import ConfigError, EngineFault, GroupwiseError
from groupwise.system.processes import GuardedProcess, find_free_port
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from groupwise.engines.replica import StartedServer

HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
"""The host of a server that other machines can reach."""
SERVED_NAME = "policy"
"""The model's name in requests to a server that was started here."""
POLL_SECONDS = 0.1
GONE_SECONDS = 0.5
"""How long the processes of a killed server may take to end."""
MAX_PORTS = 3
"""Ports that are tried if any will do: another process may take a free port before the server does."""
TAIL_BYTES = 16384
TAIL_LINES = 4
PORT_TAKEN = re.compile(r"address already in use|cannot be taken", re.IGNORECASE)
TELLING = re.compile(r"error|exception|killed|refuse", re.IGNORECASE)
CAUSES = (
    (PORT_TAKEN, "its port is taken; give another one, or 0 for any free port"),
    (re.compile(r"out of memory|cannot allocate memory|bad_alloc", re.IGNORECASE), "out of memory"),
    (re.compile(r"no module named '?vllm", re.IGNORECASE), "its environment has no vLLM"),
    (re.compile(r"head[_ ]?(size|dim)", re.IGNORECASE), "the model's attention heads are too narrow for it"),
)

PORT_SECONDS = 5.0
"""How long a killed server may hold its port: its processes end one after the other."""

ServerCommand = tuple[list[str], dict[str, str]]
"""Arguments of a command, and its additional environment variables."""
MakeCommand = Callable[[int], ServerCommand]


_log = logging.getLogger(__name__)


class ServerProcess:
    """A server that was started here."""

    def __init__(self, make_command: MakeCommand, *, name: str, log: Path, port: int = 0, host: str = HOST) -> None:
        """Start it and return at once. Port 0 means any free port. `host` must be that of the command.

        The log is appended to.
        """
        self._host = HOST if host == EVERYWHERE else host
        self.name, self.log = name, log
        self._make_command = make_command
        self._may_move = port == 0
        self._port = port or find_free_port()
        self._lock = threading.Lock()
        self._group = GuardedProcess()
        self._log_start = 0
        # Also at the end of the interpreter, and if a run is garbage-collected without being closed.
        self._end = weakref.finalize(self, self._group.end)
        self._start_where_free()

    @property
    def url(self) -> str:
        """Its URL on this machine; the same after a restart."""
        return f"http://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """Its port; the same after a restart."""
        return self._port

    @property
    def pid(self) -> int:
        return self._group.pid

    def is_running(self) -> bool:
        """Whether its process is alive; it may still be loading. A process that was just killed has a moment to end."""
        self._group.wait(GONE_SECONDS)
        return self._group.is_alive()

    def start_again(self) -> None:
        """Restart it on the same port if it has died, and return at once: it is healthy some seconds later."""
        with self._lock:
            if not self._end.alive or self._group.is_alive():
                return
            try:
                self._start(port_seconds=PORT_SECONDS)
            except GroupwiseError as error:  # the other replicas continue, and ask again
                _log.warning("%s was not restarted: %s", self.name, error)

    def stop(self) -> None:
        """Terminate it, then kill it. It is not restarted."""
        with self._lock:
            self._end()

    def wait_until_healthy(self, *, timeout: float) -> None:
        """Wait until it answers; EngineFault with the end of its log if it ends before or takes too long."""
        deadline = time.monotonic() + timeout
        for rollout in range(MAX_PORTS if self._may_move else 1):
            if rollout:
                with self._lock:
                    if not self._end.alive:  # stopped meanwhile
                        break
                    self._port = find_free_port()
                    self._start_where_free()
            if self._becomes_healthy(deadline, timeout):
                return
            if not PORT_TAKEN.search(self._read_log()):
                break
        status, log = self._group.end(), self._read_log()
        cause = next((f": {words}" for pattern, words in CAUSES if pattern.search(log)), "")
        raise EngineFault(
            f"{self.name} ended before it was healthy, with status {status}{cause} ({self._quote_tail()}); "
            f"its log is {self._keep_log()}"
        )

    def _becomes_healthy(self, deadline: float, timeout: float) -> bool:
        """Wait for the server: True once it answers, False once it has ended."""
        while self._group.is_alive():
            try:
                with ServerClient(self.url) as client:
                    client.check_health()
                return self._group.is_alive()  # another server may have answered in its place
            except ServerFault:
                pass
            if time.monotonic() > deadline:
                raise EngineFault(
                    f"{self.name} was not healthy within {timeout:g} seconds ({self._quote_tail()}); raise "
                    f"start_timeout, or check its log {self._keep_log()}"
                )
            self._group.wait(POLL_SECONDS)
        return False

    def _start_where_free(self) -> None:
        """Start it; try other ports if any will do and another process has taken the chosen one."""
        for _ in range(MAX_PORTS - 1 if self._may_move else 0):
            try:
                return self._start()
            except ConfigError:
                self._port = find_free_port()
        self._start()

    def _start(self, *, port_seconds: float = 0.0) -> None:
        self._group.end()
        _wait_for_port(self._host, self._port, port_seconds)  # another process that listens there would answer for it
        arguments, variables = self._make_command(self._port)
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self._group.start(arguments, variables, log.fileno())
        except OSError as error:
            raise EngineFault(f"{self.name} could not be started ({error.strerror}: {error.filename})") from None

    def _read_log(self) -> str:
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
        return ""

    def _quote_tail(self) -> str:
        """The last lines of the log, only those with an error if there are any."""
        lines = [quote_line(line.strip(), limit=200) for line in self._read_log().splitlines() if line.strip()]
        telling = [line for line in lines if TELLING.search(line)]
        return " | ".join((telling or lines)[-TAIL_LINES:]) or "its log is empty"

    def _keep_log(self) -> Path:
        """Copy the log to a permanent place: if a run cannot start, its folder is removed."""
        kept = Path(mkdtemp(prefix="groupwise-log-")) / self.log.name
        with suppress(OSError):
            return Path(shutil.copyfile(self.log, kept))
        return self.log


def start_servers(
    make_command: MakeCommand,
    *,
    replicas: int,
    folder: Path,
    start_timeout: float,
    port: int = 0,
    host: str = HOST,
    gpus: Sequence[str] = (),
) -> list[ServerProcess]:
    """Start servers in parallel and wait until all are healthy; if one fails, all are stopped.

    Logs go to `folder`. The servers use `port` and the following ones; 0 = any free ports. Each sees one entry of
    `gpus`, in turn; empty = all GPUs.
    """

    def show_gpu(gpu: str, port: int) -> ServerCommand:
        arguments, variables = make_command(port)
        return arguments, {**variables, "CUDA_VISIBLE_DEVICES": gpu}

    processes: list[ServerProcess] = []
    deadline = time.monotonic() + start_timeout
    try:
        for number in range(replicas):
            make = partial(show_gpu, gpus[number % len(gpus)]) if gpus else make_command
            log, own_port = folder / f"server_{number}.log", port + number if port else 0
            processes.append(ServerProcess(make, name=f"server {number}", log=log, port=own_port, host=host))
        for process in processes:
            process.wait_until_healthy(timeout=max(deadline - time.monotonic(), POLL_SECONDS))
    except BaseException:
        stop_servers(processes)
        raise
    return processes


def stop_servers(processes: Sequence[StartedServer]) -> None:
    """Stop servers in parallel: each may take a while."""
    threads = [threading.Thread(target=process.stop) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _wait_for_port(host: str, port: int, seconds: float) -> None:
    """Wait until a port is free; ConfigError if it is still taken after `seconds`, or not available on this host."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else closed connections would block it
            try:
                return probe.bind((host, port))
            except OSError as error:
                reason = error.strerror
        if time.monotonic() > deadline:
            raise ConfigError(
                f"port {port} of {host} cannot be taken ({reason}); give another one, or stop the process that uses it"
            )
        time.sleep(POLL_SECONDS)


def check_can_serve() -> None:
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise ConfigError("serving needs Starlette and uvicorn; run pip install 'groupwise[serve]'")


def groupwise_command(model: str, port: int, *, options: Mapping[str, object] = {}) -> ServerCommand:
    """The command of the groupwise server for the folder of a model or an adapter, or a hub name.

    `options` are those of the command, such as `{"lora-rank": 8, "compile-parts": True}`.
    """
    arguments = [sys.executable, "-P", "-m", "groupwise.engines.server", model, "--port", str(port)]
    for name, value in options.items():
        if value is not False:
            arguments += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    # The server runs this code, also if it is not the installed one.
    place = str(Path(__file__).parents[2])
    paths = [place, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return arguments, {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
