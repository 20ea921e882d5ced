"""Ray, as one who places objects on nodes and makes those anew whose process died; it keeps nothing of a run.

The only file that imports Ray. What is placed is a plain object of ours: it is made on its node, and made again, from
the same words, when its process or its node is gone.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from groupwise.system.errors import ConfigError, GroupwiseError

LOCAL = "local"
"""An address that stands for a cluster of this machine alone, which ends with whoever started it."""
HOME = "127.0.0.1"
EVERYWHERE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_COLOR_PREFIX": "0"}
"""Ray's variables: it would tell its makers that it was used, and colour what it prints."""
WHERE_IT_STARTS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray's variable, on Linux too, for a cluster of one machine: then all of it listens on 127.0.0.1 alone."""
CONNECT_SECONDS = 10.0
THREADS = 4
"""Questions that a placed object answers at a time: one may wait for something for minutes."""


class LostError(GroupwiseError):
    """A placed object does not answer: its process is gone, or it has found no place yet."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    """Ray's name for it."""
    address: str
    """Where other machines reach it."""


class RayCluster:
    """A cluster that this process has joined, or started."""

    def __init__(self, address: str = LOCAL) -> None:
        """Join the cluster whose head is at an address such as `10.0.0.1:6379`; `local` = start one on this machine."""
        self._is_new = is_new = address == LOCAL
        self._ray = _import_ray(WHERE_IT_STARTS if is_new else {})
        settings = {"include_dashboard": False} if is_new else {}
        try:
            if not is_new:
                _check_is_there(address)
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **settings)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(
                f"the Ray cluster {address!r} could not be joined ({reason}); start one with `ray start --head`, and "
                "give the address that it prints"
            ) from None
        self.node = _find_node(self._ray)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where others join it."""
        address: str = self._ray.get_runtime_context().gcs_address
        return address

    def close(self) -> None:
        """Leave it; what was placed from here ends, and the whole cluster where it was started here."""
        self._ray.shutdown()

    def reserve(self, count: int, *, cpus: float, gpus: int, timeout: float) -> Room:
        """Reserve room for several objects, all or none, on as few nodes as there must be.

        Others may take `timeout` seconds to make room; ConfigError where there is none by then.
        """
        from ray.util.placement_group import placement_group

        has, asked = self._ray.cluster_resources(), {"CPU": cpus, "GPU": float(gpus)}
        bundle = {kind: number for kind, number in asked.items() if number}
        group = placement_group([bundle] * count, strategy="PACK")
        # A cluster that others started may get nodes back, or new ones, while it is waited for.
        is_too_small = self._is_new and any(count * number > has.get(kind, 0.0) for kind, number in asked.items())
        if is_too_small or not group.wait(timeout):
            Room(group).give_back()
            waited = "" if is_too_small else f", of which not enough came free within {timeout:g} seconds"
            raise ConfigError(
                f"{count} times {_describe(asked)} are asked for, but the cluster has {_describe(has)}{waited}; ask "
                "for less, or add nodes"
            )
        return Room(group)

    def place(
        self,
        make: Callable[[Node, bool], Any],
        *,
        name: str,
        cpus: float,
        gpus: int = 0,
        may_restart: bool = False,
        room: tuple[Room, int] | None = None,
    ) -> Placed:
        """Place an object on a node with room for it, and return at once.

        Args:
            make: makes it there; it is told the node, and whether that is the one where `place` was called.
            name: what errors call it.
            cpus: that it reserves.
            gpus: that it reserves; it sees no others.
            may_restart: whether it is made again, on any node with room, each time its process is gone.
            room: reserved room, and which part of it; None = where there is most.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as InRoom

        where = InRoom(room[0].group, placement_group_bundle_index=room[1]) if room else "SPREAD"
        host = (
            self._ray.remote(_Host)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_restarts=-1 if may_restart else 0,
                max_concurrency=THREADS,
                scheduling_strategy=where,
            )
            .remote(make, self.node.id)
        )
        return Placed(self._ray, host, name)


@dataclass(frozen=True)
class Room:
    """Reserved room on nodes."""

    group: Any
    """Ray's own name for it."""

    def give_back(self) -> None:
        """Let others have it; what was placed there ends."""
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self.group)


def _describe(numbers: Mapping[str, float]) -> str:
    """CPUs and GPUs in words.

    >>> _describe({"CPU": 2.0})
    '2 CPUs and 0 GPUs'
    """
    return " and ".join(f"{numbers.get(kind, 0.0):g} {kind}s" for kind in ("CPU", "GPU"))


class Placed:
    """An object on a node, as seen from here."""

    def __init__(self, ray: ModuleType, host: Any, name: str) -> None:
        self._ray, self._host, self.name = ray, host, name

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method of it; what it raises is raised here. LostError in time, or where the process is gone."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._host.ask.remote(method, arguments), timeout=timeout)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.GetTimeoutError:
            raise LostError(f"{self.name} has not answered, or found no place, within {timeout:g} seconds") from None
        except errors.RayError as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise LostError(f"the process of {self.name} is gone ({reason})") from None

    def end(self) -> None:
        """End it at once, for good."""
        self._ray.kill(self._host)


class _Host:
    """The process on a node in which an object lives."""

    def __init__(self, make: Callable[[Node, bool], Any], home: str) -> None:
        node = _find_node(_import_ray())
        self._content = make(node, node.id == home)

    def ask(self, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method of the object."""
        return getattr(self._content, method)(*arguments)


def _import_ray(variables: Mapping[str, str] = {}) -> ModuleType:
    """Ray, which reads variables when it is imported; one sentence where it is not installed."""
    for name, value in {**EVERYWHERE, **variables}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ConfigError("launching on Ray needs Ray; install it with pip install 'groupwise[ray]'") from None
    module: ModuleType = ray
    return module


def _check_is_there(address: str) -> None:
    """Refuse an address at which nobody listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("an address is a host and a port")
    with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS):
        pass


def _find_node(ray: ModuleType) -> Node:
    return Node(id=ray.get_runtime_context().get_node_id(), address=ray.util.get_node_ip_address())


# What the launcher tells a run's processes about the cluster, by a variable: the run file names none.

VARIABLE = "GROUPWISE_RAY"
"""The cluster's address, and the CPUs that each server reserves there: `10.0.0.1:6379 1`."""


@dataclass(frozen=True)
class LaunchedOn:
    """The cluster that a run was launched on."""

    address: str
    """Where its head is."""
    cpus: float
    """CPUs that each server of the run reserves."""

    def as_variables(self) -> dict[str, str]:
        """What a process of the run finds in its environment.

        >>> LaunchedOn("10.0.0.1:6379", 0.5).as_variables()
        {'GROUPWISE_RAY': '10.0.0.1:6379 0.5'}
        """
        return {VARIABLE: f"{self.address} {self.cpus:g}"}


def read_launched_on() -> LaunchedOn | None:
    """The cluster that this process was launched on; None where it was not."""
    content = os.environ.get(VARIABLE, "")
    if not content:
        return None
    try:
        address, cpus = content.split()
        return LaunchedOn(address, float(cpus))
    except ValueError:
        raise ConfigError(
            f"the variable {VARIABLE} is {content!r}, which is no address with a number of CPUs; unset it, and let "
            "`groupwise launch` set it"
        ) from None
