"""An engine over HTTP: one or more servers that hold copies of the weights.

`ServerEngine` is for groupwise servers, which answer a list of requests as one batch. Rollouts then run synchronously,
so batches do not depend on timing. `StreamingServerEngine` is for other servers, which take one request per call and
answer in any order.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from groupwise.data.samples import PromptAndResponse
from groupwise.engines import messages as wire
from groupwise.engines.engine import Generation, Request
from groupwise.engines.http_client import ServerClient, ServerFault, open_clients
from groupwise.engines.model_source import ModelSource, read_adapter_settings
from groupwise.engines.replica import Replica, ServerInfo, StartedServer, ask_server, check_server
from groupwise.engines.server_processes import stop_servers
from groupwise.system.errors import ConfigError, EngineFault, GroupwiseError
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    import torch

OPENING_SECONDS = 30.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


class ServerEngine:
    """Servers that answer lists of requests, each list as one batch; rollouts run synchronously."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        describe: Callable[[ServerClient], ServerInfo],
        processes: Sequence[StartedServer] = (),
        adapter: Mapping[str, Any] | None = None,
        precision: str = "float32",
    ) -> None:
        self._replicas, self._describe, self._processes = replicas, describe, tuple(processes)
        self._precision = precision
        self.adapter_settings = adapter
        """The `adapter_config.json` of the run's LoRA adapter; None if the run's model has none."""
        self._owner = 100_000 + secrets.randbelow(900_000)
        self.version, self._has_synced = 0, False

    @property
    def gives(self) -> frozenset[str]:
        return frozenset.intersection(*(replica.info.gives for replica in self._replicas.members))

    @property
    def context(self) -> int | None:
        contexts = [replica.info.context for replica in self._replicas.members]
        return min((context for context in contexts if context is not None), default=None)

    @property
    def replicas(self) -> Sequence[Replica]:
        return [replica for replica in self._replicas.members if replica.state != "out"]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        sessions = [name_session(request) for request in requests]
        return self._replicas.ask_in_batches(requests, sessions, partial(methodcaller, "generate_batch"))

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        sessions = [_name_prompt(prompt) for prompt, _ in sequences]
        return self._replicas.ask_in_batches(
            sequences, sessions, lambda pairs: methodcaller("score_batch", pairs, temperature)
        )

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Sync weights through a file in memory, for servers on this machine.

        They are cast to the servers' precision first: the numbers are the same, with half as many bytes.
        """
        import torch
        from safetensors.torch import save_file

        dtype, tensors = getattr(torch, self._precision), dict[str, torch.Tensor]()
        for name, value in weights.items():
            is_wide = value.is_floating_point() and dtype.itemsize < value.dtype.itemsize
            tensors[name] = (value.detach().to(dtype) if is_wide else value.detach()).cpu().contiguous()
        num_bytes = sum(value.nbytes for value in tensors.values())
        with open_weights_folder(num_bytes) as folder:
            path = Path(folder) / f"{version:04d}.safetensors"
            try:
                save_file(tensors, path)
            except Exception as error:  # safetensors raises errors of its own, also for a full disk
                raise EngineFault(
                    f"the weights could not be written to {path} ({error}); free some space, or use the "
                    "weight_sync through_file"
                ) from None
            self.load_file(path, version=version)

    def load_file(self, path: Path, *, version: int) -> None:
        """Sync the weights of a safetensors file to every server, also to servers that were out."""
        self._sync(Replica.take_file, path, version)

    def load_adapter(self, folder: Path, *, version: int) -> None:
        self._sync(Replica.take_adapter, folder, version)

    def load_through(self, send: Callable[[Sequence[Replica], str], None], *, version: int) -> None:
        """Pause all servers while a trainer sends weights to them; `send` receives the servers and the weights' label.

        A server that fails to pause or to resume is out, and does not return by this method. If `send` fails, the
        weight sync fails: it is not known which server is the cause.
        """
        label = wire.write_label(version, owner=self._owner)
        with ExitStack() as paused:
            for replica in self.replicas:
                self._pause(replica, paused, version=version, label=label)
            if self.replicas:
                send(self.replicas, label)
        self._finish(version)

    def admit(self, name: str) -> None:
        self._replicas.admit(self._replicas.find(name))

    def dismiss(self, name: str, reason: str) -> None:
        self._replicas.dismiss(self._replicas.find(name), reason)

    def take_metrics(self) -> dict[str, float]:
        return self._replicas.take_metrics()

    def close(self) -> None:
        self._replicas.close()
        stop_servers(self._processes)

    def _sync(self, take: Callable[..., None], path: Path, version: int) -> None:
        """Sync all servers at once. Servers that fail are out; if all fail, an error is raised."""
        label = wire.write_label(version, owner=self._owner)

        def sync_one(replica: Replica) -> None:
            was_out, since = replica.state == "out", time.monotonic()
            try:
                if was_out:
                    replica.look_again(self._describe)
                take(replica, path, version=version, label=label)
                replica.count(sync_seconds=time.monotonic() - since)
            except GroupwiseError as fault:
                self._fail(replica, fault)
            else:
                if was_out:
                    self._replicas.put_on_trial(replica)

        members = self._replicas.members
        with ThreadPoolExecutor(len(members), "weight-sync") as threads:  # each step has a time-out of its own
            list(threads.map(sync_one, members))
        self._finish(version)

    def _pause(self, replica: Replica, paused: ExitStack, *, version: int, label: str) -> None:
        """Pause a replica until `paused` is left. If this fails, the replica is out; the others continue."""
        pause = replica.hold_still(version=version, label=label)

        def resume(*details: Any) -> None:
            try:
                pause.__exit__(*details)
            except GroupwiseError as fault:
                self._fail(replica, fault)

        try:
            pause.__enter__()
        except GroupwiseError as fault:
            self._fail(replica, fault)
        else:
            paused.push(resume)

    def _finish(self, version: int) -> None:
        """Continue with the replicas that have the new weights, bit-exact; raise an error if none is left.

        Checksums are compared only if a server is new or was out: for a large model they take longer than a sync.
        """
        known = [replica for replica in self.replicas if replica.state == "in" and self._has_synced]
        newcomers = [replica for replica in self.replicas if replica not in known]
        self._has_synced = True
        for replica, reason in find_other_weights([*known, *newcomers]) if newcomers else ():
            self._replicas.dismiss(replica, reason)
        if not self.replicas:
            raise EngineFault(self._replicas.describe_end())
        self.version = version

    def _fail(self, replica: Replica, fault: GroupwiseError) -> None:
        """Dismiss a replica that failed in a weight sync. The last one is dismissed silently: an error follows."""
        replica.count(faults=1)
        self._replicas.dismiss(replica, str(fault), is_silent=self.replicas == [replica])


class StreamingServerEngine(ServerEngine):
    """Servers that take one request per call and answer in any order; rollouts run asynchronously."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        return [self._replicas.submit(name_session(request), methodcaller("generate", request)) for request in requests]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [future.result() for future in self.submit(requests)]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        futures = [
            self._replicas.submit(_name_prompt(prompt), methodcaller("score_pair", prompt, response, temperature))
            for prompt, response in sequences
        ]
        return [future.result() for future in futures]


