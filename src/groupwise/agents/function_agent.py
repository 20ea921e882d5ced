"""Agents that are Python functions, and the tasks that they get."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import field_validator

from groupwise.agents.agent_runner import AgentRunner
from groupwise.agents.chat import EarlierReplies
from groupwise.agents.sessions import Ended, Session
from groupwise.agents.state_rules import ExchangeStateRule
from groupwise.data.records import Task
from groupwise.envs.environment import Environment, EnvironmentPart
from groupwise.envs.kit.row_files import read_rows
from groupwise.envs.kit.task_set import SPLITS, check_split, split_of_content
from groupwise.envs.kit.words import collect_vocabulary
from groupwise.parts.outside import FunctionPlace, is_function_place, load_function, may_run
from groupwise.parts.part import Count, Finite, Part, Positive, Slot
from groupwise.parts.path_settings import PathText
from groupwise.parts.slots import StateRulePart
from groupwise.system.errors import ConfigError, EnvironmentFault, FileError
from groupwise.system.json_text import is_plain
from groupwise.system.text import describe_value, quote_line

Function = TypeVar("Function", bound=Callable[..., Any])
IS_AGENT = "groupwise_agent"
"""Attribute of the functions that `agent` marked."""


def agent(function: Function) -> Function:
    """Mark a function `(task, session)`, sync or async, as an agent.

    It gets the fields of its task as a mapping, and its `Session`. It returns a reward, a dict with `reward`, perhaps
    `success` and further scores, or an `Ended`.
    """
    setattr(function, IS_AGENT, True)
    return function


class TaskFile(Part):
    """Tasks from a file, one per row."""

    kind: Literal["jsonl"] = "jsonl"
    """The form of the file: JSON lines."""
    path: PathText
    """The file."""
    id: str = ""
    """Column with a unique id per row; empty = the content is the id."""
    split: str = ""
    """Column with train, validation or test; empty = rows are divided by their content."""
    tag: str = ""
    """Column with a category; evaluations report each one. Empty = none."""

    def read(self) -> dict[str, tuple[Task, ...]]:
        """The tasks of each split."""
        return _read_task_file(self)


@cache
def _read_task_file(file: TaskFile) -> dict[str, tuple[Task, ...]]:
    if not Path(file.path).is_file():
        raise ConfigError(f"agent.tasks.path: there is no file {file.path!r}; give a file of JSON lines")
    rows = [*read_rows(Path(file.path), row_name="a task")]
    for where, row in rows:
        if not is_plain(dict(row)):
            raise FileError(f"{where}: a value is no plain JSON, such as NaN; fix the row")
        for column in filter(None, (file.id, file.split, file.tag)):
            if column not in row:
                there = ", ".join(map(repr, row)) or "none"
                raise FileError(f"{where}: there is no column {column!r}; its columns are {there}")
        if file.split and row[file.split] not in SPLITS:
            found = quote_line(repr(row[file.split]), limit=60)
            raise FileError(f"{where}: the column {file.split!r} is {found}; write one of {', '.join(SPLITS)}")
    tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
    places = dict[str, str]()
    for where, row in rows:
        split = str(row[file.split]) if file.split else split_of_content(row)
        tags = (str(row[file.tag]),) if file.tag else ()
        task = Task.create(env="agent", split=split, payload=dict(row), tags=tags)
        if file.id:
            task = replace(task, id=str(row[file.id]))
        if task.id in places:
            raise FileError(
                f"{where}: the id {quote_line(task.id)!r} is also that of {places[task.id]}; ids are unique"
            )
        places[task.id] = where
        tasks[split].append(task)
    return {split: tuple(listed) for split, listed in tasks.items()}


class AgentPart(EnvironmentPart, Protocol):
    """Fills the slot `agent`: the tasks, and how agents run. A run reads its tasks like those of an environment."""

    earlier_replies: EarlierReplies

    def open_runner(self) -> AgentRunner:
        """The runner of its agents."""


AgentSlot = Annotated[AgentPart, Slot("agent")]
"""A field of a run file that an agent fills."""


class FunctionAgent(Part, slot="agent"):
    """Your agent is a Python function `(task, session)`, sync or async, marked with `@groupwise.agent`.

    It runs in this process: a sync one in a thread of its own, async ones in one event loop. All rollouts of an update
    run at the same time. A function that hangs cannot be ended: only its rollout ends, and its thread stays.
    """

    path: FunctionPlace
    """Where the function is: "file.py:name", or "package.module:name"."""
    tasks: TaskFile
    """Where the tasks are."""
    timeout: Positive = 600.0
    """Seconds that an agent may take until its next call or its end. The time of the model does not count."""
    max_calls: Count = 50
    """Calls of a rollout; the next one truncates it."""
    solved_at: Finite = 1.0
    """The smallest reward that counts as solved, if the agent does not say it."""
    earlier_replies: EarlierReplies = "keep"
    """How our own earlier replies come into prompts. keep = as the ids that were sampled, if the agent sends them back
    unchanged. render = as the chat template writes them."""
    failures: tuple[str, ...] = ()
    """How the qualified names of exceptions begin that are the model's own failures, such as "my_agent.errors.". They
    count as unsolved; other exceptions are errors, which leave the statistics."""
    state: StateRulePart = ExchangeStateRule()
    """The state of calls for which neither the agent nor a tool says it."""
    words: str = ""
    """Words of the prompts and replies beside those of the tasks, for a model that is made from scratch."""

    @field_validator("path")
    @classmethod
    def _is_an_agent(cls, path: str) -> str:
        if not is_function_place(path):
            raise ValueError(f"{path!r} is not the place of a function; write file.py:name or package.module:name")
        if may_run() and not hasattr(load_function("agent", path), IS_AGENT):  # reading a run calls nothing
            raise ValueError(f"the function {path!r} is not marked as an agent; write @groupwise.agent above it")
        return path

    @property
    def max_steps(self) -> int:
        return self.max_calls

    def task_set(self, split: str) -> tuple[Task, ...]:
        check_split(split)
        if not may_run():
            raise ConfigError(f"agent.tasks: {self.tasks.path!r} is not read without --trust")
        return self.tasks.read()[split]

    def open(self, task: Task) -> Environment:
        raise EnvironmentFault("an agent is no environment that can be opened and asked; groupwise train runs it")

    def instruction(self) -> str:
        return ""

    def vocabulary(self) -> tuple[str, ...]:
        texts = list[str]()
        for tasks in self.tasks.read().values():
            texts += [value for task in tasks for value in task.payload.values() if isinstance(value, str)]
        if not self.words:
            raise ConfigError(
                "agent.words is empty, and the model is made from scratch with a tokenizer of the agent's words; write "
                'the words of its prompts and replies, or set model.kind = "pretrained"'
            )
        return collect_vocabulary(texts, self.words)

    def open_runner(self) -> AgentRunner:
        function = load_function("agent", self.path)

        def start(session: Session, done: Callable[[Ended | BaseException], None]) -> None:
            task = dict(session.task.payload)

            async def run_async() -> None:
                try:
                    done(read_end(await function(task, session)))
                except BaseException as error:
                    done(error)

            def run() -> None:
                try:
                    done(read_end(function(task, session)))
                except BaseException as error:
                    done(error)

            if inspect.iscoroutinefunction(function):
                asyncio.run_coroutine_threadsafe(run_async(), _open_event_loop())
            else:
                Thread(target=run, name=f"agent {session.number}", daemon=True).start()

        return AgentRunner(
            start,
            timeout=self.timeout,
            max_calls=self.max_calls,
            solved_at=self.solved_at,
            failures=self.failures,
            state=self.state,
        )


@cache
def _open_event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of all async agents, in a thread of its own."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="async agents", daemon=True).start()
    return loop


def read_end(result: object) -> Ended:
    """The end of a rollout from what an agent returned."""
    if isinstance(result, Ended):
        return result
    if isinstance(result, Mapping):
        scores = dict(result)
        if "reward" not in scores:
            raise EnvironmentFault(
                f"the agent returned a dict with {', '.join(map(repr, scores)) or 'nothing'}; add 'reward'"
            )
        known = {name: scores.pop(name) for name in ("success", "truncated", "note") if name in scores}
        return Ended(reward=float(scores.pop("reward")), scores=scores, **known)
    if isinstance(result, bool | int | float):
        return Ended(reward=float(result))
    raise EnvironmentFault(
        f"the agent returned {describe_value(result)}; return a reward, a dict with a reward, or an Ended"
    )
