"""HTTP to one server: each call has a name, a time-out for the whole call, and a size limit for the answer.

Answers are untrusted data: they are read up to the limit, and then validated.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from groupwise.engines.messages import describe_problem
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.text import quote_line

CONNECT_SECONDS = 10.0
MAX_ANSWER_BYTES = 2**20
"""Size limit of an answer, unless the question decides it."""
HEALTH_SECONDS = 10.0
CHUNK_BYTES = 2**16
REFUSALS = frozenset({400, 413, 422})
"""HTTP statuses that mean: the request is invalid."""

Read = Callable[[bytes], Any]
"""Parses an answer; raises a ValueError if it is invalid."""


class ServerFault(EngineFault):
    """A server died, hung, failed, or gave an invalid answer; another server may answer the same question."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of its answer, if there was one."""


class RequestRefusedFault(EngineFault):
    """A server says that the request is invalid; other servers would say the same."""


def open_clients(urls: Sequence[str], *, setting: str = "engine.urls") -> list[ServerClient]:
    """One client per server. Errors, for no server or one named twice, begin with the name of the setting."""
    clients = [ServerClient(url, setting=setting) for url in urls]
    if not clients:
        raise ConfigError(f"{setting}: no server is named; give at least one URL")
    for url, number in Counter(client.url for client in clients).items():
        if number > 1:
            raise ConfigError(f"{setting}: {url!r} occurs {number} times; name each server once")
    return clients


def ask_optional_route(ask: Callable[[], Any]) -> Any:
    """The answer of a route that not every server has; None if the server answers with an error status."""
    try:
        return ask()
    except RequestRefusedFault:
        return None
    except ServerFault as fault:
        if fault.status is None:
            raise
        return None


def read_json(text: bytes) -> Any:
    """Plain JSON; None if the answer is empty."""
    try:
        return json.loads(text, parse_constant=_refuse_constant) if text.strip() else None
    except (ValueError, RecursionError):
        raise ValueError(f"the answer is not JSON: {_quote(text)}") from None


def read_nothing(text: bytes) -> None:
    """Ignore the answer: some vLLM routes answer with a sentence."""


