"""Servers that a run starts for itself: the folder that they load the run's model from, and their commands."""

from __future__ import annotations

import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from groupwise.engines.model_source import ModelSource
from groupwise.engines.ray_cluster import LaunchedOn, LostError, Node, Placed, RayCluster, read_launched_on
from groupwise.engines.replica import StartedServer
from groupwise.engines.server_processes import (
    HOST,
    SERVED_NAME,
    MakeCommand,
    ServerCommand,
    ServerProcess,
    groupwise_command,
    start_servers,
    stop_servers,
)
from groupwise.engines.vllm.command import vllm_command
from groupwise.models.folder import find_adapter
from groupwise.models.quietly import save_model
from groupwise.system.errors import EngineFault, GroupwiseError
from groupwise.system.text import quote_line

MODEL = "model"
"""The folder of a model that had none, in the place for what an engine writes."""


def start_own_servers(
    source: ModelSource, *, replicas: int, gpus: Sequence[str], start_timeout: float, options: Mapping[str, object]
) -> list[StartedServer]:
    """Start servers of our own for a run's model, on its device, in its types, with as many threads.

    Args:
        source: the run's model.
        replicas: how many.
        gpus: what each sees of the machine's GPUs, one entry a server; empty = all.
        start_timeout: seconds until all must be healthy.
        options: further options of the command, by name.
    """
    import torch

    place = _find_place(source)
    model = str(_find_own_model(source, place))
    weight = next(source.model.parameters())
    settings: dict[str, object] = {
        "name": SERVED_NAME,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": "cuda" if gpus else str(source.device or weight.device),
        # Sums are split among threads: another number of them gives other bits.
        "threads": torch.get_num_threads(),
        **options,
    }
    make_command = partial(groupwise_command, model, options=settings)
    return _start(source, make_command, replicas=replicas, folder=place, start_timeout=start_timeout, gpus=gpus)


def start_vllm_servers(
    source: ModelSource, *, replicas: int, gpus: Sequence[str], start_timeout: float, **options: Any
) -> list[StartedServer]:
    """Start vLLM servers for a run's model; one with an adapter is served without, and the adapter comes after.

    `options` are those of `vllm_command`; the others are as in `start_own_servers`.
    """
    place = _find_place(source)
    model, rank = _find_whole_model(source, place)
    make_command = partial(vllm_command, model, served_model_name=SERVED_NAME, lora_rank=rank, **options)
    return _start(source, make_command, replicas=replicas, folder=place, start_timeout=start_timeout, gpus=gpus)


def _start(source: ModelSource, make_command: MakeCommand, *, folder: Path, **settings: Any) -> list[StartedServer]:
    """Start servers here, or on the cluster that the run was launched on; a temporary folder goes with them."""
    cluster = read_launched_on()
    start: Callable[..., Sequence[StartedServer]] = start_servers
    if cluster is not None:
        start = partial(start_placed_servers, cluster=cluster)
    servers = start(make_command, folder=folder, **settings)
    if source.folder is None:
        weakref.finalize(servers[0], shutil.rmtree, folder, ignore_errors=True)
    return list(servers)


def _find_place(source: ModelSource) -> Path:
    """Where servers' files go: the run's own place, or a temporary one that is gone with the servers."""
    return source.folder or Path(mkdtemp(prefix="groupwise-servers-"))


def _find_own_model(source: ModelSource, place: Path) -> Path | str:
    """What a server of ours loads: the run's folder or hub name, or else the model, written here."""
    is_adapted = hasattr(source.model, "peft_config")
    if source.path is not None and (find_adapter(source.path) is not None) == is_adapted:
        return source.path
    return _write_model(source, source.model, place)


def _find_whole_model(source: ModelSource, place: Path) -> tuple[Path, int]:
    """The folder of the whole model that vLLM loads, and the rank of the adapter that will come; 0 = none."""
    settings = getattr(source.model, "peft_config", {}).get("default")
    rank = 0 if settings is None else int(settings.r)
    named = source.path if settings is None else settings.base_model_name_or_path
    if named and Path(named).expanduser().is_dir():
        return Path(named).expanduser().resolve(), rank
    if named:
        from transformers.utils.hub import cached_file

        config = cached_file(named, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
        if config is not None:
            return Path(config).parent, rank
    if settings is not None:
        raise EngineFault(
            f"the model {quote_line(str(named))!r} that the run's adapter sits on is no folder; give model.path a "
            "local folder"
        )
    return _write_model(source, source.model, place), rank


def _write_model(source: ModelSource, model: Any, place: Path) -> Path:
    """Write a model and its tokenizer for servers to load."""
    folder = (place / MODEL).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(model, folder)
        source.tokenizer.save_pretrained(folder)
    except Exception as error:  # transformers and safetensors have no class in common for a disk that is full
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
        raise EngineFault(
            f"the model could not be written to {folder} for servers ({reason}); free some space"
        ) from None
    return folder


# A run's servers on the nodes of a cluster: started there, made anew where they die, and asked where they listen.
#
# The cluster owns processes and nothing else. A server that was made anew has the weights it was started with, and so
# it is out until the next hand-over, as any other.

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
        """Start it, without waiting, to listen at its node's address `host`; `leave` ends this process."""
        self._start_timeout, self._leave = start_timeout, leave
        self._process: ServerProcess | None = None
        self._url: Future[str] = Future()
        self._is_stopped = threading.Event()
        start = partial(ServerProcess, partial(_listen_at, make_command, host), name=name, log=log, host=host)
        threading.Thread(target=self._watch, args=(start,), daemon=True, name=f"watch {name}").start()

    def read_url(self) -> str | None:
        """Where it listens; None where it is not started yet."""
        return None if self._process is None else self._process.url

    def wait(self) -> str:
        """Wait until it is healthy, or will not be; where it listens."""
        return self._url.result()

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
            self._url.set_result(self._process.url)
            while self._process.is_running():  # waits a moment for its end
                pass
        except Exception as error:  # whoever waits must hear of it, whatever it is
            reason = str(error) if isinstance(error, GroupwiseError) else f"{type(error).__name__}: {error}"
            if self._is_stopped.is_set():
                reason = "the server was stopped before it was healthy"
            if not self._url.done():
                self._url.set_exception(EngineFault(reason))
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

    Every node must see `folder`, where their logs go. Of the `gpus` that each would see on one machine the number
    counts: the cluster chooses which.
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


def _listen_at(make_command: MakeCommand, host: str, port: int) -> ServerCommand:
    """A server's command, with the address that it listens at; of two such flags the last counts, ours and vLLM's."""
    arguments, variables = make_command(port)
    return [*arguments, "--host", host], variables
