"""Ray places objects on nodes and restarts them if their process dies; it stores nothing of a run.

This is the only file that imports Ray. A placed object is a plain object of ours. It is made on its node, and made
again with the same arguments if its process or node is lost.
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
"""An address that means: start a cluster on this machine, which ends with this process."""
HOME = "127.0.0.1"
EVERYWHERE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_COLOR_PREFIX": "0"}
"""Variables against Ray's usage statistics and coloured output."""
WHERE_IT_STARTS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""With this variable, also on Linux, a cluster of one machine listens only on 127.0.0.1."""
CONNECT_SECONDS = 10.0
THREADS = 4
"""Calls that a placed object answers in parallel: one of them may wait for minutes."""


class LostError(GroupwiseError):
    """A placed object does not answer: its process has ended, or no node has room for it yet."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    address: str
    """Its address for other machines."""


class RayCluster:
    """A cluster that this process has joined or started."""

    def __init__(self, address: str = LOCAL) -> None:
        """Join the cluster with its head at an address such as `10.0.0.1:6379`; `local` = start one here."""
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
        address: str = self._ray.get_runtime_context().gcs_address
        return address

    def close(self) -> None:
        """Leave the cluster; objects placed from here end, and so does a cluster that was started here."""
        self._ray.shutdown()

    def reserve(self, count: int, *, cpus: float, gpus: int, timeout: float) -> Room:
        """Reserve room for several objects, all or none, on as few nodes as possible.

        ConfigError if there is not enough room within `timeout` seconds.
        """
        from ray.util.placement_group import placement_group

        has, asked = self._ray.cluster_resources(), {"CPU": cpus, "GPU": float(gpus)}
        bundle = {kind: number for kind, number in asked.items() if number}
        group = placement_group([bundle] * count, strategy="PACK")
        # A cluster that was not started here may get more nodes during the wait.
        is_too_small = self._is_new and any(count * number > has.get(kind, 0.0) for kind, number in asked.items())
        if is_too_small or not group.wait(timeout):
            Room(group).give_back()
            waited = "" if is_too_small else f", and not enough were free within {timeout:g} seconds"
            raise ConfigError(
                f"{count} times {_describe(asked)} are requested, but the cluster has {_describe(has)}{waited}; "
                "request less, or add nodes"
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

        `make` is called there with the node, and whether it is that of the caller. The object reserves `cpus` and
        `gpus`, and sees no other GPUs. With `may_restart`, it is made again, on any node with room, if its process
        ends. `room` is reserved room and the part of it; None = on the node with most room.
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

    def give_back(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self.group)


def _describe(numbers: Mapping[str, float]) -> str:
    """CPUs and GPUs as text.

    >>> _describe({"CPU": 2.0})
    '2 CPUs and 0 GPUs'
    """
    return " and ".join(f"{numbers.get(kind, 0.0):g} {kind}s" for kind in ("CPU", "GPU"))


class Placed:
    """An object on a node, as seen from here."""

    def __init__(self, ray: ModuleType, host: Any, name: str) -> None:
        self._ray, self._host, self.name = ray, host, name

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        """Call a method of it; its errors are raised here. LostError if there is no answer in time or no process."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._host.ask.remote(method, arguments), timeout=timeout)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.GetTimeoutError:
            raise LostError(
                f"{self.name} did not answer, or had no room on a node, within {timeout:g} seconds"
            ) from None
        except errors.RayError as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise LostError(f"the process of {self.name} has ended ({reason})") from None

    def end(self) -> None:
        """End it at once, permanently."""
        self._ray.kill(self._host)


class _Host:
    """The process of an object on its node."""

    def __init__(self, make: Callable[[Node, bool], Any], home: str) -> None:
        node = _find_node(_import_ray())
        self._content = make(node, node.id == home)

    def ask(self, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(self._content, method)(*arguments)


def _import_ray(variables: Mapping[str, str] = {}) -> ModuleType:
    """Import Ray, which reads variables at import; ConfigError if it is not installed."""
    for name, value in {**EVERYWHERE, **variables}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ConfigError("launching on Ray needs Ray; install it with pip install 'groupwise[ray]'") from None
    module: ModuleType = ray
    return module


def _check_is_there(address: str) -> None:
    """Raise an error if no process listens at an address: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("expected host:port")
    with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS):
        pass


def _find_node(ray: ModuleType) -> Node:
    return Node(id=ray.get_runtime_context().get_node_id(), address=ray.util.get_node_ip_address())


# The launcher passes the cluster to a run's processes in an environment variable; it is not in the run file.

VARIABLE = "GROUPWISE_RAY"
"""The cluster's address and the CPUs per server: `10.0.0.1:6379 1`."""


@dataclass(frozen=True)
class LaunchedOn:
    """The cluster that a run was launched on."""

    address: str
    cpus: float
    """CPUs that each server of the run reserves."""

    def as_variables(self) -> dict[str, str]:
        """The environment variable of the run's processes.

        >>> LaunchedOn("10.0.0.1:6379", 0.5).as_variables()
        {'GROUPWISE_RAY': '10.0.0.1:6379 0.5'}
        """
        return {VARIABLE: f"{self.address} {self.cpus:g}"}


def read_launched_on() -> LaunchedOn | None:
    """The cluster that this process was launched on; None if there is none."""
    content = os.environ.get(VARIABLE, "")
    if not content:
        return None
    try:
        address, cpus = content.split()
        return LaunchedOn(address, float(cpus))
    except ValueError:
        raise ConfigError(
            f"the variable {VARIABLE} is {content!r}, but must have an address and a number of CPUs; unset it and use "
            "`groupwise launch`"
        ) from None
