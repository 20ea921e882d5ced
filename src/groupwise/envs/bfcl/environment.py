"""BFCL's multi-turn tool use: requests of a user, done by calling the functions of simulated services."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import Task
from groupwise.core.text.safe_text import escape_surrogates
from groupwise.envs.bfcl.calls import Call, read_calls
from groupwise.envs.bfcl.files import ENV, MODULES, PACKAGE, Category, Conversation, conversations, source
from groupwise.envs.bfcl.services import Services, answered
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.keyed_draws import uniform
from groupwise.envs.kit.panel import SPLITS, Panels, check_disjoint, check_env, choose_split, content_split
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.question import collected_vocabulary
from groupwise.envs.kit.words import words

CHECKER = f"{PACKAGE}.eval_checker.multi_turn_eval.multi_turn_checker"
END_OF_TURN = "[]"
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
NOT_UNDERSTOOD = "Nothing happens. Call functions, or end the turn with []."
NO_CALL = "no function was called"
SENTENCES = f"User: Result: Functions: Done. Not done. {NOT_UNDERSTOOD} {MORE_FUNCTIONS} (cut off)"
Shown = Literal["names", "signatures", "documents"]


class Bfcl(Part, slot="env"):
    """The multi-turn tasks of the Berkeley Function Calling Leaderboard (Patil et al. 2025, ICML), without a model.

    An action is a call, `cd(folder='temp')`, or a list of calls, `[cd(folder='temp'), ls()]`; the results are shown,
    one a line. `[]` ends the turn: it is checked with the package's own state and response checks, and the user says
    the next request. A task is a success if every turn passes. A fork is a deep copy of the services. The expert says
    the answers that come with the task, call by call; reading something beside them does no harm, but once something
    else was changed it has nothing to say.

    Choices: a turn that fails ends the attempt, since the whole has failed. A response that is not a call is
    refused; in BFCL's own loop it ends the turn (`text_ends_turn`). So is a call of an unknown function, or with
    arguments that do not fit. Arguments are plain values: nothing that the policy writes is evaluated. Tasks of the
    same number tell one story in all four categories, so the number decides the split. The `state_key` is the turn,
    the state of the services and the results that were seen, in any order.
    """

    categories: Annotated[tuple[Category, ...], Field(min_length=1)] = ("base",)
    """Which of BFCL's four sets: plain; a function or a value that comes late; very long results."""
    functions: Shown = "signatures"
    """What the goal says of the functions: names, parameters with their defaults, or the package's whole documents."""
    repeat_request: bool = True
    """Whether each text begins with the present request, so that it stays in sight of a short memory."""
    result_characters: Annotated[int, Field(ge=1)] = 20_000
    """Characters of a result that are shown; the checks see all of it."""
    text_ends_turn: bool = False
    """Whether a response that is not a call ends the turn, as in BFCL's own loop."""
    match_words: bool = False
    """Whether a response with the words of an answer, in any case and spacing, counts as that answer: for tokenizers
    that keep neither."""
    success_reward: float = 1.0
    """Reward of the step that ends the last turn, if all passed."""
    turn_reward: float = 0.0
    """Reward of a step that ends a turn which passes."""
    max_steps: Annotated[int, Field(ge=1)] = 40
    """Steps before an attempt is truncated; the answers take one a call and one a turn."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_panels(self.categories), split)

    def open(self, task: Task) -> BfclEnvironment:
        check_env(task, ENV)
        found = conversations(task.payload["category"]).get(task.payload["task"])
        if found is None or found.digest != task.payload["content"]:
            raise RecordError(
                f"task {task.id} is {task.payload['task']} of another bfcl-eval than the installed one; install the "
                "one that its panel was made with, or make the panel anew"
            )
        return BfclEnvironment(task, self, found)

    def vocabulary(self) -> tuple[str, ...]:
        return _vocabulary(self.categories, f"{self.instruction()} {SENTENCES}")

    def instruction(self) -> str:
        return (
            "Do what the user asks by calling functions, one or a list: [name(argument=value)]. Say [] when it is done."
        )


class BfclEnvironment:
    """One attempt at a task."""

    def __init__(self, task: Task, part: Bfcl, conversation: Conversation) -> None:
        self._part, self._conversation = part, conversation
        self._truth = answered(task.payload["category"], conversation.id)
        self._progress = Progress(task, max_steps=part.max_steps)
        self._services = Services(conversation)
        self._digest = self._truth[0].digests[0]
        self._goal = f"Functions: {shown_functions(conversation.functions, part.functions)}"
        self._turn, self._followed, self._has_acted = 0, 0, False
        self._results: list[str] = []
        self._observation = self._observe()

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if self._part.match_words:
            action = _by_words(self._conversation.answers).get(tuple(words(action)), action)
        calls = read_calls(action)
        if calls == () or (calls is None and self._part.text_ends_turn):
            return self._end_turn()
        if calls is None:
            self._observation = self._observe(NOT_UNDERSTOOD)
            return self._progress.outcome(self._observation, accepted=False)
        results = [self._call(call) for call in calls]
        self._observation = self._observe("\n".join(f"Result: {self._cut(text)}" for text, _ in results))
        return self._progress.outcome(self._observation, accepted=all(fits for _, fits in results))

    def fork(self) -> BfclEnvironment:
        twin = copy(self)
        twin._progress, twin._services, twin._results = self._progress.fork(), self._services.fork(), [*self._results]
        return twin

    def expert(self) -> str | None:
        if self._progress.ended or not self._is_on_the_way():
            return None
        answers = self._conversation.answers[self._turn]
        return answers[self._followed] if self._followed < len(answers) else END_OF_TURN

    def _call(self, call: Call) -> tuple[str, bool]:
        turn, is_next = self._truth[self._turn], False
        if self._followed < len(turn.calls) and self._is_on_the_way():
            is_next = self._services.meant(call) == self._services.meant(turn.calls[self._followed])
        result = self._services.call(call)
        self._has_acted = True
        self._results.append(result.text)
        self._followed += is_next
        self._digest = self._services.digest()
        return result.text, result.fits

    def _is_on_the_way(self) -> bool:
        """Whether the services are where the answers lead to."""
        return self._digest == self._truth[self._turn].digests[self._followed]

    def _end_turn(self) -> Outcome:
        wrong = self._check()
        if wrong:
            self._observation = self._observe("Not done.")
            return self._progress.outcome(self._observation, success=False, note=wrong)
        reward = self._part.turn_reward
        if self._turn + 1 == len(self._truth):
            self._observation = self._observe("Done.")
            return self._progress.outcome(self._observation, success=True, reward=reward + self._part.success_reward)
        self._turn, self._followed, self._has_acted = self._turn + 1, 0, False
        self._observation = self._observe()
        return self._progress.outcome(self._observation, reward=reward)

    def _check(self) -> str:
        """What BFCL's own checks find wrong with the turn; empty = it passes."""
        turn = self._truth[self._turn]
        if not turn.calls:  # nothing could be done: BFCL passes whatever was
            return ""
        if not self._has_acted:
            return NO_CALL
        checker = import_module(CHECKER)
        for verdict in (
            checker.state_checker(self._services.instances, dict(turn.instances)),
            checker.response_checker(list(self._results), list(turn.results), self._turn),
        ):
            if not verdict["valid"]:
                return str(verdict["error_message"])
        return ""

    def _cut(self, text: str) -> str:
        most = self._part.result_characters
        return escape_surrogates(text if len(text) <= most else f"{text[:most]} (cut off)")

    def _observe(self, told: str = "") -> Observation:
        request = self._conversation.requests[self._turn]
        late = self._conversation.late.get(self._turn, ())
        if late:
            more = f"{MORE_FUNCTIONS} Functions: {shown_functions(late, self._part.functions)}"
            request = f"{request} {more}".strip()
        text = f"User: {request}\n{told}".strip() if self._part.repeat_request or not told else told
        seen = json.dumps(sorted(set(self._results)))
        key = f"turn {self._turn}; services {self._digest}; seen {_short(seen)}"
        return Observation(text=text, state_key=key, goal=self._goal)


