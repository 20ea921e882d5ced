"""The endpoint that agents call: chat completions and the list of models, in the form of the OpenAI API.

It listens on 127.0.0.1 in a thread. A request waits here until the thread of the loop has answered its call. Every
refusal is one sentence, in the form of an error that clients know.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any

from groupwise.agents.chat import CREATED, MODEL, check_request
from groupwise.agents.sessions import ENDED, RefusedCall, Session
from groupwise.system.errors import ConfigError
from groupwise.system.json_text import MAX_NESTING, is_shallow, parse_json, to_canonical_json
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MAX_BODY = 4 * 2**20
"""Bytes of a request: text for about a million tokens."""
BODY_SECONDS = 60.0
JSON = "application/json"
HEARTBEAT_SECONDS = 15.0
"""While a call waits, something is sent this often, so that no client takes the connection for dead."""
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Endpoint:
    """Sessions by their keys, and the server that their agents call."""

    def __init__(self) -> None:
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route

            from groupwise.engines.server.app import WAITING, make_server, take_port
        except ImportError as error:
            raise ConfigError(
                f"[agent] needs {error.name}, which is not installed: pip install 'groupwise[agent]'"
            ) from None
        self._sessions: dict[str, Session] = {}
        self._socket = take_port("127.0.0.1", 0)
        self._socket.listen(WAITING)  # agents connect before the server's thread runs
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/models", self._list_models, methods=["GET"]),
        ]
        self._server = make_server(Starlette(routes=routes, exception_handlers={404: _miss, 405: _miss}))
        self._thread = Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="endpoint of agents", daemon=True
        )
        self._thread.start()

    def add(self, session: Session) -> None:
        self._sessions[session.key] = session

    def remove(self, session: Session) -> None:
        self._sessions.pop(session.key, None)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    async def _list_models(self, request: Request) -> Response:
        try:
            self._find_session(request)
        except RefusedCall as refusal:
            return _refuse(refusal)
        entry = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "groupwise"}
        return _respond({"object": "list", "data": [entry]})

    async def _complete(self, request: Request) -> Response:
        from starlette.responses import StreamingResponse

        try:
            session = self._find_session(request)
            raw = await _read_body(request)
            sent = _read_json(raw)
            body = check_request(sent)
            is_retry = request.headers.get("x-stainless-retry-count", "0") != "0"
            state = request.headers.get("x-groupwise-state")
            is_accepted = request.headers.get("x-groupwise-accepted", "").lower() != "false"
            digest = hashlib.sha256(raw).hexdigest()
            call = session.ask(body, digest, is_retry=is_retry, state=state, is_accepted=is_accepted)
            answer = asyncio.wrap_future(call.answer)
            answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())  # clients may have gone
            done, _ = await asyncio.wait([answer], timeout=HEARTBEAT_SECONDS)
            if done and answer.exception() is not None:
                return _refuse(answer.exception())
            if sent.get("stream"):
                options = sent.get("stream_options")
                with_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
                return StreamingResponse(_stream(answer, with_usage=with_usage), media_type="text/event-stream")
            return _respond(answer.result()) if done else StreamingResponse(_send_late(answer), media_type=JSON)
        except RefusedCall as refusal:
            return _refuse(refusal)

    def _find_session(self, request: Request) -> Session:
        # A web page can make a browser send requests to this machine, also under a name of its own.
        host = request.headers.get("host", "").rpartition(":")[0]
        if "origin" in request.headers or host not in LOCAL_NAMES:
            raise RefusedCall("this endpoint answers programs on this machine, not web pages", status=403)
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        session = self._sessions.get(key.strip()) if scheme.lower() == "bearer" else None
        if session is None:
            raise RefusedCall(ENDED, status=401, code="invalid_api_key")
        return session


async def _read_body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise RefusedCall("the Content-Type of the body must be application/json", status=415)
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                raw += piece
                if len(raw) > MAX_BODY:
                    raise RefusedCall(
                        f"the body has more than {MAX_BODY} bytes; send shorter messages, such as the end of a long "
                        "tool result",
                        status=413,
                    )
    except TimeoutError:
        raise RefusedCall(f"the body did not arrive within {BODY_SECONDS:g} seconds", status=408) from None
    return bytes(raw)


def _read_json(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
        body = parse_json(text)
    except UnicodeDecodeError:
        raise RefusedCall("the body is not UTF-8; send JSON as UTF-8") from None
    except ValueError as error:
        raise RefusedCall(f"the body is not JSON: {quote_line(str(error), limit=200)}") from None
    if not isinstance(body, dict):
        raise RefusedCall("the body is not a JSON object; send one with model and messages")
    if not is_shallow(text, body):
        raise RefusedCall(f"the body is nested more than {MAX_NESTING} deep, or has NaN; send plain messages")
    return body


def _respond(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(to_canonical_json(content), status, dict(headers or {}), JSON)


def _describe(error: BaseException) -> dict[str, Any]:
    code, param = (error.code, error.param) if isinstance(error, RefusedCall) else (None, None)
    kind = "authentication_error" if code == "invalid_api_key" else "invalid_request_error"
    return {"error": {"message": str(error), "type": kind, "param": param, "code": code}}


def _refuse(error: BaseException | None) -> Response:
    assert isinstance(error, RefusedCall), "calls are refused with nothing else"
    return _respond(_describe(error), error.status, {"x-should-retry": "false"})


async def _miss(request: Request, error: Exception) -> Response:
    path = quote_line(request.url.path, limit=100)
    sentence = f"there is no {request.method} {path} here; use POST /v1/chat/completions or GET /v1/models"
    return _refuse(RefusedCall(sentence, status=getattr(error, "status_code", 404)))


async def _send_late(answer: asyncio.Future[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Spaces until the answer is there: white space before JSON means nothing."""
    while not answer.done():
        yield " "
        await asyncio.wait([answer], timeout=HEARTBEAT_SECONDS)
    error = answer.exception()
    yield to_canonical_json(answer.result() if error is None else _describe(error))


async def _stream(answer: asyncio.Future[Mapping[str, Any]], *, with_usage: bool) -> AsyncIterator[str]:
    """The whole answer in chunks, after comments while it is not there."""
    while not answer.done():
        yield ": waiting\n\n"
        await asyncio.wait([answer], timeout=HEARTBEAT_SECONDS)
    error = answer.exception()
    chunks = [_describe(error)] if error is not None else list_chunks(answer.result(), with_usage=with_usage)
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def list_chunks(completion: Mapping[str, Any], *, with_usage: bool) -> Iterator[dict[str, Any]]:
    """A completion as the chunks of a stream: the message, why it ended, and the usage if it was asked for."""
    head = {**completion, "object": "chat.completion.chunk"}
    del head["usage"]
    [choice] = completion["choices"]
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        yield {**head, "choices": [{"index": 0, "delta": part, "finish_reason": reason}]}
    if with_usage:
        yield {**head, "choices": [], "usage": completion["usage"]}
