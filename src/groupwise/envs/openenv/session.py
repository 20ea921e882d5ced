"""A session with an OpenEnv server: one WebSocket, one world, one question at a time."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from groupwise.core.errors import ConfigError, EnvironmentFault
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.secrets import resolve_references
from groupwise.envs.kit.packages import report_missing_package

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
MAX_ANSWER_BYTES = 2**24
"""Of an answer; more ends the session."""
MAX_MESSAGE_CHARACTERS = 2000
"""Of what a server says is wrong; it may repeat what an action was made of."""
REFUSED = "VALIDATION_ERROR"
"""What a server says to an action that is not one of its world."""
FULL = "CAPACITY_REACHED"
FAREWELL_SECONDS = 1.0
"""How long a server may take to end a session."""


class RefusedAction(Exception):
    """The server could not make an action of what was said; the world is as it was."""


class Session:
    """A world on a server, from its opening until the session is dropped; every answer must come in time."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        held = ExitStack()
        self._socket = _connect(held, url, timeout)
        # A server has room for so many sessions; one that nobody holds any more must not take a place.
        self.close = weakref.finalize(self, _hang_up, self._socket, held)

    def ask(self, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Reset or step the world and return what it shows: `observation`, `reward`, `done`, perhaps `metadata`."""
        from websockets.exceptions import ConnectionClosed

        try:
            with suppress(ConnectionClosed):  # why, it says in what is read next
                self._socket.send(json.dumps({"type": kind, "data": dict(content)}))
            answer = self._socket.recv(timeout=self._timeout)
        except TimeoutError:
            self.close()  # a late answer must not be taken for that to another question
            raise TimeoutError(
                f"openenv {self._url}: no answer to {kind!r} within {self._timeout:g} seconds; raise env.timeout if it "
                "is only slow"
            ) from None
        except ConnectionClosed as closed:
            reason = str(closed).splitlines()[0]
            raise EnvironmentFault(
                f"openenv {self._url}: the server hung up at {kind!r} ({reason}); see its own log"
            ) from None
        return self._read_answer(kind, answer)

    def _read_answer(self, kind: str, text: str | bytes) -> dict[str, Any]:
        try:
            answer = json.loads(text)
            content = dict(answer["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise EnvironmentFault(
                f"openenv {self._url}: to {kind!r} it said {text[:80]!r}; it does not speak OpenEnv's protocol"
            ) from None
        if answer.get("type") != "error":
            return content
        code = quote_line(str(content.get("code")), limit=80)
        message = quote_line(" ".join(str(content.get("message"))[:MAX_MESSAGE_CHARACTERS].split()))
        if code == REFUSED and kind == "step":
            raise RefusedAction(message)
        hint = "; start it with a larger max_concurrent_envs, or play fewer attempts at once" if code == FULL else ""
        raise EnvironmentFault(f"openenv {self._url}: to {kind!r} it said {code}: {message}{hint}")


def socket_url(url: str) -> str:
    """Where a server's sessions are opened.

    >>> socket_url("http://127.0.0.1:8000/")
    'ws://127.0.0.1:8000/ws'
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ConfigError(f"openenv: {url!r} is not a server's address; give one such as 'http://127.0.0.1:8000'")
    return parts._replace(scheme=SCHEMES[parts.scheme], path=parts.path.rstrip("/") + "/ws").geturl()


def _connect(held: ExitStack, url: str, timeout: float) -> ClientConnection:
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise report_missing_package("openenv") from None
    # Messages keep to the address as it was given, which names secrets and does not hold them.
    place = resolve_references(url)
    # A proxy is for what lies outside; its settings often forget this machine.
    proxy: Literal[True] | None = None if _is_this_machine(place) else True
    try:
        return held.enter_context(
            connect(
                socket_url(place),
                open_timeout=timeout,
                close_timeout=FAREWELL_SECONDS,
                max_size=MAX_ANSWER_BYTES,
                proxy=proxy,
            )
        )
    except TimeoutError:
        raise TimeoutError(f"openenv {url}: no session within {timeout:g} seconds; is the server overloaded?") from None
    except (OSError, WebSocketException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentFault(f"openenv {url}: there is no session to be had ({reason}); start the server") from None


def _is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hang_up(socket: ClientConnection, held: ExitStack) -> None:
    with suppress(Exception):
        socket.send(json.dumps({"type": "close"}))
        socket.recv(timeout=FAREWELL_SECONDS)  # its hanging up says that the place is free
    with suppress(Exception):
        held.close()