class ServerClient:
    """Calls one server, from any number of threads; connections are reused."""

    def __init__(
        self, url: str, *, setting: str = "engine.urls", headers: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        """Make a client; it connects at its first call.

        Errors about the URL begin with `setting`. `headers` is called before each question, and its result is sent with
        it; no error shows it.
        """
        self.url, self._host, self._port, self._path, self._is_secure = read_url(url, setting)
        self._headers = headers
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        weakref.finalize(self, _close_all, self._idle)

    def check_health(self) -> None:
        self.get("/health", what="say that it is healthy", timeout=HEALTH_SECONDS)

    def get(self, path: str, *, what: str, timeout: float, read: Read = read_json) -> Any:
        return self._call(_Call("GET", path, None, what, timeout, time.monotonic() + timeout, MAX_ANSWER_BYTES, read))

    def post(
        self,
        path: str,
        question: Any,
        *,
        what: str,
        timeout: float,
        max_bytes: int = MAX_ANSWER_BYTES,
        is_fresh: bool = False,
        read: Read = read_json,
    ) -> Any:
        """Send a message, or an object as JSON, and return the parsed answer.

        `what` is the call in words, for errors: "did not <what>". `timeout` is that of the whole answer. With
        `is_fresh`, a new connection is opened: if a reused one turns out to be closed, the call is repeated, and a call
        that changes something must not be.
        """
        body = (question.model_dump_json() if isinstance(question, BaseModel) else json.dumps(question)).encode()
        call = _Call("POST", path, body, what, timeout, time.monotonic() + timeout, max_bytes, read)
        return self._call(call, is_fresh=is_fresh)

    def __enter__(self) -> ServerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Break every connection: calls that wait for an answer fail now. Later calls connect again."""
        with self._lock:
            busy, self._busy = self._busy, set()
            _close_all(self._idle)
        for connection in busy:
            with suppress(OSError, AttributeError):  # after a close alone, the other thread would still wait
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _call(self, call: _Call, *, is_fresh: bool = False) -> Any:
        """Ask once; ask again if a reused connection turns out to be closed."""
        with self._lock:
            connection = self._idle.pop() if self._idle and not is_fresh else None
            self._busy |= {connection} if connection else set()
        if connection is not None:
            with suppress(_StaleConnectionError):
                return self._ask(connection, call, is_kept=True)
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=min(call.timeout, CONNECT_SECONDS))
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            reason = "no connection in time" if isinstance(error, TimeoutError) else _name_reason(error)
            raise ServerFault(
                f"the server {self.url} cannot be reached to {call.what} ({reason}); start it, or correct its URL"
            ) from None
        with self._lock:
            self._busy.add(connection)
        return self._ask(connection, call, is_kept=False)

    def _ask(self, connection: http.client.HTTPConnection, call: _Call, *, is_kept: bool) -> Any:
        """Send a question and read its answer; keep the connection if it can be reused."""
        may_serve_again = False
        try:
            response = self._send(connection, call, is_kept=is_kept)
            text = bytearray()
            while chunk := response.read1(CHUNK_BYTES):
                text += chunk
                if len(text) > call.max_bytes:
                    self._fail(call, f"the answer has more than {call.max_bytes} bytes")
                _limit_wait(connection, call.deadline)
            missing = response.length  # of the announced bytes; None if no length was announced
            response.close()  # else the connection cannot be reused
            if missing:
                self._fail(call, f"the answer ended {missing} bytes too early")
            may_serve_again = not response.will_close
        except TimeoutError:
            raise ServerFault(
                f"the server {self.url} did not {call.what} within {call.timeout:g} s; check its log, or allow more "
                "time"
            ) from None
        except (OSError, http.client.HTTPException, AttributeError) as error:  # the last: `abort` in another thread
            self._fail(call, _name_reason(error))
        finally:
            with self._lock:
                may_serve_again = may_serve_again and connection in self._busy and connection.sock is not None
                self._busy.discard(connection)
                self._idle += [connection] if may_serve_again else []
            if not may_serve_again:
                connection.close()
        return self._read(response.status, bytes(text), call)

    def _send(self, connection: http.client.HTTPConnection, call: _Call, *, is_kept: bool) -> http.client.HTTPResponse:
        try:
            _limit_wait(connection, call.deadline)
            headers = {"Content-Type": "application/json", **(self._headers() if self._headers else {})}
            connection.request(call.method, self._path + call.path, call.body, headers)
            return connection.getresponse()
        except (http.client.BadStatusLine, ConnectionError):
            with self._lock:
                was_broken_off = connection not in self._busy
            if is_kept and not was_broken_off:
                raise _StaleConnectionError from None
            raise

    def _read(self, status: int, text: bytes, call: _Call) -> Any:
        if status in REFUSALS:
            raise RequestRefusedFault(f"the server {self.url} refused to {call.what} (status {status}: {_quote(text)})")
        if status != http.HTTPStatus.OK:
            self._fail(call, f"status {status}: {_quote(text)}", status=status)
        try:
            return call.read(text)
        except ValueError as error:
            reason = describe_problem(error) if isinstance(error, ValidationError) else str(error)
            raise ServerFault(
                f"the server {self.url} did not {call.what} ({reason}); is it a server of another kind or version?"
            ) from None

    def _fail(self, call: _Call, reason: str, *, status: int | None = None) -> NoReturn:
        raise ServerFault(f"the server {self.url} did not {call.what} ({reason}); check its log", status=status)


class _Call(NamedTuple):
    """A question that waits for its answer."""

    method: str
    path: str
    body: bytes | None
    what: str
    timeout: float
    deadline: float
    max_bytes: int
    read: Read


class _StaleConnectionError(Exception):
    """The server had closed a reused connection."""


def read_url(url: str, setting: str) -> tuple[str, str, int | None, str, bool]:
    """A URL without its last slash, its host, port and path, and whether it is secure."""
    try:
        parts = urlsplit(url.strip().rstrip("/"))
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigError(
            f"{setting}: {url!r} is not the URL of a server; expected, for example, 'http://127.0.0.1:8101'"
        )
    return parts.geturl(), host, port, parts.path, parts.scheme == "https"


def _limit_wait(connection: http.client.HTTPConnection, deadline: float) -> None:
    """Set the time-out of a connection's next wait to the deadline."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    if connection.sock is not None:  # None after the last byte of an answer
        connection.sock.settimeout(remaining)


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _name_reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _quote(text: bytes) -> str:
    """A server's error message: the message field of its answer, or the answer itself."""
    shown = text[:2000].decode("utf-8", "replace")
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        shown = str(json.loads(text)["error"]["message"])
    return quote_line(shown, limit=300) or "nothing"
