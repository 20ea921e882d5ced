"""A server in OpenAI's manner that says what a test tells it, on a free port of this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Say = Callable[[dict[str, Any]], str | int | bytes]
"""What is said to a request: a text is the model's, a number is a status, bytes are the whole answer."""


def say_digest(request: dict[str, Any]) -> str:
    """A score that follows from the request, seed and all."""
    return f"Well. score: {hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[0] % 11}"


class FakeEndpoint:
    """Counts and keeps what it was asked."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.models_status = 200
        self.max_under_way = 0
        self._under_way, self._lock = 0, threading.Lock()
        handler = type("BoundHandler", (_Handler,), {"owner": self})
        self._server = _PatientServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: dict[str, Any], headers: dict[str, str]) -> str | int | bytes:
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            self._under_way += 1
            self.max_under_way = max(self.max_under_way, self._under_way)
        try:
            return self.say(request)
        finally:
            with self._lock:
                self._under_way -= 1

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _PatientServer(ThreadingHTTPServer):
    request_queue_size = 256  # many connect at once


class _Handler(BaseHTTPRequestHandler):
    owner: FakeEndpoint
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(self.owner.models_status, b'{"data": []}')

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if len(content) < int(self.headers["Content-Length"]):
            return  # whoever asked was killed meanwhile
        request = json.loads(content)
        assert self.path == "/v1/chat/completions"
        said = self.owner.answer(request, dict(self.headers.items()))
        if isinstance(said, int):
            self._send(said, json.dumps({"error": {"message": f"status {said}"}}).encode())
        elif isinstance(said, bytes):
            self._send(200, said)
        else:
            self._send(200, json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(OSError):  # whoever asked has gone
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve(say: Say = say_digest) -> Iterator[FakeEndpoint]:
    """A server as long as the context lasts."""
    endpoint = FakeEndpoint(say)
    try:
        yield endpoint
    finally:
        endpoint.stop()