def open_server_engine(
    urls: Sequence[str],
    *,
    source: ModelSource,
    precision: str,
    request_timeout: float,
    sync_timeout: float,
    max_in_flight: int,
    processes: Sequence[StartedServer] = (),
) -> ServerEngine:
    """An engine over running servers. Each is checked first: it must serve the run's model.

    `max_in_flight` limits the running requests per server, for servers that take one request per call. `processes` are
    the servers of `urls`, in their order, if they were started here; `close` stops them.
    """

    def describe(client: ServerClient) -> ServerInfo:
        try:
            info = ask_server(client, timeout=OPENING_SECONDS)
            check_server(client, info, source, precision, OPENING_SECONDS)
        except GroupwiseError:
            client.abort()
            raise
        return info

    try:
        replicas = [
            Replica(
                number,
                client,
                describe(client),
                vocabulary=int(source.model.config.get_text_config().vocab_size),
                request_timeout=request_timeout,
                sync_timeout=sync_timeout,
                process=processes[number] if processes else None,
            )
            for number, client in enumerate(open_clients(urls))
        ]
        kinds = {replica.info.takes_batches for replica in replicas}
        if len(kinds) > 1:
            raise ConfigError("engine.urls: groupwise and vLLM servers are mixed; name servers of one kind")
    except BaseException:
        stop_servers(processes)
        raise
    takes_batches = kinds == {True}
    engine_class = ServerEngine if takes_batches else StreamingServerEngine
    return engine_class(
        Replicas(replicas, max_in_flight=1 if takes_batches else max_in_flight),
        describe=describe,
        processes=processes,
        adapter=read_adapter_settings(source.model),
        precision=precision,
    )


