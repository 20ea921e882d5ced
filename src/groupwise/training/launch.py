"""Start and watch the processes of a run on the nodes of a cluster. If one dies, all are started again.

The restarted run resumes from its folder.
"""

from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from groupwise.engines.ray_cluster import HOME, LostError, Node
from groupwise.system.errors import ConfigError
from groupwise.system.processes import GuardedProcess, find_free_port

ASK_SECONDS = 60.0
"""Seconds that a node may take to answer before it counts as lost."""
POLL_SECONDS = 0.5
LEAVE_SECONDS = 60.0
"""Seconds that the other ranks may take to end by themselves when one is lost."""
SIGNAL_STATUS = 128
"""A status above it means that a signal ended the process."""
GONE = -1
"""The status of a rank whose node is lost."""

Show = Callable[[int, str], None]
"""Prints what a rank wrote."""


class HostedRank:
    """A rank's process on its node, and its output."""

    def __init__(self, node: Node, is_home: bool) -> None:
        self._node, self._process = node, GuardedProcess()
        self._log, path = tempfile.mkstemp(prefix="groupwise-rank-")
        os.unlink(path)  # the file stays as long as it is open
        weakref.finalize(self, os.close, self._log)
        self._read = 0

    def describe(self) -> tuple[Node, int]:
        """The node, and a free port there."""
        return self._node, find_free_port()

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], here: str) -> None:
        """Start the process in a folder that the node can see."""
        try:
            os.chdir(here)
        except OSError as error:
            raise ConfigError(
                f"the node {self._node.address} cannot open {here} ({error.strerror}); launch from a folder that all "
                "nodes can see"
            ) from None
        self._process.start(arguments, variables, self._log)

    def read(self) -> tuple[str, int | None]:
        """The output since the last call, and the exit status if the process has ended."""
        has_ended = not self._process.is_alive()
        content = os.pread(self._log, 2**20, self._read)
        content = content if has_ended else content[: content.rfind(b"\n") + 1]
        self._read += len(content)
        is_done = has_ended and len(content) < 2**20
        status = self._process.end() if is_done else None
        if status is not None and status < 0:  # the supervisor process was killed, with its process
            status = SIGNAL_STATUS - status
        return content.decode("utf-8", "replace"), status

    def stop(self) -> None:
        self._process.end()


