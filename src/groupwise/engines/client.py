"""An engine at the other end of HTTP: one or more servers that hold copies of the weights.

Servers of ours take a list of requests and answer it as one batch: attempts are then played in step, and what decodes
together does not depend on the clock (`ServerEngine`). Other servers take a request a call, and answer in any order
(`StreamingServerEngine`).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from groupwise.data.samples import PromptAndResponse
from groupwise.engines import messages as wire
from groupwise.engines.engine import Generation, Request
from groupwise.engines.http_client import ServerClient, open_clients
from groupwise.engines.model_source import ModelSource, read_adapter_settings
from groupwise.engines.replica import Replica, ServerFacts, StartedServer, ask_server, check_server
from groupwise.engines.replicas import Replicas, find_other_weights, name_session
from groupwise.engines.server_processes import stop_servers
from groupwise.system.errors import ConfigError, EngineFault, GroupwiseError

if TYPE_CHECKING:
    import torch

OPENING_SECONDS = 30.0
"""How long a server may take to say who it is."""


class ServerEngine:
    """Servers that answer lists of requests, each list as one batch; attempts are played in step."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        describe: Callable[[ServerClient], ServerFacts],
        processes: Sequence[StartedServer] = (),
        adapter: Mapping[str, Any] | None = None,
        precision: str = "float32",
    ) -> None:
        self._replicas, self._describe, self._processes = replicas, describe, tuple(processes)
        self._precision = precision
        self.adapter_settings = adapter
        """What `adapter_config.json` says of the run's LoRA adapter; None where the run's model has none."""
        self._owner = 100_000 + secrets.randbelow(900_000)
        self._version, self._has_handed_over = 0, False

    @property
    def gives(self) -> frozenset[str]:
        """What every one of the servers gives."""
        return frozenset.intersection(*(replica.facts.gives for replica in self._replicas.members))

    @property
    def version(self) -> int:
        """Version of the weights that were handed over last."""
        return self._version

    @property
    def context(self) -> int | None:
        """The smallest context of the servers."""
        contexts = [replica.facts.context for replica in self._replicas.members]
        return min((context for context in contexts if context is not None), default=None)

    @property
    def replicas(self) -> Sequence[Replica]:
        """Those that took the last hand-over: they answer requests, or will once they are admitted."""
        return [replica for replica in self._replicas.members if replica.state != "out"]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order: those that go to one server as one batch."""
        sessions = [name_session(request) for request in requests]
        return self._replicas.ask_in_batches(requests, sessions, partial(methodcaller, "generate_batch"))

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt."""
        sessions = [_name_prompt(prompt) for prompt, _ in sequences]
        return self._replicas.ask_in_batches(
            sequences, sessions, lambda pairs: methodcaller("score_batch", pairs, temperature)
        )

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Hand weights over through a file in memory, for servers on this machine.

        They go in what the servers compute in: cast here they are the same numbers, and half as many bytes.
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
            except Exception as error:  # safetensors says it in its own errors, a full disk among them
                raise EngineFault(
                    f"the weights could not be written to {path} ({error}); free some space, or use the "
                    "weight_transfer through_file"
                ) from None
            self.load_file(path, version=version)

    def load_file(self, path: Path, *, version: int) -> None:
        """Hand the weights of a safetensors file over to every server: those that are in, and those that come back."""
        label = wire.write_label(version, owner=self._owner)
        self._hand_over(lambda replica: replica.take_file(path, version=version, label=label), version)

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Hand an adapter's folder over to every server: those that are in, and those that come back."""
        label = wire.write_label(version, owner=self._owner)
        self._hand_over(lambda replica: replica.take_adapter(folder, version=version, label=label), version)

    def load_through(self, send: Callable[[Sequence[Replica], str], None], *, version: int) -> None:
        """Let a trainer send weights to all servers at once while they stand still.

        A server that cannot stand still, or go on, is out, and does not come back this way. Where the sending
        itself fails, it fails for all: nobody can say whose fault it was. `send` is given the servers, and the label
        that they shall call the weights by.
        """
        label = wire.write_label(version, owner=self._owner)
        with ExitStack() as still:
            for replica in self.replicas:
                self._hold_still(replica, still, version=version, label=label)
            if self.replicas:
                send(self.replicas, label)
        self._finish(version)

    def admit(self, name: str) -> None:
        """Send a replica requests: it holds the current weights, and proved it."""
        self._replicas.admit(self._replicas.find(name))

    def dismiss(self, name: str, reason: str) -> None:
        """Send a replica no requests until it has taken another hand-over and proved it."""
        self._replicas.dismiss(self._replicas.find(name), reason)

    def take_metrics(self) -> dict[str, float]:
        """What the servers did since they were last asked."""
        return self._replicas.take_metrics()

    def close(self) -> None:
        """Cancel what waits, and stop the servers that were started here."""
        self._replicas.close()
        stop_servers(self._processes)

    def _hand_over(self, take: Callable[[Replica], None], version: int) -> None:
        """Hand something over to all servers at once; those that fail are out, and where all do it is a fault."""
        members = self._replicas.members
        with ThreadPoolExecutor(len(members), "hand-over") as threads:  # each step has a time-out of its own
            list(threads.map(lambda replica: self._hand_over_to(replica, take), members))
        self._finish(version)

    def _hold_still(self, replica: Replica, still: ExitStack, *, version: int, label: str) -> None:
        """Let a replica stand still until `still` is left; one that fails at it is out, and the others go on."""
        pause = replica.hold_still(version=version, label=label)

        def go_on(*details: Any) -> None:
            try:
                pause.__exit__(*details)
            except GroupwiseError as fault:
                self._fail(replica, fault)

        try:
            pause.__enter__()
        except GroupwiseError as fault:
            self._fail(replica, fault)
        else:
            still.push(go_on)

    def _finish(self, version: int) -> None:
        """Go on with those that took the weights, the same ones to the bit; a fault where none is left.

        Digests are compared where a server has just begun or come back. Not at every hand-over: for a large model they
        take longer than handing it over.
        """
        known = [replica for replica in self.replicas if replica.state == "in" and self._has_handed_over]
        newcomers = [replica for replica in self.replicas if replica not in known]
        self._has_handed_over = True
        for replica, reason in find_other_weights([*known, *newcomers]) if newcomers else ():
            self._replicas.dismiss(replica, reason)
        if not self.replicas:
            raise EngineFault(self._replicas.describe_end())
        self._version = version

    def _hand_over_to(self, replica: Replica, take: Callable[[Replica], None]) -> None:
        was_out, since = replica.state == "out", time.monotonic()
        try:
            if was_out:
                replica.look_again(self._describe)
            take(replica)
            replica.count(handover_seconds=time.monotonic() - since)
        except GroupwiseError as fault:
            self._fail(replica, fault)
        else:
            if was_out:
                self._replicas.put_on_trial(replica)

    def _fail(self, replica: Replica, fault: GroupwiseError) -> None:
        """Dismiss a replica that failed at a hand-over; the last one's reason is told by the error that follows."""
        replica.count(faults=1)
        self._replicas.dismiss(replica, str(fault), is_silent=self.replicas == [replica])