def _name_prompt(prompt: Sequence[int]) -> str:
    return f"prompt {list(prompt)}"


# Several servers as one: routing, failures, and limits on running requests.
#
# A session always goes to the same server while that server is in. If a server fails, its requests are sent to another
# one with the same seeds, so they give the same tokens. A failed server stays out until a weight sync.


def choose_replica(session: str, numbers: Sequence[int]) -> int:
    """Choose the replica of a session: the one with the largest hash of its number and the session.

    If a replica is dismissed, only its sessions move; later they return. The number is hashed, not the URL, because
    servers that a run starts have other ports each time.
    """
    return max(numbers, key=lambda number: hashlib.blake2b(f"{number} {session}".encode(), digest_size=8).digest())


def name_session(request: Request) -> str:
    return f"seed {request.seed}" if request.session is None else f"session {request.session}"


def find_other_weights(replicas: Sequence[Replica]) -> Iterator[tuple[Replica, str]]:
    """The replicas whose weights differ from those of the first, or that fail to answer, each with the reason.

    If the first one is wrong, it does not pass its weight check.
    """
    if len(replicas) < 2:
        return
    first = replicas[0]
    try:
        expected = first.read_checksums()
    except EngineFault as fault:
        yield first, str(fault)
        return
    for replica in replicas[1:] if expected else ():
        try:
            checksums = replica.read_checksums()
        except EngineFault as fault:
            yield replica, str(fault)
            continue
        # Servers that shard the model differently have other parameter names.
        if expected and checksums and expected.keys() == checksums.keys() and expected != checksums:
            name = next(name for name in expected if expected[name] != checksums[name])
            yield replica, f"after the weight sync its {quote_line(name, limit=80)} differs from that of {first.name}"