class RankPlace(Protocol):
    """A rank's place on a node, as the launcher sees it."""

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method of the `HostedRank` there; LostError if the node is lost."""


@dataclass(frozen=True)
class RankStatuses:
    """How the ranks of a run ended."""

    statuses: tuple[int, ...]
    """Per rank; GONE if its node is lost. If that happened before all had started, the others have 0."""
    died: tuple[int, ...]
    """The ranks that were lost with their node, or ended by a signal that the launcher did not send."""

    @property
    def status(self) -> int:
        """The command's exit status: the first rank's that failed."""
        return next((abs(status) for status in self.statuses if status), 0)


def run_until_it_ends(
    start: Callable[[bool], RankStatuses],
    *,
    has_begun: Callable[[], bool],
    resume: bool,
    restarts: int,
    say: Callable[[str], None],
) -> int:
    """Run the ranks of a run, again if some of them died, and return the last status.

    A run that ended with its own error is not repeated.

    Args:
        start: runs the ranks once, with whether the run is resumed.
        has_begun: whether the folder holds a run to resume.
        resume: whether the first run is resumed.
        restarts: largest number of restarts.
        say: prints a line.
    """
    for number in range(1, restarts + 2):
        outcome = start(resume)
        if not outcome.died:
            return outcome.status
        names = ", ".join(map(str, outcome.died))
        who = f"rank {names} has died" if len(outcome.died) == 1 else f"ranks {names} have died"
        if number > restarts:
            say(f"{who}, and {restarts} restarts were allowed; continue with --resume")
            return outcome.status
        resume = has_begun()
        how = "resumes from its folder" if resume else "begins again"
        say(f"{who}; the run {how} (restart {number} of {restarts})")
    raise AssertionError("it was run once at least")


def run_ranks(
    places: Sequence[RankPlace], arguments: Sequence[str], variables: Mapping[str, str], *, with_gpus: bool, show: Show
) -> RankStatuses:
    """Start a command on every place as the ranks of one run, and wait until all have ended.

    `variables` are added to each node's environment. With `with_gpus`, each rank sees one GPU of its own. `show`
    prints the ranks' output.
    """
    lost = _start(places, arguments, variables, with_gpus=with_gpus, show=show)
    if lost is not None:
        _end([place for rank, place in enumerate(places) if rank != lost])
        return RankStatuses(tuple(GONE if rank == lost else 0 for rank in range(len(places))), (lost,))
    statuses, ended_by_us, deadline = dict[int, int](), set[int](), None
    while len(statuses) < len(places):
        for rank in (rank for rank in range(len(places)) if rank not in statuses):
            status = _look_at(places[rank], rank, show)
            if status is not None:
                statuses[rank] = status
        if deadline is None and any(statuses.values()):
            deadline = time.monotonic() + LEAVE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            ended_by_us |= {rank for rank in range(len(places)) if rank not in statuses}
            _end([places[rank] for rank in ended_by_us])
        time.sleep(POLL_SECONDS)
    died = [
        rank
        for rank, status in sorted(statuses.items())
        if status == GONE or (status > SIGNAL_STATUS and rank not in ended_by_us)
    ]
    return RankStatuses(tuple(statuses[rank] for rank in range(len(places))), tuple(died))


def list_rank_variables(nodes: Sequence[Node], *, port: int, with_gpus: bool) -> list[dict[str, str]]:
    """The environment variables that torchrun would set for each rank.

    Worked example: three ranks on nodes a, b, b. Their master is a. The third has local rank 1, or 0 if each rank sees
    one GPU of its own. `port` is free on the node of rank 0.
    """
    together = Counter(node.id for node in nodes)
    before, variables = Counter[str](), list[dict[str, str]]()
    address = HOME if len(together) == 1 else nodes[0].address
    for rank, node in enumerate(nodes):
        variables.append(
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(nodes)),
                "LOCAL_RANK": "0" if with_gpus else str(before[node.id]),
                "LOCAL_WORLD_SIZE": "1" if with_gpus else str(together[node.id]),
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
            }
        )
        before[node.id] += 1
    return variables


def _start(
    places: Sequence[RankPlace], arguments: Sequence[str], variables: Mapping[str, str], *, with_gpus: bool, show: Show
) -> int | None:
    """Start the ranks in order; returns the first whose node is lost, or None."""
    rank, nodes = 0, list[tuple[Node, int]]()
    try:
        for place in places:
            rank = len(nodes)
            nodes.append(place.ask("describe", timeout=ASK_SECONDS))
        by_rank = list_rank_variables([node for node, _ in nodes], port=nodes[0][1], with_gpus=with_gpus)
        for rank, place in enumerate(places):
            own = {**variables, **by_rank[rank]}
            place.ask("start", list(arguments), own, str(Path.cwd()), timeout=ASK_SECONDS)
    except LostError as error:
        show(rank, f"{error}\n")
        return rank
    return None


def _look_at(place: RankPlace, rank: int, show: Show) -> int | None:
    """Print a rank's output; returns its status if it has ended."""
    try:
        text, status = place.ask("read", timeout=ASK_SECONDS)
    except LostError as error:
        show(rank, f"{error}\n")
        return GONE
    if text:
        show(rank, text)
    ended: int | None = status
    return ended


def _end(places: Sequence[RankPlace]) -> None:
    for place in places:
        try:
            place.ask("stop", timeout=ASK_SECONDS)
        except LostError:  # then it has ended
            continue
