"""Sessions: what an agent and a run say to each other during one rollout.

A session has a secret key, which names it at the endpoint. The agent's thread and the endpoint's thread put events into
its runner's mailbox; the thread of the loop takes them out and answers.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

from groupwise.data.column_checks import LARGEST_REWARD
from groupwise.data.records import Task
from groupwise.envs.plain_records import to_plain_key
from groupwise.system.errors import ConfigError, EnvironmentFault, GroupwiseError


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a rollout, as an agent returns it.

    Worked example: `Ended(reward=0.5, success=False, note="the mail went to the wrong person")`.
    """

    reward: float = 0.0
    """The reward of the last step."""
    success: bool | None = None
    """Whether the task was solved; None = whether the reward is at least `agent.solved_at`."""
    truncated: bool = False
    """Whether a limit ended the rollout, such as one on turns; what would have followed is unknown."""
    note: str = ""
    """A note for the record; empty = none."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Further scores by name; they become step info of the last step."""


class RefusedCall(GroupwiseError):
    """A call that gets an error in place of an answer."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True, eq=False)
class Call:
    """A call of the model that waits for its answer, or has it."""

    body: Mapping[str, Any]
    """The request, after its checks."""
    digest: str
    """Of the body as it was sent: a client that asks again sends the same."""
    state: Hashable | None = None
    """What the agent said about the state, if it did."""
    answer: Future[Mapping[str, Any]] = field(default_factory=Future)
    """The body of the response; or a `RefusedCall`."""

    def refuse(self, refusal: RefusedCall) -> None:
        if not self.answer.done():
            self.answer.set_exception(refusal)


ENDED = "there is no session with this key, or its rollout has ended; the run gives each rollout a key of its own"
Post = Callable[["Session", object], None]
"""Puts an event into the mailbox: a `Call`, or how the agent ended (`Ended` or an exception)."""


class Session:
    """One rollout, as its agent sees it."""

    def __init__(self, *, number: int, task: Task, url: str, post: Post) -> None:
        self.number = number
        """The number of the rollout in the runner."""
        self.task = task
        """The task; the function of an agent also gets its payload."""
        self.url = url
        """The base URL for clients of the OpenAI API; it ends with /v1."""
        self.key = f"gw-{secrets.token_urlsafe(24)}"
        """The API key. It names the session, and is valid until the rollout ends."""
        self.num_calls = 0
        """How many calls were answered."""
        self._post = post
        self._lock = Lock()
        self._pending = deque[Call]()
        self._answered: Call | None = None
        self._is_open = True
        self._state: Hashable | None = None
        self._reward, self._accepted = 0.0, True

    # What an agent calls.

    def client(self) -> Any:
        """An `openai.OpenAI` for this session. All sessions share its connections, which take long to set up."""
        try:
            import openai
        except ImportError:
            raise ConfigError(
                "session.client() needs a package that is not installed; pip install 'groupwise[agent]'"
            ) from None
        return openai.OpenAI(base_url=self.url, api_key=self.key, http_client=_open_transport())

    def reward(self, amount: float) -> None:
        """Add to the reward of the step that was just made."""
        if not abs(float(amount)) <= LARGEST_REWARD:
            raise EnvironmentFault(f"session.reward: found {amount!r}; give a number up to {LARGEST_REWARD:g}")
        with self._lock:
            self._reward += float(amount)

    def accepted(self, is_accepted: bool) -> None:
        """Say whether the last message could be carried out; without a word it could."""
        with self._lock:
            self._accepted = bool(is_accepted)

    def state(self, key: Hashable) -> None:
        """Say the state in which the next call is made: calls of a task with equal states are compared."""
        with self._lock:
            self._state = to_plain_key(key)

    # What the endpoint calls.

    def ask(
        self, body: Mapping[str, Any], digest: str, *, is_retry: bool, state: Hashable | None, is_accepted: bool
    ) -> Call:
        """The call for a request. A retry is the call that it repeats, waiting or just answered.

        A new call may say that the message before it was not accepted. A retry said it already.
        """
        with self._lock:
            if not self._is_open:
                raise RefusedCall(ENDED, status=401, code="invalid_api_key")
            if is_retry:
                known = [*self._pending, *([self._answered] if self._answered else [])]
                if found := next((call for call in known if call.digest == digest), None):
                    return found
            state, self._state = self._state if state is None else state, None
            self._accepted = self._accepted and is_accepted
            call = Call(body, digest, state)
            self._pending.append(call)
            if len(self._pending) == 1:
                self._post(self, call)
            return call

    # What the runner calls.

    def take_earned(self) -> tuple[float, bool]:
        """The reward of the step that was just made, and whether it was accepted."""
        with self._lock:
            earned = self._reward, self._accepted
            self._reward, self._accepted = 0.0, True
        return earned

    def answer(self, body: Mapping[str, Any]) -> None:
        """Answer the first waiting call; the next one takes its place."""
        with self._lock:
            call = self._answered = self._pending.popleft()
            self.num_calls += 1
            if self._pending:
                self._post(self, self._pending[0])
        if not call.answer.done():  # its prompt was too long at first
            call.answer.set_result(body)

    def refuse(self, refusal: RefusedCall) -> None:
        """Answer the first waiting call with an error. It makes no step."""
        with self._lock:
            call = self._pending.popleft()
            if self._pending:
                self._post(self, self._pending[0])
        call.refuse(refusal)

    def end(self, first: RefusedCall | None = None) -> None:
        """End the session: its key is not valid any more, and waiting calls are refused, the first as given."""
        with self._lock:
            self._is_open = False
            waiting, self._pending = list(self._pending), deque()
        for call in waiting:
            call.refuse(first or RefusedCall(ENDED, status=401, code="invalid_api_key"))
            first = None


@cache
def _open_transport() -> Any:
    import openai

    return openai.DefaultHttpxClient()