class Replicas:
    """Routes calls to replicas, at most `max_in_flight` at a time per replica."""

    def __init__(self, replicas: Sequence[Replica], *, max_in_flight: int) -> None:
        self.members = tuple(replicas)
        self._lock = threading.Lock()
        self._threads = {
            replica.number: ThreadPoolExecutor(max_in_flight, f"groupwise {replica.name}") for replica in replicas
        }
        # A call that failed at one replica is repeated here from the threads of that replica.
        self._places = {replica.number: threading.Semaphore(max_in_flight) for replica in replicas}
        self._is_closed = False
        self._last_reason = ""
        self._num_sent_again, self._num_left, self._num_readmitted = 0, 0, 0

    def list_in(self) -> list[Replica]:
        return [replica for replica in self.members if replica.state == "in"]

    def find(self, name: str) -> Replica:
        return next(replica for replica in self.members if replica.name == name)

    def route(self, session: str) -> Replica:
        """The replica of a session; a fault if none is left."""
        numbers = [replica.number for replica in self.list_in()]
        if not numbers:
            raise EngineFault(self.describe_end())
        return self.members[choose_replica(session, numbers)]

    def submit(self, session: str, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask the session's replica; if it fails, ask another one."""

        def ask_until_answered() -> Answer:
            while True:
                try:
                    return self._ask(self.route(session), ask)
                except ServerFault:
                    with self._lock:
                        self._num_sent_again += 1

        return self._submit(self.route(session), ask_until_answered)

    def submit_to(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        return self._submit(replica, partial(self._ask, replica, ask))

    def ask_in_batches(
        self,
        items: Sequence[Item],
        sessions: Sequence[str],
        make_ask: Callable[[list[Item]], Callable[[Replica], Sequence[Answer]]],
    ) -> list[Answer]:
        """Answers to items, in their order. Items of one replica form one batch; if it fails, other replicas answer."""
        answers: dict[int, Answer] = {}
        while len(answers) < len(items):
            batches: dict[int, list[int]] = {}
            for place in (place for place in range(len(items)) if place not in answers):
                batches.setdefault(self.route(sessions[place]).number, []).append(place)
            futures = {
                number: self.submit_to(self.members[number], make_ask([items[place] for place in places]))
                for number, places in batches.items()
            }
            for number, future in futures.items():
                try:
                    answers |= zip(batches[number], future.result(), strict=True)
                except ServerFault:
                    with self._lock:
                        self._num_sent_again += len(batches[number])
        return [answers[place] for place in range(len(items))]

    def _submit(self, replica: Replica, work: Callable[[], Answer]) -> Future[Answer]:
        with self._lock:
            if self._is_closed:
                raise EngineFault("the engine is closed; open another one")
            return self._threads[replica.number].submit(work)

    def _ask(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Answer:
        """A replica's answer; a ServerFault if it is out, fails, or is dismissed before it has answered."""
        with self._places[replica.number]:
            membership = replica.membership
            self._check_is_in(replica, membership)
            try:
                answer = ask(replica)
            except ServerFault as fault:
                self.dismiss(replica, str(fault), asked_in=membership)
                raise
            self._check_is_in(replica, membership)
            return answer

    def _check_is_in(self, replica: Replica, membership: int) -> None:
        with self._lock:
            if self._is_closed:
                raise EngineFault("the engine was closed before a request was answered")
            if replica.state != "in" or replica.membership != membership:
                raise ServerFault(self._last_reason)

    def dismiss(self, replica: Replica, reason: str, *, asked_in: int | None = None, is_silent: bool = False) -> None:
        """Send a replica no requests until a weight sync; its waiting and running requests go to other replicas.

        If `asked_in` is given and is not its current membership, nothing happens. `is_silent`: write no warning,
        because an error follows.
        """
        with self._lock:
            if self._is_closed or asked_in not in (None, replica.membership):
                return
            replica.count(faults=int(asked_in is not None))
            was, replica.state = replica.state, "out"
            replica.membership += was != "out"
            self._num_left += was == "in"
            if was != "out":  # later failures there only follow from this one
                self._last_reason = reason
        if was != "out" and not is_silent:
            _log.warning("engine: %s is out until the next weight sync: %s", replica.name, reason)
        if was != "out":
            replica.client.abort()
        replica.revive()

    def put_on_trial(self, replica: Replica) -> None:
        with self._lock:
            replica.state = "on trial"

    def admit(self, replica: Replica) -> None:
        with self._lock:
            if replica.state == "on trial":
                replica.state = "in"
                self._num_readmitted += 1

    def take_metrics(self) -> dict[str, float]:
        with self._lock:
            metrics = {
                "replicas/alive": float(len(self.list_in())),
                "replicas/sent_again": float(self._num_sent_again),
                "replicas/left": float(self._num_left),
                "replicas/readmitted": float(self._num_readmitted),
            }
            self._num_sent_again, self._num_left, self._num_readmitted = 0, 0, 0
        for replica in self.members:
            tally = replica.take_tally()
            metrics |= {f"replicas/{replica.number}/{name}": float(value) for name, value in tally.items()}
        return metrics

    def close(self) -> None:
        """Cancel waiting calls, break off running ones, and let the threads end."""
        with self._lock:
            self._is_closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for replica in self.members:
            replica.give_up()

    def describe_end(self) -> str:
        num = len(self.members)
        whose = "the engine's server is" if num == 1 else f"all {num} servers of the engine are"
        return f"{whose} out; the last reason: {self._last_reason}"


# A folder in memory for weights that servers of this machine read. Folders of killed runs are removed.

MEMORY_FOLDER = Path("/dev/shm")
"""The folder of files in memory, on machines that have one."""
PROCESS_NUMBERS = Path("/proc/self/ns/pid")
"""Names the PID namespace: containers may share the memory folder, but not the process ids."""
PREFIX = "groupwise-weights"


def open_weights_folder(num_bytes: int) -> TemporaryDirectory[str]:
    """A folder for `num_bytes` until it is closed: in memory if there is room, else among temporary files.

    A killed process removes nothing. So each folder is named after its process, and the next call removes folders of
    ended processes. Containers often have 64 MiB of such memory, or none.
    """
    count = PROCESS_NUMBERS.stat().st_ino if PROCESS_NUMBERS.exists() else 0
    name = re.compile(rf"{PREFIX}-{count}-(\d+)-\w+")
    for folder in MEMORY_FOLDER.glob(f"{PREFIX}-*"):
        owner = name.fullmatch(folder.name)
        with suppress(OSError, OverflowError):  # deleted meanwhile, another user's process, or no process id
            if owner and folder.lstat().st_uid == os.getuid():
                try:
                    os.kill(int(owner[1]), 0)
                except ProcessLookupError:
                    shutil.rmtree(folder, ignore_errors=True)
    place = None
    with suppress(OSError):
        if shutil.disk_usage(MEMORY_FOLDER).free > 2 * num_bytes and os.access(MEMORY_FOLDER, os.W_OK):
            place = MEMORY_FOLDER
    return TemporaryDirectory(prefix=f"{PREFIX}-{count}-{os.getpid()}-", dir=place)
