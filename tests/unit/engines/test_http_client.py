"""Calls to a server: each ends in time, in JSON or in one sentence."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from groupwise.engines.http_client import RequestRefusedFault, ServerClient, ServerFault
from groupwise.system.errors import ConfigError
from tests.unit.engines.conftest import StartServer
from tests.unit.engines.scripted_server import Trouble, break_off, hang, say

PATH = "/pause"


def call(client: ServerClient, *, timeout: float = 10.0, **more: Any) -> Any:
    return client.post(PATH, {}, what="pause", timeout=timeout, **more)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8101",
        "ftp://host/",
        "http://",
        "http://host:port/",
        "http://host/?a=b",
        "//host",
        "http://[",
        "http://me:secret@host/",
    ],
)
def test_what_is_no_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not the URL of a server; expected, for example, 'http://127\.0\.0\.1:8101'$"
    ):
        ServerClient(url)


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerFault) as caught:
            call(ServerClient(url))
    assert str(caught.value) == (
        f"the server {url} cannot be reached to pause (Connection refused); start it, or correct its URL"
    )


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (say(b"<html>no</html>"), "the answer is not JSON: <html>no</html>"),
        (say(b'{"a": NaN}'), 'the answer is not JSON: {"a": NaN}'),
        (say(b"[" * 100_000), "the answer is not JSON: "),
        (say({"detail": "Not Found"}, 404), 'status 404: {"detail": "Not Found"}'),
        (say({"error": {"message": "no \nway", "code": 500}}, 500), "status 500: no )"),
        (say({"error": {"message": "m" * 999}}, 500), f"status 500: {'m' * 299}…)"),
        (say(b"", 500), "status 500: nothing"),
        (say(b"\x1b[2J\xff", 503), "status 503: \\x1b[2J\ufffd"),
        (break_off, "the answer ended 10 bytes too early"),
        (say(b" " * (2**20 + 1)), "the answer has more than 1048576 bytes"),
    ],
)
def test_what_is_no_answer_is_a_fault_that_quotes_it(start_server: StartServer, trouble: Trouble, reason: str) -> None:
    server = start_server()
    server.trouble(PATH, trouble)
    with pytest.raises(ServerFault) as caught:
        call(ServerClient(server.url))
    assert str(caught.value).startswith(f"the server {server.url} did not pause ({reason}")
    assert str(caught.value).endswith(("); check its log", "); is it a server of another kind or version?"))
    assert len(str(caught.value)) < 500


def test_a_request_that_is_wrong_is_told_from_a_server_that_is(start_server: StartServer) -> None:
    server = start_server()
    server.trouble(PATH, say({"error": "too long"}, 400))
    with pytest.raises(RequestRefusedFault, match=r"refused to pause \(status 400: .*too long"):
        call(ServerClient(server.url))


def test_a_server_that_does_not_answer_is_left_in_time(start_server: StartServer) -> None:
    server = start_server()
    server.trouble(PATH, hang)
    with pytest.raises(ServerFault, match=r"did not pause within 0\.2 s; check its log, or allow more time$"):
        call(ServerClient(server.url), timeout=0.2)


def test_an_answer_that_drips_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not end.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(ServerFault, match=r"did not pause within 0\.3 s"):
            call(ServerClient(f"http://127.0.0.1:{listener.getsockname()[1]}"), timeout=0.3)
        end.set()
        thread.join(10)


def test_a_connection_is_kept_and_used_again(start_server: StartServer) -> None:
    server = start_server()
    client = ServerClient(server.url)
    ports = set()
    server.trouble(PATH, *[lambda _, handler, answer: (ports.add(handler.client_address[1]), answer)[1]] * 3)
    for _ in range(3):
        assert call(client) == {"message": "done"}
    assert len(ports) == 1


def test_a_kept_connection_that_was_closed_is_opened_anew_without_a_word(start_server: StartServer) -> None:
    server = start_server()
    client = ServerClient(server.url)
    call(client)
    server.kill()
    server.start()
    assert call(client) == {"message": "done"}


def test_a_call_that_changes_something_is_made_once(start_server: StartServer) -> None:
    server = start_server()
    client = ServerClient(server.url)
    call(client)
    server.trouble(PATH, lambda *_: None)  # the connection ends without an answer
    with pytest.raises(ServerFault, match="did not pause"):
        call(client, is_fresh=True)
    assert server.calls[PATH] == 2


def test_whoever_waits_is_let_go_by_abort_and_does_not_ask_again(start_server: StartServer) -> None:
    server = start_server()
    client = ServerClient(server.url)
    call(client)  # a connection is kept
    server.trouble(PATH, hang)
    faults: list[BaseException] = []

    def wait() -> None:
        try:
            call(client, timeout=30.0)
        except ServerFault as fault:
            faults.append(fault)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    server.wait_for_calls(PATH, 2)
    client.abort()
    thread.join(10)
    assert len(faults) == 1
    assert server.calls[PATH] == 2
    server.released.set()
    assert call(client) == {"message": "done"}  # later calls connect anew
