"""A run's servers on the nodes of a cluster: started there, made anew where they die, and asked where they listen.

The cluster owns processes and nothing else. A server that was made anew has the weights it was started with, and so it
is out until the next hand-over, as any other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.core.errors import EngineFault, GroupwiseError
from groupwise.engines.remote.processes import HOST, Command, MakeCommand, ServerProcess, stop_servers
from groupwise.launch.launched_on import LaunchedOn
from groupwise.launch.ray_cluster import LostError, Node, Placed, RayCluster

if TYPE_CHECKING:
    from groupwise.engines.remote.replica import StartedServer

ASK_SECONDS = 10.0
"""How long a server's node may take to say where the server listens."""
STOP_SECONDS = 30.0
HEAR_SECONDS = 30.0
"""How long a server that did not become healthy is kept, so that whoever waits for it hears why; then it is made
anew."""


class HostedServer:
    """A server's process on its node. Where it ends, this process does too: then the cluster makes both anew."""

    def __init__(
        self,
        make_command: MakeCommand,
        *,
        name: str,
        log: Path,
        host: str,
        start_timeout: float,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """Start it, without waiting.

        Args:
            make_command: makes its command for a port.
            name: what errors call it.
            log: the file that it writes to.
            host: the address of the node that it listens at.
            start_timeout: seconds until it must be healthy.
            leave: ends this process.
        """
        self._start_timeout, self._leave = start_timeout, leave
        self._process: ServerProcess | None = None
        self._fault: str | None = None
        self._is_decided, self._is_stopped = threading.Event(), threading.Event()
        start = partial(ServerProcess, partial(_listen_at, make_command, host), name=name, log=log, host=host)
        threading.Thread(target=self._watch, args=(start,), daemon=True, name=f"watch {name}").start()

    def read_url(self) -> str | None:
        """Where it listens; None where it is not started yet."""
        return None if self._process is None else self._process.url

    def wait(self) -> str:
        """Wait until it is healthy, or will not be; where it listens."""
        self._is_decided.wait()
        if self._fault is not None or self._process is None:
            raise EngineFault(self._fault or "the server has not been started")
        return self._process.url

    def stop(self) -> None:
        """End it for good."""
        self._is_stopped.set()
        if self._process is not None:
            self._process.stop()

    def _watch(self, start: Callable[[], ServerProcess]) -> None:
        """Start the process, wait for its end, and leave with it."""
        try:
            self._process = start()
            if self._is_stopped.is_set():  # while it was started: whoever stopped it saw no process to end
                self._process.stop()
            self._process.wait_until_healthy(timeout=self._start_timeout)
            self._is_decided.set()
            while self._process.is_running():  # waits a moment for its end
                pass
        except Exception as error:  # whoever waits must hear of it, whatever it is
            if self._is_stopped.is_set():
                self._fault = "the server was stopped before it was healthy"
            else:
                self._fault = str(error) if isinstance(error, GroupwiseError) else f"{type(error).__name__}: {error}"
            self._is_decided.set()
            self._is_stopped.wait(HEAR_SECONDS)
        if not self._is_stopped.is_set():
            self._leave(1)


class PlacedServer:
    """A server on a node, as the run knows it."""

    def __init__(self, placed: Placed) -> None:
        self._placed, self._url, self._is_stopped = placed, "", False

    def wait_until_healthy(self, *, timeout: float) -> None:
        """Wait until it answers; EngineFault where it will not, LostError where it has found no place in time."""
        self._url = self._placed.ask("wait", timeout=timeout)

    @property
    def url(self) -> str:
        """Where it listens; another address after it was made anew."""
        with suppress(LostError):  # it is being made anew
            self._url = self._placed.ask("read_url", timeout=ASK_SECONDS) or self._url
        return self._url

    def is_running(self) -> bool:
        """Whether its process is there; it may still be loading."""
        try:
            return self._placed.ask("read_url", timeout=ASK_SECONDS) is not None
        except LostError:
            return False

    def start_again(self) -> None:
        """Nothing: the cluster makes it anew by itself."""

    def stop(self) -> None:
        """End it for good."""
        if self._is_stopped:
            return
        self._is_stopped = True
        with suppress(LostError):
            self._placed.ask("stop", timeout=STOP_SECONDS)
        self._placed.end()


def start_placed_servers(
    make_command: MakeCommand,
    *,
    cluster: LaunchedOn,
    replicas: int,
    folder: Path,
    start_timeout: float,
    gpus: Sequence[str] = (),
) -> list[StartedServer]:
    """Start servers on the nodes of a cluster and wait until all are healthy; where one is not, none is left.

    Args:
        make_command: makes a server's command for a port.
        cluster: whose nodes they are, and what each server reserves there.
        replicas: how many.
        folder: where their logs go; every node must see it.
        start_timeout: seconds until all must be healthy.
        gpus: a machine's GPUs that each would see there, in turn; here their number counts, and the cluster chooses.
    """
    joined, servers = RayCluster(cluster.address), list[PlacedServer]()
    deadline, here = time.monotonic() + start_timeout, Path.cwd()
    try:
        for number in range(replicas):
            name, log = f"server {number}", (folder / f"server_{number}.log").absolute()
            make = partial(_host_server, make_command, name=name, log=log, here=here, start_timeout=start_timeout)
            seen = gpus[number % len(gpus)].split(",") if gpus else ()
            servers.append(
                PlacedServer(joined.place(make, name=name, cpus=cluster.cpus, gpus=len(seen), may_restart=True))
            )
        for server in servers:
            server.wait_until_healthy(timeout=max(deadline - time.monotonic(), 1.0))
    except LostError as error:
        stop_servers(servers)
        raise EngineFault(
            f"{error}; each server reserves {cluster.cpus:g} CPUs and its GPUs on a node: add nodes, or ask for fewer "
            "servers (engine.replicas)"
        ) from None
    except BaseException:
        stop_servers(servers)
        raise
    return list(servers)


def _host_server(
    make_command: MakeCommand, node: Node, is_home: bool, *, name: str, log: Path, here: Path, start_timeout: float
) -> HostedServer:
    """Start a server on the node where this is called; for other machines only where the run is on another one."""
    with suppress(OSError):  # relative paths of the run file hold where the folder is there, and fail by name elsewhere
        os.chdir(here)
    host = HOST if is_home else node.address
    return HostedServer(make_command, name=name, log=log, host=host, start_timeout=start_timeout)


def _listen_at(make_command: MakeCommand, host: str, port: int) -> Command:
    """A server's command, with the address that it listens at; of two such flags the last counts, ours and vLLM's."""
    arguments, variables = make_command(port)
    return [*arguments, "--host", host], variables
