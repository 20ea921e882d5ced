"""BFCL's multi-turn tool use: requests of a user, done by calling the functions of simulated services."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.bfcl.services import (
    ENV,
    MODULES,
    PACKAGE,
    Call,
    Category,
    Conversation,
    Result,
    Services,
    play_answers,
    read_calls,
    read_conversations,
    read_source,
)
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import draw_uniform
from groupwise.envs.kit.info import write_call, write_checks
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import SPLITS, TaskSets, check_env, choose_split, split_of_content
from groupwise.envs.kit.words import collect_vocabulary, split_words
from groupwise.parts.part import Part
from groupwise.system.errors import RecordError
from groupwise.system.text import escape_surrogates

CHECKER = f"{PACKAGE}.eval_checker.multi_turn_eval.multi_turn_checker"
END_OF_TURN = "[]"
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
NOT_UNDERSTOOD = "Nothing happens. Call functions, or end the turn with []."
NO_CALL = "no function was called"
SENTENCES = f"User: Result: Functions: Done. Not done. {NOT_UNDERSTOOD} {MORE_FUNCTIONS} (cut off)"
FunctionDetail = Literal["names", "signatures", "documents"]


class Bfcl(Part, slot="env"):
    """The multi-turn tasks of the Berkeley Function Calling Leaderboard (Patil et al. 2025, ICML), without a user
    model.

    An action is a call, `cd(folder='temp')`, or a list of calls, `[cd(folder='temp'), ls()]`. The results are shown,
    one per line. `[]` ends the turn: the package's own state and response checks run, and the user makes the next
    request. A task is a success if every turn passes. A fork is a deep copy of the services. The expert gives the
    stored answers, call by call. Extra reading calls do not disturb it; after any other change it has no action.

    Choices: a failed turn ends the rollout. A response that is not a call is invalid; in BFCL's own loop it ends the
    turn (`text_ends_turn`). A call of an unknown function, or with wrong arguments, is invalid too. Arguments are plain
    values; nothing that the policy writes is evaluated. Tasks with the same number tell one story in all four
    categories, so the number decides the split. The `state_key` is the turn, the state of the services and the results
    seen, in any order. The step info names arguments by the function's parameters.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"calls", "num_calls", "gold_calls", "checks", "turn", "num_turns", "turns_passed"}
    )
    categories: Annotated[tuple[Category, ...], Field(min_length=1)] = ("base",)
    """Which of BFCL's four categories: plain; a function or a value that comes late; very long results."""
    functions: FunctionDetail = "signatures"
    """What the goal says of the functions: names, parameters with their defaults, or the package's whole documents."""
    repeat_request: bool = True
    """Whether each text begins with the current request, so that a short history still shows it."""
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
    """Steps before a rollout is truncated; the stored answers need one per call and one per turn."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_task_sets(self.categories), split)

    def open(self, task: Task) -> BfclEnvironment:
        check_env(task, ENV)
        conversation = read_conversations(task.payload["category"]).get(task.payload["task"])
        if conversation is None or conversation.digest != task.payload["content"]:
            raise RecordError(
                f"task {task.id} is {task.payload['task']} of another bfcl-eval version; install the version of "
                "its task set, or make the task set again"
            )
        return BfclEnvironment(task, self, conversation)

    def vocabulary(self) -> tuple[str, ...]:
        return _collect_words(self.categories, f"{self.instruction()} {SENTENCES}")

    def instruction(self) -> str:
        return (
            "Do what the user asks by calling functions, one or a list: [name(argument=value)]. Say [] when it is done."
        )


class BfclEnvironment(SteppedEnvironment):
    """One rollout of a task."""

    def __init__(self, task: Task, part: Bfcl, conversation: Conversation) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._conversation = part, conversation
        self._truth = play_answers(task.payload["category"], conversation.id)
        self._services = Services(conversation)
        self._digest = self._truth[0].digests[0]
        self._goal = f"Functions: {describe_functions(conversation.functions, part.functions)}"
        self._turn, self._followed, self._has_acted = 0, 0, False
        self._results: list[str] = []
        self._gold_calls = self._tell_calls(self._truth[0].calls)
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        self._progress.step()
        if self._part.match_words:
            action = _index_answers(self._conversation.answers).get(tuple(split_words(action)), action)
        calls = read_calls(action)
        if calls == () or (calls is None and self._part.text_ends_turn):
            return self._end_turn()
        if calls is None:
            info = self._tell_info((), write_checks(read=False))
            return self._progress.outcome(self._observe(NOT_UNDERSTOOD), accepted=False, info=info)
        results = [self._call(call) for call in calls]
        seen = self._observe("\n".join(f"Result: {self._shorten(result.text)}" for result in results))
        accepted = all(result.fits for result in results)
        info = self._tell_info(calls, write_checks(read=True, fits=accepted))
        return self._progress.outcome(seen, accepted=accepted, info=info)

    def _tell_info(self, calls: Iterable[Call], checks: Mapping[str, bool]) -> dict[str, Any]:
        written = self._tell_calls(calls)
        return {
            "calls": written,
            "num_calls": len(written),
            "gold_calls": self._gold_calls,
            "turn": self._turn,
            "num_turns": len(self._truth),
            "checks": checks,
        }

    def _tell_calls(self, calls: Iterable[Call]) -> list[dict[str, Any]]:
        """Calls with their arguments by name; those that fit no parameter, by their place from 0."""
        return [
            write_call(
                call.name,
                {**{str(place): value for place, value in enumerate(call.values)}, **call.named}
                if (bound := self._services.normalise_call(call)[1]) is None
                else bound,
            )
            for call in calls
        ]

    def fork(self) -> Self:
        twin = super().fork()
        twin._services, twin._results = self._services.fork(), [*self._results]
        return twin

    def expert(self) -> str | None:
        if self._progress.ended or not self._is_on_the_way():
            return None
        answers = self._conversation.answers[self._turn]
        return answers[self._followed] if self._followed < len(answers) else END_OF_TURN

    def _call(self, call: Call) -> Result:
        turn, is_next = self._truth[self._turn], False
        if self._followed < len(turn.calls) and self._is_on_the_way():
            is_next = self._services.normalise_call(call) == self._services.normalise_call(turn.calls[self._followed])
        result = self._services.call(call)
        self._has_acted = True
        self._results.append(result.text)
        self._followed += is_next
        self._digest = self._services.digest()
        return result

    def _is_on_the_way(self) -> bool:
        return self._digest == self._truth[self._turn].digests[self._followed]

    def _end_turn(self) -> Outcome:
        wrong = self._check()
        info = self._tell_info((), write_checks(read=True, fits=True, right=not wrong))
        info["turns_passed"] = self._turn + (not wrong)
        if wrong:
            return self._progress.outcome(self._observe("Not done."), success=False, note=wrong, info=info)
        reward = self._part.turn_reward
        if self._turn + 1 == len(self._truth):
            reward += self._part.success_reward
            return self._progress.outcome(self._observe("Done."), success=True, reward=reward, info=info)
        self._turn, self._followed, self._has_acted = self._turn + 1, 0, False
        self._gold_calls = self._tell_calls(self._truth[self._turn].calls)
        return self._progress.outcome(self._observe(), reward=reward, info=info)

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

    def _shorten(self, text: str) -> str:
        limit = self._part.result_characters
        return escape_surrogates(text if len(text) <= limit else f"{text[:limit]} (cut off)")

    def _observe(self, results: str = "") -> Observation:
        request = self._conversation.requests[self._turn]
        late = self._conversation.late.get(self._turn, ())
        if late:
            more = f"{MORE_FUNCTIONS} Functions: {describe_functions(late, self._part.functions)}"
            request = f"{request} {more}".strip()
        text = f"User: {request}\n{results}".strip() if self._part.repeat_request or not results else results
        seen = json.dumps(sorted(set(self._results)))
        key = f"turn {self._turn}; services {self._digest}; seen {sha256(seen.encode()).hexdigest()[:16]}"
        return Observation(text=text, state_key=key, goal=self._goal)


def describe_functions(documents: Iterable[Mapping[str, Any]], how: FunctionDetail) -> str:
    """The functions in words.

    >>> cd = {"name": "cd", "parameters": {"properties": {"folder": {}}, "required": ["folder"]}}
    >>> describe_functions([cd], "signatures")
    'cd(folder)'
    """
    if how == "documents":
        return "\n".join(json.dumps(document) for document in documents)
    if how == "names":
        return ", ".join(str(document["name"]) for document in documents)
    signatures = []
    for document in documents:
        known, required = document["parameters"]["properties"], document["parameters"]["required"]
        # The documents write the default None as a text.
        named = [name if name in required else f"{name}={known[name].get('default')}" for name in known]
        signatures.append(f"{document['name']}({', '.join(named)})")
    return ", ".join(signatures)


@cache
def _build_task_sets(categories: tuple[Category, ...]) -> TaskSets:
    by_number = {
        category: {conversation.number: conversation for conversation in read_conversations(category).values()}
        for category in categories
    }
    numbers = sorted(
        {number for numbered in by_number.values() for number in numbered}, key=lambda number: draw_uniform(ENV, number)
    )
    task_sets: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for number in numbers:
        split = split_of_content({"env": ENV, "number": number})
        for category in categories:
            if number in by_number[category]:
                told = by_number[category][number]
                payload = {"task": told.id, "category": category, "content": told.digest}
                task_sets[split].append(Task.create(env=ENV, split=split, payload=payload, tags=(category,)))
    return {split: tuple(tasks) for split, tasks in task_sets.items()}


@cache
def _collect_words(categories: tuple[Category, ...], always: str) -> tuple[str, ...]:
    texts = []
    for category in categories:
        for conversation in read_conversations(category).values():
            texts += [*conversation.requests, json.dumps(dict(conversation.scenario))]
            texts += [json.dumps(conversation.functions), json.dumps(list(conversation.late.values()))]
            texts += [text for turn in conversation.answers for text in turn]
            texts += [text for turn in play_answers(category, conversation.id) for text in turn.results]
    code = "\n".join(read_source(name) for name in MODULES.values())  # for what the services say
    return collect_vocabulary(texts, f"{always} {code}")


@lru_cache(maxsize=256)
def _index_answers(answers: tuple[tuple[str, ...], ...]) -> dict[tuple[str, ...], str]:
    return {tuple(split_words(answer)): answer for turn in reversed(answers) for answer in reversed(turn)}
