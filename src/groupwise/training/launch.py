"""The processes of a run on the nodes of a cluster: started together, watched, and all started again where one died.

Nothing of the run is kept here: where processes died, the run goes on from what its folder holds.
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
"""How long a node may take to answer before it counts as gone."""
POLL_SECONDS = 0.5
LEAVE_SECONDS = 60.0
"""How long the other ranks may take to find that one is gone, and to say so, before they are ended."""
SIGNAL_STATUS = 128
"""A status above it says that a signal ended the process."""
GONE = -1
"""Stands for the status of a rank whose node is gone."""

Show = Callable[[int, str], None]
"""Prints what a rank wrote."""


class HostedRank:
    """A rank's process on its node, and what it has written."""

    def __init__(self, node: Node, is_home: bool) -> None:
        self._node, self._process = node, GuardedProcess()
        self._log, path = tempfile.mkstemp(prefix="groupwise-rank-")
        os.unlink(path)  # it is there as long as somebody has it open
        weakref.finalize(self, os.close, self._log)
        self._read = 0

    def describe(self) -> tuple[Node, int]:
        """The node, and a port that is free there."""
        return self._node, find_free_port()

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], here: str) -> None:
        """Start the process in a folder that the node must see."""
        try:
            os.chdir(here)
        except OSError as error:
            raise ConfigError(
                f"the node {self._node.address} cannot go to {here} ({error.strerror}); launch from a folder that all "
                "nodes see"
            ) from None
        self._process.start(arguments, variables, self._log)

    def read(self) -> tuple[str, int | None]:
        """What was written since this was last asked, and the status of a process that has ended."""
        has_ended = not self._process.is_alive()
        content = os.pread(self._log, 2**20, self._read)
        content = content if has_ended else content[: content.rfind(b"\n") + 1]
        self._read += len(content)
        is_done = has_ended and len(content) < 2**20
        status = self._process.end() if is_done else None
        if status is not None and status < 0:  # the guardian itself was killed, with all that it guards
            status = SIGNAL_STATUS - status
        return content.decode("utf-8", "replace"), status

    def stop(self) -> None:
        self._process.end()


class RankPlace(Protocol):
    """A rank's place on a node, as the launcher knows it."""

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method of the `HostedRank` there; LostError where it is gone."""


@dataclass(frozen=True)
class RankStatuses:
    """How the ranks of a run ended."""

    statuses: tuple[int, ...]
    """Of each; GONE where its node is, 0 for the others where that was found before all had started."""
    died: tuple[int, ...]
    """The ranks that went with their node, or that a signal ended which was none of ours."""

    @property
    def status(self) -> int:
        """What the command ends with: rank 0's, or another one's where that is the one that failed."""
        return next((abs(status) for status in self.statuses if status), 0)


def run_until_it_ends(
    start: Callable[[bool], RankStatuses],
    *,
    has_begun: Callable[[], bool],
    resume: bool,
    restarts: int,
    say: Callable[[str], None],
) -> int:
    """Run the ranks of a run, again as long as some of them died; the status of the last time.

    A run that ended with an error of its own would end so again, and is not repeated.

    Args:
        start: runs them once; it is told whether the run goes on with what its folder holds.
        has_begun: whether the folder holds something to go on with.
        resume: whether the first time goes on.
        restarts: how often they may be run again.
        say: prints a line.
    """
    for number in range(1, restarts + 2):
        outcome = start(resume)
        if not outcome.died:
            return outcome.status
        names = ", ".join(map(str, outcome.died))
        who = f"rank {names} has died" if len(outcome.died) == 1 else f"ranks {names} have died"
        if number > restarts:
            say(f"{who}, and {restarts} restarts were allowed; go on with --resume")
            return outcome.status
        resume = has_begun()
        how = "goes on with what its folder holds" if resume else "begins again"
        say(f"{who}; the run {how} (restart {number} of {restarts})")
    raise AssertionError("it was run once at least")


def run_ranks(
    places: Sequence[RankPlace], arguments: Sequence[str], variables: Mapping[str, str], *, with_gpus: bool, show: Show
) -> RankStatuses:
    """Start a command on every place as the ranks of one run, and stay until all have ended.

    Args:
        places: of the ranks, in their order.
        arguments: of the command.
        variables: what its environment has beside the node's; who is which rank is added.
        with_gpus: whether each rank sees a GPU of its own, which is its first then.
        show: prints what they write.
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
    """What torchrun would tell each rank, by variables.

    Worked example: three ranks on nodes a, b, b. They meet at a; the third is number 1 of the two on b, unless it
    sees a GPU of its own, which is then the first that it sees.

    Args:
        nodes: of the ranks, in their order.
        port: that is free on the node of rank 0.
        with_gpus: whether each rank sees one GPU alone.
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
    """Start the ranks in their order, up to one whose node is gone; which, or None where all have started."""
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
    """Print what a rank wrote; its status where it has ended."""
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
