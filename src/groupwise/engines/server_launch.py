"""Servers that a run starts: the model folder that they load, and their commands."""

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
from groupwise.models.folder import find_adapter, save_model
from groupwise.system.errors import EngineFault, GroupwiseError
from groupwise.system.text import quote_line

MODEL = "model"
"""Name of the folder that a model is written to if it was not loaded from one."""


def start_own_servers(
    source: ModelSource, *, replicas: int, gpus: Sequence[str], start_timeout: float, options: Mapping[str, object]
) -> list[StartedServer]:
    """Start groupwise servers for a run's model, with its device, dtype and number of threads.

    `gpus` has the visible GPUs of each server; empty = all. All servers must be healthy within `start_timeout` seconds.
    `options` are further options of the command.
    """
    import torch

    place = _find_place(source)
    model = str(_find_own_model(source, place))
    weight = next(source.model.parameters())
    settings: dict[str, object] = {
        "name": SERVED_NAME,
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": "cuda" if gpus else str(source.device or weight.device),
        # Threads split sums, so another number of threads is not bit-exact.
        "threads": torch.get_num_threads(),
        **options,
    }
    make_command = partial(groupwise_command, model, options=settings)
    return _start(source, make_command, replicas=replicas, folder=place, start_timeout=start_timeout, gpus=gpus)


def start_vllm_servers(
    source: ModelSource, *, replicas: int, gpus: Sequence[str], start_timeout: float, precision: str, **options: Any
) -> list[StartedServer]:
    """Start vLLM servers for a run's model, at first without its adapter; a weight sync adds the adapter.

    `options` are further ones of `vllm_command`; the other arguments are as in `start_own_servers`.
    """
    place = _find_place(source)
    model, rank = _find_whole_model(source, place)
    make_command = partial(
        vllm_command, model, served_model_name=SERVED_NAME, dtype=precision, lora_rank=rank, **options
    )
    return _start(source, make_command, replicas=replicas, folder=place, start_timeout=start_timeout, gpus=gpus)


def _start(source: ModelSource, make_command: MakeCommand, *, folder: Path, **settings: Any) -> list[StartedServer]:
    """Start servers here, or on the Ray cluster of the run; a temporary folder is removed with them."""
    cluster = read_launched_on()
    start: Callable[..., Sequence[StartedServer]] = start_servers
    if cluster is not None:
        start = partial(start_placed_servers, cluster=cluster)
    servers = start(make_command, folder=folder, **settings)
    if source.folder is None:
        weakref.finalize(servers[0], shutil.rmtree, folder, ignore_errors=True)
    return list(servers)


def _find_place(source: ModelSource) -> Path:
    return source.folder or Path(mkdtemp(prefix="groupwise-servers-"))


def _find_own_model(source: ModelSource, place: Path) -> Path | str:
    """What a groupwise server loads: the run's folder or hub name, or a copy of the model if its adapter is new."""
    is_adapted = hasattr(source.model, "peft_config")
    if source.path is not None and (find_adapter(source.path) is not None) == is_adapted:
        return source.path
    return _write_model(source, place)


def _find_whole_model(source: ModelSource, place: Path) -> tuple[Path, int]:
    """The folder of the model without its adapter, and the rank of the adapter; 0 = none."""
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
            f"the base model {quote_line(str(named))!r} of the run's adapter is not a local folder; set model.path to "
            "one"
        )
    return _write_model(source, place), rank


def _write_model(source: ModelSource, place: Path) -> Path:
    folder = (place / MODEL).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(source.model, folder)
        source.tokenizer.save_pretrained(folder)
    except Exception as error:  # transformers and safetensors have no common error class for a full disk
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
        raise EngineFault(
            f"the model could not be written to {folder} for servers ({reason}); free some space"
        ) from None
    return folder


# A run's servers on the nodes of a Ray cluster, which restarts them if they die.
#
# The cluster manages only processes. A restarted server has its initial weights, so it is out until the next weight
# sync, like any other.

ASK_SECONDS = 10.0
"""Time-out of asking a server's node for its URL."""
STOP_SECONDS = 30.0
HEAR_SECONDS = 30.0
"""How long a failed server is kept so that `wait` can read its error; then it is restarted."""


class HostedServer:
    """A server's process on its node. When it ends, this process ends too, and the cluster restarts both."""

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
        """Start it at its node's address `host`, and return at once; `leave` ends this process."""
        self._start_timeout, self._leave = start_timeout, leave
        self._process: ServerProcess | None = None
        self._url: Future[str] = Future()
        self._is_stopped = threading.Event()
        start = partial(ServerProcess, partial(_listen_at, make_command, host), name=name, log=log, host=host)
        threading.Thread(target=self._watch, args=(start,), daemon=True, name=f"watch {name}").start()

    def read_url(self) -> str | None:
        return None if self._process is None else self._process.url

    def wait(self) -> str:
        return self._url.result()

    def stop(self) -> None:
        self._is_stopped.set()
        if self._process is not None:
            self._process.stop()

    def _watch(self, start: Callable[[], ServerProcess]) -> None:
        try:
            self._process = start()
            if self._is_stopped.is_set():  # `stop` was called during the start, when there was no process
                self._process.stop()
            self._process.wait_until_healthy(timeout=self._start_timeout)
            self._url.set_result(self._process.url)
            while self._process.is_running():  # waits a moment for its end
                pass
        except Exception as error:  # `wait` must raise any error
            reason = str(error) if isinstance(error, GroupwiseError) else f"{type(error).__name__}: {error}"
            if self._is_stopped.is_set():
                reason = "the server was stopped before it was healthy"
            if not self._url.done():
                self._url.set_exception(EngineFault(reason))
            self._is_stopped.wait(HEAR_SECONDS)
        if not self._is_stopped.is_set():
            self._leave(1)


class PlacedServer:
    """A server on a node, as seen by the run."""

    def __init__(self, placed: Placed) -> None:
        self._placed, self._url, self._is_stopped = placed, "", False

    def wait_until_healthy(self, *, timeout: float) -> None:
        """Wait until it answers; EngineFault if it fails, LostError if no node had room in time."""
        self._url = self._placed.ask("wait", timeout=timeout)

    @property
    def url(self) -> str:
        """Its URL, which changes when it is restarted."""
        with suppress(LostError):  # it is being restarted
            self._url = self._placed.ask("read_url", timeout=ASK_SECONDS) or self._url
        return self._url

    def is_running(self) -> bool:
        """Whether its process exists; it may still be loading."""
        try:
            return self._placed.ask("read_url", timeout=ASK_SECONDS) is not None
        except LostError:
            return False

    def start_again(self) -> None:
        """Do nothing: the cluster restarts it."""

    def stop(self) -> None:
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
    """Start servers on the nodes of a cluster and wait until all are healthy; if one fails, all are stopped.

    Every node must see `folder`, which gets the logs. Each server reserves as many GPUs as its entry of `gpus` names;
    the cluster chooses which.
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
    """Start a server on the node of the caller; other machines can reach it only if the run is on another node."""
    with suppress(OSError):  # relative paths of the run file need this folder; without it they fail with their name
        os.chdir(here)
    host = HOST if is_home else node.address
    return HostedServer(make_command, name=name, log=log, host=host, start_timeout=start_timeout)


def _listen_at(make_command: MakeCommand, host: str, port: int) -> ServerCommand:
    """A server's command with its host; the last of two flags counts, in groupwise and in vLLM."""
    arguments, variables = make_command(port)
    return [*arguments, "--host", host], variables
