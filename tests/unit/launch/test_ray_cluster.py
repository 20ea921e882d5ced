"""Joining a Ray cluster where there is none; with Ray itself it is tested in tests/scale."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from groupwise.core.errors import ConfigError
from groupwise.launch.guarded_process import find_free_port
from groupwise.launch.ray_cluster import RayCluster


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A Ray that does nothing."""
    monkeypatch.setitem(sys.modules, "ray", module := ModuleType("ray"))
    return module


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
    with pytest.raises(ConfigError, match=r"could not be joined \(an address is a host and a port\)"):
        RayCluster(address)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs Ray; install it with pip install 'groupwise\[ray\]'"):
        RayCluster()
