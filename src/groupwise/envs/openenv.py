"""Worlds that run elsewhere, behind an OpenEnv server."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.panel import check_env, list_seed_tasks
from groupwise.envs.kit.progress import SteppedEnvironment, say_nothing_happens
from groupwise.envs.kit.words import NOTHING_HAPPENS, vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, EnvironmentFault
from groupwise.system.secrets import resolve_references
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

ENV = "openenv"
MAX_TASKS = 1_000_000


class Openenv(Part, slot="env"):
    """A world behind an OpenEnv server (github.com/meta-pytorch/OpenEnv), one session an attempt.

    A task is a seed that the world is reset with. What an action and an observation are made of differs from world to
    world, so fields say which of them is which; those of an observation are looked up in its metadata too.

    Choices: an action that is not listed, or that the server calls malformed, is refused and changes nothing. The
    protocol knows no truncation, so `done` is an end of the world's own. A fork opens another session and repeats the
    actions, and is refused where they lead elsewhere. A server that hangs up ends the attempt with an error, one that
    does not answer with a time-out. Two seeds may give one instance, and nobody here can tell: how different the panels
    are is the server's affair.
    """

    url: str
    """Where the server listens, such as "http://127.0.0.1:8000". A token in it, or in the fields below, is written as
    `${NAME}`, the name of an environment variable: only what is sent holds its value."""
    world: str
    """What the server plays; part of its tasks' identity, as the address is not."""
    action_field: str = "message"
    """Field of an action that takes what the agent says."""
    action_rest: dict[str, Any] = Field(default_factory=dict)
    """Other fields of each action, with their values."""
    reset_rest: dict[str, Any] = Field(default_factory=dict)
    """What the world is reset with beside the seed; part of its tasks' identity."""
    text_field: str = ""
    """Field of an observation that is shown; empty = all of it, as JSON."""
    goal_field: str = ""
    """Field of the first observation that says what is asked for; empty = none."""
    key_field: str = ""
    """Field of an observation that makes steps comparable; empty = what is shown."""
    admissible_field: str = ""
    """Field of an observation that lists the possible actions; empty = `actions`."""
    accepted_field: str = ""
    """Field of an observation that says whether the action was accepted; empty = it was."""
    success_field: str = ""
    """Field of the last observation that says whether the task was solved; empty = by the rewards."""
    success_return: float | None = None
    """Total reward from which an attempt is a success; None = its last reward is positive."""
    actions: tuple[str, ...] = ()
    """The actions, where they are always the same; empty = any text."""
    words: tuple[str, ...] = ()
    """Every word of its observations."""
    about: str = "Choose the next action."
    """The instruction: one line that tells the agent what to do."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1000
    """Tasks in the training panel."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the validation panel."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 200
    """Tasks in the test panel."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before an attempt is truncated."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds within which the server must answer."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return list_seed_tasks(ENV, self, split, {"world": self.world, "reset": self.reset_rest})

    def open(self, task: Task) -> OpenenvEnvironment:
        check_env(task, ENV)
        socket_url(resolve_references(self.url))
        return OpenenvEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary_of((self.instruction(), NOTHING_HAPPENS, *self.actions, *self.words))

    def instruction(self) -> str:
        return self.about


class OpenenvEnvironment(SteppedEnvironment):
    """One attempt in a world on a server."""

    def __init__(self, task: Task, part: Openenv) -> None:
        super().__init__(task, part.max_steps)
        self._task, self._part = task, part
        self._actions: list[str] = []
        self._total = 0.0
        self._session = Session(part.url, timeout=part.timeout)
        first = self._session.ask("reset", {"seed": task.seed, **resolve_references(task.payload["reset"])})
        goal = _find_field(first, part.goal_field)
        self._goal = "" if goal is None else _to_text(goal)
        self._progress.observation = self._observe(first)

    def act(self, action: str) -> Outcome:
        self._progress.step()
        listed = self.observe().admissible
        if listed is not None and action not in listed:
            return self._nothing_happens()
        try:
            message = self._session.ask("step", self._message(action))
        except RefusedAction:
            return self._nothing_happens()
        self._actions.append(action)
        reward = float(message.get("reward") or 0.0)
        self._total += reward
        observation, accepted = self._observe(message), _find_field(message, self._part.accepted_field)
        success = None
        if message.get("done"):
            solved, threshold = _find_field(message, self._part.success_field), self._part.success_return
            success = reward > 0 if threshold is None else self._total >= threshold
            success = success if solved is None else bool(solved)
        return self._close_if_ended(
            self._progress.outcome(
                observation, success=success, reward=reward, accepted=accepted is None or bool(accepted)
            )
        )

    def fork(self) -> Self:
        twin = type(self)(self._task, self._part)
        if self._progress.ended:  # nothing can happen in it any more
            twin._session.close()
        else:
            messages = [twin._session.ask("step", twin._message(action)) for action in self._actions]
            seen = twin._observe(messages[-1]) if messages else twin.observe()
            if seen.state_key != self.observe().state_key:
                raise EnvironmentFault(
                    f"openenv {self._part.url}: {len(messages)} actions led elsewhere when they were repeated; a world "
                    "that does not follow from its seed cannot be forked"
                )
        twin._actions, twin._total, twin._progress = self._actions.copy(), self._total, self._progress.fork()
        return twin

    def _message(self, action: str) -> dict[str, Any]:
        return {**resolve_references(self._part.action_rest), self._part.action_field: action}

    def _nothing_happens(self) -> Outcome:
        return self._close_if_ended(self._progress.outcome(say_nothing_happens(self.observe()), accepted=False))

    def _close_if_ended(self, outcome: Outcome) -> Outcome:
        """The outcome; the place on the server is free as soon as the attempt has ended."""
        if outcome.ended:
            self._session.close()
        return outcome

    def _observe(self, message: Mapping[str, Any]) -> Observation:
        part = self._part
        text = _find_field(message, part.text_field) if part.text_field else message.get("observation")
        if text is None:
            known = ", ".join(sorted(message.get("observation") or {})) or "none"
            raise EnvironmentFault(f"openenv {part.url}: there is no field {part.text_field!r}; its fields: {known}")
        key = _find_field(message, part.key_field) if part.key_field else text
        listed = _find_field(message, part.admissible_field)
        admissible = tuple(map(str, listed)) if isinstance(listed, list) else part.actions or None
        key = None if key is None else _to_text(key)
        return Observation(text=_to_text(text), state_key=key, admissible=admissible, goal=self._goal)


def _find_field(message: Mapping[str, Any], field: str) -> Any:
    """A field of an observation, or of its metadata; None where it is in neither, or none is asked for."""
    for place in (message.get("observation"), message.get("metadata")):
        if field and isinstance(place, dict) and field in place:
            return place[field]
    return None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# A session with an OpenEnv server: one WebSocket, one world, one question at a time.

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
MAX_ANSWER_BYTES = 2**24
"""Of an answer; more ends the session."""
MAX_MESSAGE_CHARACTERS = 2000
"""Of what a server says is wrong; it may repeat what an action was made of."""
REFUSED = "VALIDATION_ERROR"
"""What a server says to an action that is not one of its world."""
FULL = "CAPACITY_REACHED"
SHUTDOWN_TIMEOUT = 1.0
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
    host = urlsplit(place).hostname or ""
    try:
        is_local = ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    try:
        session = connect(
            socket_url(place),
            open_timeout=timeout,
            close_timeout=SHUTDOWN_TIMEOUT,
            max_size=MAX_ANSWER_BYTES,
            proxy=None if is_local else True,  # proxy settings often forget this machine
        )
        return held.enter_context(session)
    except TimeoutError:
        raise TimeoutError(f"openenv {url}: no session within {timeout:g} seconds; is the server overloaded?") from None
    except (OSError, WebSocketException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentFault(f"openenv {url}: there is no session to be had ({reason}); start the server") from None


def _hang_up(socket: ClientConnection, held: ExitStack) -> None:
    with suppress(Exception):
        socket.send(json.dumps({"type": "close"}))
        socket.recv(timeout=SHUTDOWN_TIMEOUT)  # its hanging up says that the place is free
    with suppress(Exception):
        held.close()
