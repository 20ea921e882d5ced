"""Environments that run elsewhere, behind an OpenEnv server."""

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
from groupwise.envs.kit.progress import SteppedEnvironment, say_nothing_happens
from groupwise.envs.kit.task_set import check_env, list_seed_tasks
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
    """An environment behind an OpenEnv server (github.com/meta-pytorch/OpenEnv), one session per rollout.

    A task is a seed for the environment's reset. Actions and observations differ between environments, so fields say
    which entry is which. Entries of an observation are looked up in its metadata too.

    Choices: an action that is not listed, or that the server calls malformed, is invalid and changes nothing. The
    protocol has no truncation, so `done` means terminated. A fork opens another session and repeats the actions; it
    fails if they lead to another state. If the server hangs up, the rollout ends with an error; if it does not answer,
    with a time-out. Two seeds may give one instance, and groupwise cannot detect it: the server decides how different
    the task sets are.
    """

    url: str
    """Address of the server, such as "http://127.0.0.1:8000". Write a token here, or in the fields below, as `${NAME}`,
    the name of an environment variable: its value is only in what is sent."""
    world: str
    """A name for what the server runs; part of the tasks' identity. The address is not."""
    action_field: str = "message"
    """Field of an action that gets the agent's text."""
    action_rest: dict[str, Any] = Field(default_factory=dict)
    """Other fields of each action, with their values."""
    reset_rest: dict[str, Any] = Field(default_factory=dict)
    """Other fields of a reset, beside the seed; part of the tasks' identity."""
    text_field: str = ""
    """Field of an observation that is shown; empty = all of it, as JSON."""
    goal_field: str = ""
    """Field of the first observation with the goal; empty = none."""
    key_field: str = ""
    """Field of an observation that is the state key; empty = the text."""
    admissible_field: str = ""
    """Field of an observation that lists the possible actions; empty = `actions`."""
    accepted_field: str = ""
    """Field of an observation that says whether the action was accepted; empty = it was."""
    success_field: str = ""
    """Field of the last observation that says whether the task was solved; empty = by the rewards."""
    success_return: float | None = None
    """Total reward from which a rollout is a success; None = its last reward is positive."""
    actions: tuple[str, ...] = ()
    """The actions, if they are always the same; empty = any text."""
    words: tuple[str, ...] = ()
    """Every word of the observations."""
    about: str = "Choose the next action."
    """The instruction: one line that tells the agent what to do."""
    num_train: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1000
    """Tasks in the train set."""
    num_validation: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 100
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 200
    """Tasks in the test set."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before a rollout is truncated."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds within which the server must answer."""

    def task_set(self, split: str) -> tuple[Task, ...]:
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
    """One rollout in an environment on a server."""

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
        if self._progress.ended:  # it needs no session any more
            twin._session.close()
        else:
            messages = [twin._session.ask("step", twin._message(action)) for action in self._actions]
            seen = twin._observe(messages[-1]) if messages else twin.observe()
            if seen.state_key != self.observe().state_key:
                raise EnvironmentFault(
                    f"openenv {self._part.url}: {len(messages)} repeated actions led to another state; a fork "
                    "needs an environment that depends only on its seed"
                )
        twin._actions, twin._total, twin._progress = self._actions.copy(), self._total, self._progress.fork()
        return twin

    def _message(self, action: str) -> dict[str, Any]:
        return {**resolve_references(self._part.action_rest), self._part.action_field: action}

    def _nothing_happens(self) -> Outcome:
        return self._close_if_ended(self._progress.outcome(say_nothing_happens(self.observe()), accepted=False))

    def _close_if_ended(self, outcome: Outcome) -> Outcome:
        if outcome.ended:
            self._session.close()
        return outcome

    def _observe(self, message: Mapping[str, Any]) -> Observation:
        part = self._part
        text = _find_field(message, part.text_field) if part.text_field else message.get("observation")
        if text is None:
            known = ", ".join(sorted(message.get("observation") or {})) or "none"
            raise EnvironmentFault(
                f"openenv {part.url}: the observation has no field {part.text_field!r}; its fields: {known}"
            )
        key = _find_field(message, part.key_field) if part.key_field else text
        listed = _find_field(message, part.admissible_field)
        admissible = tuple(map(str, listed)) if isinstance(listed, list) else part.actions or None
        key = None if key is None else _to_text(key)
        return Observation(text=_to_text(text), state_key=key, admissible=admissible, goal=self._goal)


