"""Joining a Ray cluster where there is none; with Ray itself it is tested in tests/scale."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from groupwise.engines import ray_cluster
from groupwise.engines.ray_cluster import RayCluster
from groupwise.system.errors import ConfigError
from groupwise.system.processes import find_free_port


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A Ray that does nothing."""
    monkeypatch.setitem(sys.modules, "ray", module := ModuleType("ray"))
    return module


class Asked:
    """A reservation that finds no room; it keeps how long it was waited for."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait(self, timeout: float) -> bool:
        self.waited.append(timeout)
        return False


@pytest.fixture
def asked(ray: Any, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What is asked of a cluster with one CPU."""
    asked, groups = Asked(), ModuleType("ray.util.placement_group")
    vars(groups).update(placement_group=lambda *words, **settings: asked, remove_placement_group=lambda group: None)
    context = SimpleNamespace(get_node_id=lambda: "a")
    ray.init, ray.get_runtime_context = lambda **settings: None, lambda: context
    ray.util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1")
    ray.cluster_resources = lambda: {"CPU": 1.0}
    monkeypatch.setitem(sys.modules, "ray.util", ModuleType("ray.util"))
    monkeypatch.setitem(sys.modules, "ray.util.placement_group", groups)
    monkeypatch.setattr(ray_cluster, "_check_is_there", lambda address: None)
    return asked


def test_a_cluster_that_was_joined_may_get_its_nodes_back_while_it_is_waited_for(asked: Asked) -> None:
    with pytest.raises(ConfigError) as caught:
        RayCluster("10.0.0.1:6379").reserve(2, cpus=1.0, gpus=0, timeout=7.0)
    assert asked.waited == [7.0]
    assert str(caught.value) == (
        "2 times 1 CPUs and 0 GPUs are requested, but the cluster has 1 CPUs and 0 GPUs, and not enough were free "
        "within 7 seconds; request less, or add nodes"
    )


def test_what_a_cluster_of_this_machine_alone_lacks_is_refused_at_once(asked: Asked) -> None:
    with pytest.raises(ConfigError, match="but the cluster has 1 CPUs and 0 GPUs; request less"):
        RayCluster().reserve(2, cpus=1.0, gpus=0, timeout=7.0)
    assert asked.waited == []


def test_a_cluster_that_is_not_there_is_refused_at_once(ray: ModuleType) -> None:
    address = f"127.0.0.1:{find_free_port()}"
    with pytest.raises(ConfigError) as caught:
        RayCluster(address)
    assert str(caught.value) == (
        f"the Ray cluster {address!r} could not be joined (Connection refused); start one with `ray start --head`, and "
        "give the address that it prints"
    )


@pytest.mark.parametrize("address", ["node1", "ray://node1:port", ":6379"])
def test_what_is_no_address_is_refused(ray: ModuleType, address: str) -> None:
    with pytest.raises(ConfigError, match=r"could not be joined \(expected host:port\)"):
        RayCluster(address)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs Ray; install it with pip install 'groupwise\[ray\]'"):
        RayCluster()
