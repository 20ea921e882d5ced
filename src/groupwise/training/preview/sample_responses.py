"""Responses without a model: what the user gives, what the environment's expert would do, or a possible action.

Attempts are played by the same loop as in training, with an engine that answers from these and a host that ends
attempts early; so their prompts are those of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from groupwise.core.records import Task
from groupwise.engines.engine import Request
from groupwise.envs.environment import Observation, Outcome
from groupwise.rollout.actions import ActionRule
from groupwise.rollout.hosts.host import Advice, Fault, Host
from groupwise.rollout.prompts.prompter import Prompter


class WatchedHost:
    """A host that remembers what its environments showed, and truncates attempts after so many steps."""

    def __init__(self, host: Host, *, steps: int) -> None:
        self.shown: dict[int, list[Observation]] = {}
        """What each environment showed, step by step."""
        self._host, self._steps = host, steps
        self._ends_now: set[int] = set()

    def end(self, number: int) -> None:
        """Let the next action of an environment end its attempt, without being sent."""
        self._ends_now.add(number)

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""
        answers = self._host.open(tasks)
        self.shown |= {number: [seen] for number, seen in answers.items() if isinstance(seen, Observation)}
        return answers

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        """Act in some environments and return what came of it."""
        sent = {number: action for number, action in actions.items() if number not in self._ends_now}
        outcomes = {
            number: Outcome(observation=self.shown[number][-1], truncated=True)
            for number in actions
            if number in self._ends_now
        } | self._host.act(sent)
        return {number: self._note(number, outcomes[number]) for number in actions}

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        """Ask the experts of some environments what they would do next."""
        return self._host.ask_experts(numbers)

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        """Copy an environment under other numbers."""
        answers = self._host.fork(source, into)
        self.shown |= {number: list(self.shown[source]) for number in answers}
        return answers

    def close(self, numbers: Sequence[int]) -> None:
        """Drop environments whose attempts have ended."""
        self._host.close(numbers)

    def shutdown(self) -> None:
        """Let go of everything."""
        self._host.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _note(self, number: int, outcome: Outcome | Fault) -> Outcome | Fault:
        if isinstance(outcome, Fault) or outcome.ended:
            return outcome
        if len(self.shown[number]) == self._steps:
            return replace(outcome, truncated=True)
        self.shown[number].append(outcome.observation)
        return outcome


class SampleResponses:
    """Answers the requests of attempts, whose numbers are their seeds and so the names of their sessions."""

    def __init__(self, host: WatchedHost, prompter: Prompter, rule: ActionRule, *, given: Sequence[str] = ()) -> None:
        self.sayers: dict[int, list[str]] = {}
        """Who says the response of each step, by attempt."""
        self._host, self._prompter, self._rule, self._given = host, prompter, rule, given

    def answer(self, request: Request) -> tuple[int, ...]:
        """The ids of a response, with its end token; the end token alone where nobody knows what to say."""
        assert request.session is not None, "an attempt names its session"
        number, end_id = int(request.session), self._prompter.frame.end_id
        text, said_by = self._choose(number)
        self.sayers.setdefault(number, []).append(said_by)
        if text is None:
            self._host.end(number)
            return (end_id,)
        return (*self._prompter.encode(text), end_id)

    def _choose(self, number: int) -> tuple[str | None, str]:
        """What is said next, and who says so."""
        seen, step = self._host.shown[number][-1], len(self.sayers.get(number, ()))
        if step < len(self._given):
            return self._given[step], "given"
        action, said_by = find_action(self._host, number, seen, step=step)
        return (None if action is None else self._rule.say(action, admissible=seen.admissible)), said_by


def find_action(host: WatchedHost, number: int, seen: Observation, *, step: int = 0) -> tuple[str | None, str]:
    """An action that fits, and whose it is: the expert's, or a possible one; None where nobody knows."""
    advice = host.ask_experts([number])[number]
    if isinstance(advice, str):
        return advice, "expert"
    if isinstance(advice, Fault):
        return None, f"the expert failed: {advice.message}"
    if seen.admissible:
        return seen.admissible[step % len(seen.admissible)], "possible action"
    return None, "nobody"