def _find_field(message: Mapping[str, Any], field: str) -> Any:
    """A field of an observation, or of its metadata; None if neither has it, or if `field` is empty."""
    for place in (message.get("observation"), message.get("metadata")):
        if field and isinstance(place, dict) and field in place:
            return place[field]
    return None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# A session with an OpenEnv server: one WebSocket, one environment, one question at a time.

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
MAX_ANSWER_BYTES = 2**24
"""Largest answer; a larger one ends the session."""
MAX_MESSAGE_CHARACTERS = 2000
"""Characters of an error message; it may repeat the action."""
REFUSED = "VALIDATION_ERROR"
"""The server's error code for an invalid action."""
FULL = "CAPACITY_REACHED"
SHUTDOWN_TIMEOUT = 1.0


class RefusedAction(Exception):
    """The server rejected the action; the environment is unchanged."""


class Session:
    """A session on a server; every answer must come within the timeout."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        held = ExitStack()
        self._socket = _connect(held, url, timeout)
        # A server has a limited number of sessions: an unused one must not keep its place.
        self.close = weakref.finalize(self, _hang_up, self._socket, held)

    def ask(self, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed

        try:
            with suppress(ConnectionClosed):  # the next read gives the reason
                self._socket.send(json.dumps({"type": kind, "data": dict(content)}))
            answer = self._socket.recv(timeout=self._timeout)
        except TimeoutError:
            self.close()  # a late answer must not be read as the answer to another question
            raise TimeoutError(
                f"openenv {self._url}: no answer to {kind!r} within {self._timeout:g} seconds; if the server is only "
                "slow, increase env.timeout"
            ) from None
        except ConnectionClosed as closed:
            reason = str(closed).splitlines()[0]
            raise EnvironmentFault(
                f"openenv {self._url}: the server closed the connection at {kind!r} ({reason}); see its log"
            ) from None
        return self._read_answer(kind, answer)

    def _read_answer(self, kind: str, text: str | bytes) -> dict[str, Any]:
        try:
            answer = json.loads(text)
            content = dict(answer["data"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise EnvironmentFault(
                f"openenv {self._url}: the answer to {kind!r} was {text[:80]!r}, which is not OpenEnv's protocol"
            ) from None
        if answer.get("type") != "error":
            return content
        code = quote_line(str(content.get("code")), limit=80)
        message = quote_line(" ".join(str(content.get("message"))[:MAX_MESSAGE_CHARACTERS].split()))
        if code == REFUSED and kind == "step":
            raise RefusedAction(message)
        hint = "; start it with a larger max_concurrent_envs, or run fewer rollouts at once" if code == FULL else ""
        raise EnvironmentFault(f"openenv {self._url}: the answer to {kind!r} was {code}: {message}{hint}")


def socket_url(url: str) -> str:
    """The address of a server's sessions.

    >>> socket_url("http://127.0.0.1:8000/")
    'ws://127.0.0.1:8000/ws'
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ConfigError(f"openenv: {url!r} is not the address of a server; use one such as 'http://127.0.0.1:8000'")
    return parts._replace(scheme=SCHEMES[parts.scheme], path=parts.path.rstrip("/") + "/ws").geturl()


def _connect(held: ExitStack, url: str, timeout: float) -> ClientConnection:
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise report_missing_package("openenv") from None
    # Errors show the address as written: with the names of secrets, not their values.
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
        raise EnvironmentFault(f"openenv {url}: cannot open a session ({reason}); start the server") from None


def _hang_up(socket: ClientConnection, held: ExitStack) -> None:
    with suppress(Exception):
        socket.send(json.dumps({"type": "close"}))
        socket.recv(timeout=SHUTDOWN_TIMEOUT)  # the server closes the connection when the place is free
    with suppress(Exception):
        held.close()
