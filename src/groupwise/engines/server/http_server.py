"""HTTP around the routes: bodies of bounded size, JSON in and out, errors as one sentence."""

from __future__ import annotations

import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from groupwise.engines.server.routes import RefusedRequest, Routes
from groupwise.system.errors import GroupwiseError
from groupwise.system.text import quote_line

MAX_BODY = 64 * 2**20
"""Bytes of a request: some five million token ids."""
BODY_SECONDS = 60.0
"""Seconds that the rest of a request may take once it has begun to arrive."""

_log = logging.getLogger(__name__)


class EngineServer(ThreadingHTTPServer):
    """Listens for a served model. The port is taken when it is made, and nobody can connect before `listen`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.routes: Routes | None = None
        try:
            self.server_bind()
        except BaseException:
            self.server_close()
            raise

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        shown = host.decode() if isinstance(host, bytes | bytearray) else host
        return f"http://{shown}:{port}"

    def listen(self, routes: Routes) -> None:
        """Begin to answer."""
        self.routes = routes
        self.server_activate()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that break off: whoever asked has gone."""
        _log.debug("a connection broke off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection, which may bring many requests."""

    protocol_version = "HTTP/1.1"
    # Head and body leave in one packet: otherwise each answer waits some 40 ms for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: EngineServer

    def do_GET(self) -> None:
        """Answer a question."""
        self._answer({})

    def do_POST(self) -> None:
        """Answer a call with a body."""
        try:
            body = self._read_body()
        except RefusedRequest as refusal:
            self.close_connection = True  # what is left of the body would be taken for the next request
            self._send(refusal.status, _describe_error(refusal, refusal.status))
            return
        self._answer(body)

    def _answer(self, body: dict[str, Any]) -> None:
        assert self.server.routes is not None, "nobody connects before `listen`"
        place = urlsplit(self.path)
        try:
            message = self.server.routes.answer(self.command, place.path, dict(parse_qsl(place.query)), body)
            status, content = 200, json.dumps(message, allow_nan=False)
        except RefusedRequest as refusal:
            status, content = refusal.status, _describe_error(refusal, refusal.status)
        except GroupwiseError as error:
            status, content = 400, _describe_error(error, 400)
        except Exception as error:  # whatever a model or a kernel raises: whoever asked should hear of it
            _log.exception("%s failed", place.path)
            reason = quote_line(f"{type(error).__name__}: {error}", limit=300)
            status, content = 500, _describe_error(RuntimeError(f"{place.path} failed ({reason})"), 500)
        self._send(status, content)

    def _read_body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not length.isascii() or not length.isdigit() or "Transfer-Encoding" in self.headers:
            raise RefusedRequest("the body has no length; send Content-Length", status=411)
        if int(length) > MAX_BODY:
            raise RefusedRequest(f"the body has {length} bytes, of at most {MAX_BODY}; send fewer at once", status=413)
        if self.headers.get_content_type() != "application/json":  # a page in a browser can send other kinds unasked
            raise RefusedRequest("the body is not application/json; say so in Content-Type", status=415)
        if not int(length):
            return {}
        self.connection.settimeout(BODY_SECONDS)
        try:
            content = self.rfile.read(int(length))
        except TimeoutError:
            raise RefusedRequest(f"the body did not arrive within {BODY_SECONDS:g} seconds", status=408) from None
        self.connection.settimeout(None)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(f"the body is not JSON ({quote_line(str(error), limit=200)})") from None
        if not isinstance(body, dict):
            raise RefusedRequest("the body is not an object of JSON; give one")
        return body

    def _send(self, status: int, content: str) -> None:
        payload = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the log for what matters: a run makes thousands of requests."""
        _log.debug(format, *args)


def _describe_error(error: Exception, status: int) -> str:
    return json.dumps({"error": {"message": str(error), "type": type(error).__name__, "code": status}})