class StreamingServerEngine(ServerEngine):
    """Servers that answer a request a call, in any order; attempts go on by themselves."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        """Take requests and return at once, with a future for each."""
        return [self._replicas.submit(name_session(request), methodcaller("generate", request)) for request in requests]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""
        return [future.result() for future in self.submit(requests)]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt."""
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
    handover_timeout: float,
    max_in_flight: int,
    processes: Sequence[StartedServer] = (),
) -> ServerEngine:
    """An engine over servers that are up; each is asked who it is, and refused where it cannot serve the run's model.

    Where they take a request a call, `max_in_flight` may be under way at each. `processes` are the servers of `urls`,
    in their order, if they were started here; `close` stops them.
    """

    def describe(client: ServerClient) -> ServerFacts:
        try:
            facts = ask_server(client, timeout=OPENING_SECONDS)
            check_server(client, facts, source, precision, OPENING_SECONDS)
        except GroupwiseError:
            client.abort()
            raise
        return facts

    try:
        replicas = [
            Replica(
                number,
                client,
                describe(client),
                vocabulary=int(source.model.config.get_text_config().vocab_size),
                request_timeout=request_timeout,
                handover_timeout=handover_timeout,
                process=processes[number] if processes else None,
            )
            for number, client in enumerate(open_clients(urls))
        ]
        kinds = {replica.facts.takes_batches for replica in replicas}
        if len(kinds) > 1:
            raise ConfigError("engine.urls: servers of ours are named beside others; name servers of one kind")
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


# A folder in memory for weights on their way to servers of this machine; what killed runs left there is removed.

MEMORY_FOLDER = Path("/dev/shm")
"""Where files lie in memory, on machines that have such a place."""
PROCESS_NUMBERS = Path("/proc/self/ns/pid")
"""Says which count of processes ours is of: containers may share the memory's folder and not that count."""
PREFIX = "groupwise-weights"


def open_weights_folder(num_bytes: int) -> TemporaryDirectory[str]:
    """A folder for so many bytes until it is closed: in memory where there is room, among temporary files where not.

    A process that is killed closes nothing, so each folder is named after its process, and the next one to need room
    removes those whose process is gone. Containers often have 64 MiB of such memory, or none.
    """
    count = PROCESS_NUMBERS.stat().st_ino if PROCESS_NUMBERS.exists() else 0
    name = re.compile(rf"{PREFIX}-{count}-(\d+)-\w+")
    for folder in MEMORY_FOLDER.glob(f"{PREFIX}-*"):
        owner = name.fullmatch(folder.name)
        with suppress(OSError):  # gone meanwhile
            if owner and folder.lstat().st_uid == os.getuid() and not _is_alive(int(owner[1])):
                shutil.rmtree(folder, ignore_errors=True)
    place = None
    with suppress(OSError):
        if shutil.disk_usage(MEMORY_FOLDER).free > 2 * num_bytes and os.access(MEMORY_FOLDER, os.W_OK):
            place = MEMORY_FOLDER
    return TemporaryDirectory(prefix=f"{PREFIX}-{count}-{os.getpid()}-", dir=place)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return True
    return True
