"""Servers on the nodes of a cluster: what lives on a node, and what the run knows of it; nodes are played here."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines import server_launch
from groupwise.engines.http_client import ServerClient
from groupwise.engines.model_source import ModelSource
from groupwise.engines.ray_cluster import LaunchedOn, LostError, Node
from groupwise.engines.server_launch import HostedServer, PlacedServer, start_placed_servers
from groupwise.engines.server_processes import MakeCommand, ServerCommand, ServerProcess
from groupwise.system.errors import EngineFault

SCRIPT = Path(__file__).parent / "health_server.py"
PATIENCE = 60.0


def make_maker(how: str = "") -> MakeCommand:
    # What the node appends, the address to listen at, is none of this server's business.
    program = f"import sys; del sys.argv[-2:]; exec(open({str(SCRIPT)!r}).read())"

    def make_command(port: int) -> ServerCommand:
        return [sys.executable, "-c", program, str(port), *filter(None, [how])], {}

    return make_command


class PlayedNode:
    """A node with one server, whose process is this one; where the server leaves, it is made anew as Ray would."""

    def __init__(self, make: Callable[[Node, bool], HostedServer]) -> None:
        self.num_made, self._make = 0, make
        self.is_lost, self.is_ended = False, False
        self.server = self._make_server()

    def _make_server(self) -> HostedServer:
        self.num_made += 1
        server = self._make(Node("here", "127.0.0.1"), True)
        server._leave = self._remake
        return server

    def _remake(self, status: int) -> None:
        if not self.is_ended:
            self.server = self._make_server()
        if self.is_ended:  # meanwhile
            self.server.stop()

    def ask(self, method: str, *arguments: Any, timeout: float) -> Any:
        if self.is_lost:
            raise LostError("server 0 did not answer, or had no room on a node, within 1 seconds")
        return getattr(self.server, method)(*arguments)

    def end(self) -> None:
        self.is_ended = True


class PlayedCluster:
    """A cluster of such nodes, which keeps what it was asked for."""

    nodes: list[PlayedNode]
    asked: list[dict[str, Any]]
    is_full = False

    def __init__(self, address: str) -> None:
        self.address = address

    def place(self, make: Callable[[Node, bool], HostedServer], **asked: Any) -> PlayedNode:
        self.nodes.append(PlayedNode(make))
        self.nodes[-1].is_lost = self.is_full
        self.asked.append(asked)
        return self.nodes[-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PlayedCluster]]:
    monkeypatch.setattr(PlayedCluster, "nodes", [], raising=False)
    monkeypatch.setattr(PlayedCluster, "asked", [], raising=False)
    monkeypatch.setattr(server_launch, "RayCluster", PlayedCluster)
    monkeypatch.setattr(server_launch, "HEAR_SECONDS", 0.1)
    yield PlayedCluster
    for node in PlayedCluster.nodes:
        node.end()
        node.server.stop()


def start(tmp_path: Path, how: str = "", **settings: Any) -> list[Any]:
    defaults: dict[str, Any] = {"replicas": 2, "folder": tmp_path, "start_timeout": PATIENCE}
    return start_placed_servers(make_maker(how), cluster=LaunchedOn("10.0.0.1:6379", 0.5), **{**defaults, **settings})


def is_healthy(url: str) -> bool:
    try:
        with ServerClient(url) as client:
            client.check_health()
    except EngineFault:
        return False
    return True


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_servers_are_healthy_when_they_are_handed_out_and_gone_when_they_are_stopped(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    servers = start(tmp_path, gpus=("0,1", "2"))
    urls = [server.url for server in servers]
    assert all(map(is_healthy, urls))
    assert [(asked["cpus"], asked["gpus"], asked["may_restart"]) for asked in cluster.asked] == [
        (0.5, 2, True),
        (0.5, 1, True),
    ]
    assert all(server.is_running() for server in servers)
    for server in servers:
        server.stop()
        server.stop()  # a second time is none too many
    assert not any(map(is_healthy, urls))
    assert [node.num_made for node in cluster.nodes] == [1, 1]  # what was stopped is not made anew


def test_a_server_that_was_killed_is_made_anew_elsewhere_and_the_run_is_told_where(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    [server] = start(tmp_path, replicas=1)
    [node], old = cluster.nodes, server.url
    process = node.server._process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    wait_until(lambda: node.num_made == 2, "the node did not notice that its server was killed")
    server.start_again()
    wait_until(lambda: is_healthy(server.url), "no server was healthy again")
    assert server.url != old


def test_a_server_is_known_by_its_last_address_while_its_node_does_not_answer(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    [server] = start(tmp_path, replicas=1)
    url = server.url
    cluster.nodes[0].is_lost = True
    assert (server.url, server.is_running()) == (url, False)


def test_the_last_words_of_a_server_that_ends_early_come_back_and_none_is_left(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    with pytest.raises(EngineFault, match=r"^server 0 ended before it was healthy, with status 1: out of memory"):
        start(tmp_path, "fails")
    assert all(node.is_ended for node in cluster.nodes)


def test_a_server_that_fails_again_is_made_anew_until_it_is_stopped(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    node = PlayedNode(
        lambda node, is_home: HostedServer(
            make_maker("fails"), name="server 0", log=tmp_path / "log", host="127.0.0.1", start_timeout=PATIENCE
        )
    )
    cluster.nodes.append(node)
    wait_until(lambda: node.num_made >= 3, "it was not tried again")


def test_whatever_keeps_a_server_from_starting_is_told_to_who_waits_and_it_is_made_anew(
    tmp_path: Path, cluster: type[PlayedCluster]
) -> None:
    def fail(port: int) -> ServerCommand:
        raise OSError("no space left")

    left = threading.Event()
    server = HostedServer(
        fail,
        name="server 0",
        log=tmp_path / "log",
        host="127.0.0.1",
        start_timeout=PATIENCE,
        leave=lambda status: left.set(),
    )
    assert server._url.exception(PATIENCE), "who waits for it would wait for ever"
    with pytest.raises(EngineFault, match=r"^OSError: no space left$"):
        server.wait()
    assert left.wait(PATIENCE)


def test_servers_that_find_no_place_are_one_sentence(
    tmp_path: Path, cluster: type[PlayedCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "is_full", True)
    with pytest.raises(EngineFault) as caught:
        start(tmp_path, start_timeout=0.1)
    assert str(caught.value) == (
        "server 0 did not answer, or had no room on a node, within 1 seconds; each server reserves 0.5 CPUs and its "
        "GPUs on a node: add nodes, or ask for fewer servers (engine.replicas)"
    )


def test_a_server_listens_for_other_machines_only_where_the_run_is_on_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[str] = []
    monkeypatch.setattr(server_launch, "HostedServer", lambda make_command, **settings: hosts.append(settings["host"]))
    monkeypatch.chdir(tmp_path)
    for is_home in (True, False):
        server_launch._host_server(
            make_maker(), Node("b", "10.0.0.2"), is_home, name="", log=tmp_path, here=tmp_path, start_timeout=1.0
        )
    assert hosts == ["127.0.0.1", "10.0.0.2"]
    arguments, _ = server_launch._listen_at(lambda port: (["serve", "--host", "127.0.0.1"], {}), "10.0.0.2", 8101)
    assert arguments[-2:] == ["--host", "10.0.0.2"]


def test_no_thread_stays_behind_a_server_that_was_stopped(tmp_path: Path, cluster: type[PlayedCluster]) -> None:
    before = set(threading.enumerate())
    [server] = start(tmp_path, replicas=1)
    assert isinstance(server, PlacedServer)
    assert "watch server 0" in find_new_threads(before)
    server.stop()
    wait_until(lambda: "watch server 0" not in find_new_threads(before), "it is watched")


def find_new_threads(before: set[threading.Thread]) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread not in before]


def test_a_server_that_is_stopped_while_it_is_started_ends_too(tmp_path: Path) -> None:
    may_start = threading.Event()

    def make_late(port: int) -> ServerCommand:
        assert may_start.wait(PATIENCE)
        return make_maker()(port)

    before = set(threading.enumerate())
    server = HostedServer(make_late, name="late", log=tmp_path / "log", host="127.0.0.1", start_timeout=PATIENCE)
    server.stop()
    may_start.set()
    wait_until(lambda: "watch late" not in find_new_threads(before), "it is watched")
    assert server._process is not None
    assert not server._process.is_running()
    with pytest.raises(EngineFault, match=r"^the server was stopped before it was healthy$"):
        server.wait()


def test_a_run_starts_its_servers_on_the_cluster_that_it_was_launched_on_and_else_here(
    tmp_path: Path, cluster: type[PlayedCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")

    source = ModelSource(model=None, tokenizer=None, path=None, folder=tmp_path)
    settings: dict[str, Any] = {"replicas": 1, "start_timeout": PATIENCE, "gpus": ()}
    monkeypatch.setenv("GROUPWISE_RAY", "10.0.0.1:6379 2")
    [placed] = server_launch._start(source, make_maker(), folder=tmp_path, **settings)
    assert isinstance(placed, PlacedServer)
    assert [asked["cpus"] for asked in cluster.asked] == [2.0]
    placed.stop()
    monkeypatch.delenv("GROUPWISE_RAY")
    [own] = server_launch._start(
        source, lambda port: ([sys.executable, str(SCRIPT), str(port)], {}), folder=tmp_path, **settings
    )
    assert isinstance(own, ServerProcess)
    own.stop()
    assert len(cluster.asked) == 1
