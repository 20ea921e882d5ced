"""Worlds that run elsewhere, behind an OpenEnv server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from groupwise.core.errors import EnvironmentFault
from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.core.text.secrets import resolve_references
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.panel import check_env, choose_split
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.words import vocabulary_of
from groupwise.envs.openenv.session import RefusedAction, Session, socket_url

ENV = "openenv"
FIRST_SEED = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""The seeds of a split count up from here."""
MOST_TASKS = 1_000_000
NOTHING = "Nothing happens."


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
    num_train: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 1000
    """Tasks in the training panel."""
    num_validation: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 100
    """Tasks in the validation panel."""
    num_test: Annotated[int, Field(ge=1, le=MOST_TASKS)] = 200
    """Tasks in the test panel."""
    max_steps: Annotated[int, Field(ge=1)] = 50
    """Steps before an attempt is truncated."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds within which the server must answer."""

    def panel(self, split: str) -> tuple[Task, ...]:
        counts = {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}
        choose_split(dict.fromkeys(counts, ()), split)
        payload = {"world": self.world, "reset": self.reset_rest}
        seeds = range(FIRST_SEED[split], FIRST_SEED[split] + counts[split])
        return tuple(Task.create(env=ENV, split=split, seed=seed, payload=payload) for seed in seeds)

    def open(self, task: Task) -> OpenenvEnvironment:
        check_env(task, ENV)
        socket_url(resolve_references(self.url))
        return OpenenvEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary_of((self.instruction(), NOTHING, *self.actions, *self.words))

    def instruction(self) -> str:
        return self.about


class OpenenvEnvironment:
    """One attempt in a world on a server."""

    def __init__(self, task: Task, part: Openenv) -> None:
        self._task, self._part = task, part
        self._progress = Progress(task, max_steps=part.max_steps)
        self._actions: list[str] = []
        self._total = 0.0
        self._session = Session(part.url, timeout=part.timeout)
        first = self._session.ask("reset", {"seed": task.seed, **resolve_references(task.payload["reset"])})
        goal = _found(first, part.goal_field)
        self._goal = "" if goal is None else _text(goal)
        self._observation = self._observe(first)

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        listed = self._observation.admissible
        if listed is not None and action not in listed:
            return self._nothing_happens()
        try:
            shown = self._session.ask("step", self._message(action))
        except RefusedAction:
            return self._nothing_happens()
        self._actions.append(action)
        reward = float(shown.get("reward") or 0.0)
        self._total += reward
        self._observation = self._observe(shown)
        success = self._succeeded(shown, reward) if shown.get("done") else None
        accepted = _found(shown, self._part.accepted_field)
        return self._ended(
            self._progress.outcome(
                self._observation, success=success, reward=reward, accepted=accepted is None or bool(accepted)
            )
        )

    def fork(self) -> OpenenvEnvironment:
        twin = OpenenvEnvironment(self._task, self._part)
        if self._progress.ended:  # nothing can happen in it any more
            twin._session.close()
        else:
            shown = [twin._session.ask("step", twin._message(action)) for action in self._actions]
            twin._observation = twin._observe(shown[-1]) if shown else twin._observation
            if twin._observation.state_key != self._observation.state_key:
                raise EnvironmentFault(
                    f"openenv {self._part.url}: {len(shown)} actions led elsewhere when they were repeated; a world "
                    "that does not follow from its seed cannot be forked"
                )
        twin._actions, twin._total = self._actions.copy(), self._total
        twin._observation, twin._progress = self._observation, self._progress.fork()
        return twin

    def _message(self, action: str) -> dict[str, Any]:
        return {**resolve_references(self._part.action_rest), self._part.action_field: action}

    def _nothing_happens(self) -> Outcome:
        seen = self._observation
        self._observation = Observation(
            text=f"{NOTHING} {seen.text.removeprefix(f'{NOTHING} ')}",
            state_key=seen.state_key,
            admissible=seen.admissible,
            goal=seen.goal,
        )
        return self._ended(self._progress.outcome(self._observation, accepted=False))

    def _ended(self, outcome: Outcome) -> Outcome:
        """The outcome; the place on the server is free as soon as the attempt has ended."""
        if outcome.ended:
            self._session.close()
        return outcome

    def _succeeded(self, shown: Mapping[str, Any], reward: float) -> bool:
        told, threshold = _found(shown, self._part.success_field), self._part.success_return
        if told is not None:
            return bool(told)
        return reward > 0 if threshold is None else self._total >= threshold

    def _observe(self, shown: Mapping[str, Any]) -> Observation:
        part = self._part
        text = _found(shown, part.text_field) if part.text_field else shown.get("observation")
        if text is None:
            known = ", ".join(sorted(shown.get("observation") or {})) or "none"
            raise EnvironmentFault(f"openenv {part.url}: there is no field {part.text_field!r}; its fields: {known}")
        key = _found(shown, part.key_field) if part.key_field else text
        listed = _found(shown, part.admissible_field)
        admissible = tuple(map(str, listed)) if isinstance(listed, list) else part.actions or None
        key = None if key is None else _text(key)
        return Observation(text=_text(text), state_key=key, admissible=admissible, goal=self._goal)


def _found(shown: Mapping[str, Any], field: str) -> Any:
    """A field of an observation, or of its metadata; None where it is in neither, or none is asked for."""
    for place in (shown.get("observation"), shown.get("metadata")):
        if field and isinstance(place, dict) and field in place:
            return place[field]
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