def shown_functions(documents: Iterable[Mapping[str, Any]], how: Shown) -> str:
    """The functions in words.

    >>> cd = {"name": "cd", "parameters": {"properties": {"folder": {}}, "required": ["folder"]}}
    >>> shown_functions([cd], "signatures")
    'cd(folder)'
    """
    if how == "documents":
        return "\n".join(json.dumps(each) for each in documents)
    if how == "names":
        return ", ".join(str(each["name"]) for each in documents)
    return ", ".join(_signature(each) for each in documents)


def _signature(document: Mapping[str, Any]) -> str:
    known, required = document["parameters"]["properties"], document["parameters"]["required"]
    # The documents write the default None as a text.
    defaults = {name: str(each.get("default")) for name, each in known.items()}
    told = [name if name in required else f"{name}={defaults[name]}" for name in known]
    return f"{document['name']}({', '.join(told)})"


@cache
def _panels(categories: tuple[Category, ...]) -> Panels:
    found = {category: {each.number: each for each in conversations(category).values()} for category in categories}
    numbers = sorted({number for each in found.values() for number in each}, key=lambda one: uniform(ENV, one))
    panels: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for number in numbers:
        split = content_split({"env": ENV, "number": number})
        for category in categories:
            if number in found[category]:
                panels[split].append(_task(split, category, found[category][number]))
    check_disjoint(panels)
    return {split: tuple(tasks) for split, tasks in panels.items()}


def _task(split: str, category: Category, conversation: Conversation) -> Task:
    payload = {"task": conversation.id, "category": category, "content": conversation.digest}
    return Task.create(env=ENV, split=split, payload=payload, tags=(category,))


@cache
def _vocabulary(categories: tuple[Category, ...], always: str) -> tuple[str, ...]:
    texts = []
    for category in categories:
        for each in conversations(category).values():
            texts += [*each.requests, json.dumps(dict(each.scenario)), json.dumps(each.functions)]
            texts += [json.dumps(list(each.late.values()))]
            texts += [text for turn in each.answers for text in turn]
            texts += [text for turn in answered(category, each.id) for text in turn.results]
    code = "\n".join(source(name) for name in MODULES.values())  # for what the services say
    return collected_vocabulary(texts, f"{always} {code}")


@lru_cache(maxsize=256)
def _by_words(answers: tuple[tuple[str, ...], ...]) -> dict[tuple[str, ...], str]:
    """The first answer with each sequence of words."""
    return {tuple(words(answer)): answer for turn in reversed(answers) for answer in reversed(turn)}


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
