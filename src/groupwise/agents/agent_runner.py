"""Runs agents in the place of environments: an agent's next model call is the observation, its reply is the action.

Agents run in threads; the loop's thread takes their events out of one mailbox. A call waits until the loop has answered
it, so a rollout has one step per call, and ends when its agent does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from socket import socket
from typing import Self

from groupwise.agents.chat import (
    AgentPrompter,
    CallSeen,
    Conversation,
    find_told_state,
    make_completion,
    read_reply,
    write_call,
)
from groupwise.agents.endpoint import Endpoint
from groupwise.agents.sessions import Call, Ended, RefusedCall, Session
from groupwise.data.records import StopReason, Task
from groupwise.engines.engine import Generation
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.plain_records import to_plain_outcome, to_plain_reward
from groupwise.parts.slots import StateRule
from groupwise.rollout.environment_runner import Advice, Fault, NoExpert, call_guarded
from groupwise.rollout.episodes import WakeupSocket
from groupwise.rollout.prompts import Prompter
from groupwise.system.quoted_errors import quote_error

FAILURES = ("agents.exceptions.", "pydantic_ai.exceptions.", "langgraph.errors.", "smolagents.utils.Agent")
"""How the names of exceptions begin that frameworks raise for what the model did: too many turns, an unknown tool."""
LONGEST_WAIT = 3600.0
"""Seconds of one wait: `poll` counts milliseconds in a C int. Who waits longer waits again."""

Start = Callable[[Session, Callable[[Ended | BaseException], None]], None]
"""Starts an agent; the second argument is called once, with how the agent ended."""


@dataclass
class LiveAgent:
    """An agent that runs."""

    session: Session
    deadline: float
    """When it must have asked or ended."""
    waiting: tuple[Call, CallSeen] | None = None
    """The call that the loop has to answer, and what the loop sees of it."""
    generation: Generation | None = None
    """What was sampled for it."""
    conversations: list[Conversation] = field(default_factory=list)
    early_end: object = None
    """How the agent ended, if one of its calls was still being answered."""


class AgentRunner:
    """The sessions of agents, by number. `timeout` is in seconds, from an answer to the agent's next call or end."""

    def __init__(
        self,
        start: Start,
        *,
        timeout: float,
        max_calls: int,
        solved_at: float,
        state: StateRule,
        failures: Sequence[str] = (),
    ) -> None:
        self._start, self._timeout, self._max_calls, self._solved_at = start, timeout, max_calls, solved_at
        self._state = state
        self._failures = (*FAILURES, *failures)
        self._endpoint: Endpoint | None = None
        self._prompter: AgentPrompter | None = None
        self._max_prompt: int | None = None
        self._live: dict[int, LiveAgent] = {}
        self._mail = SimpleQueue[tuple[Session, object]]()
        self._bell = WakeupSocket()

    def use(self, prompter: Prompter, *, max_prompt: int | None) -> None:
        assert isinstance(prompter, AgentPrompter), "agents have a prompter of their own"
        self._prompter, self._max_prompt = prompter, max_prompt

    def note(self, answers: Mapping[int, Generation]) -> None:
        """What the engine sampled for the calls that are answered next."""
        for number, generation in answers.items():
            self._live[number].generation = generation

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        self._endpoint = self._endpoint or Endpoint()
        self.close([number for number in tasks if number in self._live])  # of rollouts that were stopped
        for number, task in tasks.items():
            session = Session(number=number, task=task, url=self._endpoint.url, post=self._post)
            self._live[number] = LiveAgent(session, time.monotonic() + self._timeout)
            self._endpoint.add(session)
        for number in tasks:
            session = self._live[number].session
            self._start(session, lambda end, session=session: self._post(session, end))  # type: ignore[misc]
        first = dict[int, Observation | Fault]()
        for number, outcome in self._wait_for_all(tasks).items():
            if isinstance(outcome, Fault):
                first[number] = outcome
            elif outcome.ended:
                first[number] = Fault(reason=StopReason.ERROR, message=outcome.note or "the agent ended without a call")
            else:
                first[number] = outcome.observation
        return first

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        self.begin(actions)
        return self._wait_for_all(actions)

    def begin(self, actions: Mapping[int, str]) -> None:
        assert self._prompter is not None, "the loop gave it before the first call"
        for number, action in actions.items():
            agent = self._live[number]
            generation = agent.generation
            assert agent.waiting is not None, "the loop answers calls"
            assert generation is not None, "the loop said what was sampled"
            call, seen = agent.waiting
            completion = make_completion(
                call.body, action, generation, num_prompt=len(seen.prompt_ids), call=agent.session.num_calls
            )
            ids = (*seen.prompt_ids, *self._prompter.end_response(generation.response_ids))
            reply = [*call.body["messages"], read_reply(completion)]
            agent.conversations.append(Conversation(reply, call.body["tools"], ids))
            agent.waiting, agent.deadline = None, time.monotonic() + self._timeout
            agent.session.answer(completion)
            if agent.early_end is not None:
                self._post(agent.session, agent.early_end)

    def finish(self, ear: socket) -> dict[int, Outcome | Fault]:
        while not (done := self._take(wait=ear)):
            if _wait_for([ear], 0):
                break
        return done

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        return {number: NoExpert() for number in numbers}

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        fault = Fault(reason=StopReason.ERROR, message="an agent cannot be copied in the middle of a rollout")
        return dict.fromkeys(into, fault)

    def close(self, numbers: Sequence[int]) -> None:
        """End sessions. A call that the loop did not answer had a prompt that is too long."""
        for number in numbers:
            agent = self._live.pop(number, None)
            if agent is not None and self._endpoint is not None:
                self._endpoint.remove(agent.session)
                agent.session.end(make_too_long() if agent.waiting is not None else None)

    def shutdown(self) -> None:
        self.close(list(self._live))
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None
        self._bell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _post(self, session: Session, event: object) -> None:
        self._mail.put((session, event))
        self._bell.ring(None)

    def _wait_for_all(self, numbers: Mapping[int, object]) -> dict[int, Outcome | Fault]:
        came = dict[int, Outcome | Fault]()
        while len(came) < len(numbers):
            came |= self._take()
        return came

    def _take(self, wait: socket | None = None) -> dict[int, Outcome | Fault]:
        """Outcomes of the events that have come, after a wait for the first one, for `wait`, or for a deadline."""
        if self._mail.empty():
            deadline = min(agent.deadline for agent in self._live.values() if agent.waiting is None)
            _wait_for([self._bell.ear, *([] if wait is None else [wait])], max(deadline - time.monotonic(), 0))
        self._bell.hush()
        done = dict[int, Outcome | Fault]()
        while True:
            try:
                session, event = self._mail.get_nowait()
            except Empty:
                break
            agent = self._live.get(session.number)
            if agent is None or agent.session is not session:
                continue  # its rollout has ended already
            if agent.waiting is not None:
                agent.early_end = event
            elif session.number in done:
                continue  # it ends now
            elif (outcome := self._read_event(agent, event)) is not None:
                done[session.number] = outcome
        now = time.monotonic()
        for number, agent in self._live.items():
            if agent.waiting is None and number not in done and now >= agent.deadline:
                message = f"the agent neither called the model nor ended within {self._timeout:g} seconds"
                done[number] = Fault(reason=StopReason.TIMEOUT, message=message)
        # An agent that has ended must not time out while others go on.
        self.close([number for number, outcome in done.items() if isinstance(outcome, Fault) or outcome.ended])
        return done

    def _read_event(self, agent: LiveAgent, event: object) -> Outcome | Fault | None:
        """What an event means for the step that was just made; None if the agent goes on to its next call."""
        if isinstance(event, Call):
            return self._read_call(agent, event)
        reward, accepted = agent.session.take_earned()
        if isinstance(event, Ended):
            return call_guarded(self._read_end, event, reward, accepted)
        assert isinstance(event, BaseException), "an agent ends with a result or an exception"
        name = f"{type(event).__module__}.{type(event).__qualname__}"
        note = f"the agent raised {quote_error(event)}"
        if name.startswith(self._failures):
            nothing = Observation(text="")
            return Outcome(
                observation=nothing, reward=reward, terminated=True, accepted=accepted, success=False, note=note
            )
        return Fault(reason=StopReason.ERROR, message=note)

    def _read_end(self, end: Ended, earned: float, accepted: bool) -> Outcome:
        reward = to_plain_reward(end.reward)
        outcome = Outcome(
            observation=Observation(text=""),
            reward=reward + earned,
            terminated=not end.truncated,
            truncated=end.truncated,
            accepted=accepted,
            success=reward >= self._solved_at if end.success is None else end.success,
            note=end.note,
            info=end.scores,
        )
        return to_plain_outcome(outcome)

    def _read_call(self, agent: LiveAgent, call: Call) -> Outcome | None:
        assert self._prompter is not None, "the loop gave it before the first call"
        session = agent.session
        if session.num_calls == self._max_calls:
            reward, accepted = session.take_earned()
            message = f"the rollout has made its {self._max_calls} calls, agent.max_calls, and ends here"
            session.end(RefusedCall(message, status=403, code="max_calls"))
            return Outcome(
                observation=Observation(text=""),
                reward=reward,
                truncated=True,
                accepted=accepted,
                success=False,
                note=message,
            )
        try:
            ids, num_known = self._prompter.encode_call(call.body, agent.conversations)
            text = write_call(call.body, num_known, shows_tools=not num_known)
            messages = call.body["messages"]
            told = find_told_state(messages) if call.state is None else call.state
            seen = CallSeen(text=text, state_key=self._state(messages) if told is None else told, prompt_ids=ids)
        except RefusedCall as refusal:
            session.refuse(refusal)
            return None
        agent.waiting = call, seen
        if self._max_prompt is not None and len(ids) > self._max_prompt:
            # The loop may have to wait for other agents, until a refusal cannot have a status of its own.
            call.refuse(make_too_long())
        reward, accepted = session.take_earned()
        return Outcome(observation=seen, reward=reward, accepted=accepted)


def make_too_long() -> RefusedCall:
    return RefusedCall(
        "messages: the prompt and the largest response do not fit into the model's context; the rollout ends here",
        code="context_length_exceeded",
        param="messages",
    )


def _wait_for(ears: Sequence[socket], seconds: float) -> bool:
    """Wait until one of some sockets is readable. `select` cannot wait for sockets with numbers above 1023."""
    poll = select.poll()
    for ear in ears:
        poll.register(ear, select.POLLIN)
    return bool(poll.poll(1000 * min(seconds, LONGEST_WAIT)))
