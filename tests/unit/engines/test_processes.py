"""Servers as child processes: healthy before they are used, started again, and gone whenever we are."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupwise.engines import http_client
from groupwise.engines import server_processes as processes
from groupwise.engines.http_client import ServerClient
from groupwise.engines.server_processes import ServerCommand, ServerProcess, start_servers, stop_servers
from groupwise.system.errors import ConfigError, EngineFault

SCRIPT = Path(__file__).parent / "health_server.py"
PATIENCE = 60.0


def make_maker(how: str = "") -> Callable[[int], ServerCommand]:
    return lambda port: ([sys.executable, str(SCRIPT), str(port), how], {})


@contextmanager
def start_server(tmp_path: Path, how: str = "", **settings: int) -> Iterator[ServerProcess]:
    process = ServerProcess(make_maker(how), name="the server", log=tmp_path / "logs" / "server.log", **settings)
    try:
        yield process
    finally:
        process.stop()


def is_healthy(process: ServerProcess) -> bool:
    ServerClient(process.url).get("/health", what="be healthy", timeout=5)
    return True


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for has, too."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def read_child(log: Path) -> int:
    """The process that a server started, as its log says."""
    numbers: list[int] = []

    def has_come() -> bool:
        numbers[:] = [int(number) for number in re.findall(r"child (\d+)\n", log.read_text()) if log.exists()]
        return bool(numbers)

    wait_until(has_come, "the server did not start a process of its own")
    return numbers[-1]


def test_servers_are_healthy_when_they_are_handed_out_and_gone_when_they_are_stopped(tmp_path: Path) -> None:
    servers = start_servers(make_maker(), replicas=2, folder=tmp_path, start_timeout=PATIENCE)
    assert all(is_healthy(server) for server in servers)
    assert len({server.url for server in servers}) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server_0.log", "server_1.log"]
    pids = [server.pid for server in servers]
    stop_servers(servers)
    stop_servers(servers)  # a second time is none too many
    assert all(map(is_gone, pids))
    assert not any(server.is_running() for server in servers)


def test_a_server_takes_its_own_processes_along(tmp_path: Path) -> None:
    with start_server(tmp_path, "child") as process:
        process.wait_until_healthy(timeout=PATIENCE)
        child = read_child(process.log)
        assert not is_gone(child)
    wait_until(lambda: is_gone(child), "what the server started outlived it")


def test_a_server_that_was_killed_is_started_again_where_it_was(tmp_path: Path) -> None:
    with start_server(tmp_path) as process:
        process.wait_until_healthy(timeout=PATIENCE)
        url, pid = process.url, process.pid
        process.start_again()
        assert process.pid == pid  # it runs
        os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: not process.is_running(), "it did not die")
        process.start_again()
        process.wait_until_healthy(timeout=PATIENCE)
        assert (process.url, is_healthy(process)) == (url, True)
    process.start_again()  # it was stopped for good
    assert not process.is_running()


def test_the_last_words_of_a_server_that_ends_early_are_in_the_error(tmp_path: Path) -> None:
    with start_server(tmp_path, "fails") as process, pytest.raises(EngineFault) as caught:
        process.wait_until_healthy(timeout=PATIENCE)
    head, _, log = str(caught.value).rpartition("; its log is ")
    assert head == (
        "the server ended before it was healthy, with status 1: out of memory (RuntimeError: CUDA out of "
        "memory: tried to allocate 2 GiB)"
    )
    assert Path(log).read_text(encoding="utf-8") == process.log.read_text(encoding="utf-8")


def test_one_server_that_fails_takes_the_others_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[ServerProcess] = []
    start = ServerProcess._start
    monkeypatch.setattr(ServerProcess, "_start", lambda self: (began.append(self), start(self))[1])

    def make_command(port: int) -> ServerCommand:
        return make_maker("fails" if len(began) == 2 else "")(port)

    with pytest.raises(EngineFault, match="server 1 ended before it was healthy, with status 1"):
        start_servers(make_command, replicas=2, folder=tmp_path, start_timeout=PATIENCE)
    assert len(began) == 2
    assert not any(process.is_running() for process in began)


def test_a_server_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    with start_server(tmp_path, "sleeps") as process, pytest.raises(EngineFault) as caught:
        process.wait_until_healthy(timeout=0.3)
    assert str(caught.value).startswith(
        "the server was not healthy within 0.3 seconds (its log is empty); raise start_timeout, or check "
    )


def test_a_port_that_is_taken_is_refused_and_any_other_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(ConfigError) as caught, start_server(tmp_path, port=port):
            pass
        assert str(caught.value) == (
            f"port {port} of 127.0.0.1 cannot be taken (Address already in use); give another one, or stop "
            "the process that uses it"
        )
        # Free when it was looked at, taken when the server comes to it.
        monkeypatch.setattr(processes, "_wait_for_port", lambda host, port, seconds: None)
        monkeypatch.setattr(http_client, "HEALTH_SECONDS", 0.3)
        free, ports = processes.find_free_port, [port]
        monkeypatch.setattr(processes, "find_free_port", lambda: ports.pop() if ports else free())
        with start_server(tmp_path) as process:
            process.wait_until_healthy(timeout=PATIENCE)
            assert process.url != f"http://127.0.0.1:{port}"


def test_a_port_that_is_taken_as_soon_as_it_was_found_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        free, ports = processes.find_free_port, [taken, taken]
        monkeypatch.setattr(processes, "find_free_port", lambda: ports.pop() if ports else free())
        with start_server(tmp_path) as process:
            process.wait_until_healthy(timeout=PATIENCE)
            assert process.port != taken
        ports += [taken] * processes.MAX_PORTS
        with pytest.raises(ConfigError, match=f"^port {taken} of 127.0.0.1 cannot be taken"), start_server(tmp_path):
            pass


def test_a_server_that_was_stopped_is_not_moved_to_another_port(tmp_path: Path) -> None:
    ports: list[int] = []

    def make_command(port: int) -> ServerCommand:
        ports.append(port)
        return [sys.executable, "-c", "import sys; sys.exit('address already in use')"], {}

    process = ServerProcess(make_command, name="the server", log=tmp_path / "server.log")
    process._group.wait(PATIENCE)
    process.stop()
    with pytest.raises(EngineFault, match=r"^the server ended before it was healthy, with status 1: its port is taken"):
        process.wait_until_healthy(timeout=PATIENCE)
    assert len(ports) == 1


def test_a_command_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    process = ServerProcess(lambda port: (["/no/such/python"], {}), name="the server", log=tmp_path / "server.log")
    with pytest.raises(EngineFault, match=r"ended before it was healthy, with status 1 .*No such file or directory"):
        process.wait_until_healthy(timeout=PATIENCE)
    process.stop()


def test_a_server_goes_with_whoever_started_it_also_where_that_one_kills_its_children_first(tmp_path: Path) -> None:
    """As processes of Ray do."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(SCRIPT), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    assert parent.stdout is not None
    with parent:
        guardian = int(parent.stdout.readline())
        child = read_child(tmp_path / "server_0.log")
        parent.send_signal(signal.SIGSTOP)  # it starts nothing again meanwhile
        os.kill(guardian, signal.SIGKILL)
        parent.kill()
    wait_until(lambda: is_gone(child), "the server outlived the process that started it")


PARENT = """
import sys, time
from pathlib import Path
from groupwise.engines.server_processes import start_servers
script, folder = sys.argv[1:]
servers = start_servers(
    lambda port: ([sys.executable, script, str(port), "child"], {}), replicas=1, folder=Path(folder), start_timeout=60
)
print(servers[0].pid, flush=True)
time.sleep(600 if sys.stdin.readline() == "stay\\n" else 0)
"""


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_servers_end_with_whoever_started_them(tmp_path: Path, end: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(SCRIPT), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent:
        guardian = int(parent.stdout.readline())
        child = read_child(tmp_path / "server_0.log")
        assert not is_gone(guardian)
        if end == "killed":
            parent.stdin.write("stay\n")
            parent.stdin.flush()  # closing it would write to nobody
            parent.kill()
        else:
            parent.stdin.close()
    wait_until(lambda: is_gone(guardian) and is_gone(child), "the server outlived the process that started it")
