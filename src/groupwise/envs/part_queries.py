"""Checked queries to an environment part: its tasks, words, instruction and step limit.

A part may come from outside groupwise. If it raises (also `sys.exit`) or returns a wrong value, the run stops with one
error message that names the part and the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupwise.data.records import Task
from groupwise.envs.environment import EnvironmentPart, HasVocabulary
from groupwise.envs.plain_records import is_whole, show_value
from groupwise.system.errors import ConfigError, GroupwiseError
from groupwise.system.quoted_errors import quote_error

_NEEDED: Mapping[str, tuple[type[Any], str]] = {
    "id": (str, "text"),
    "env": (str, "text"),
    "split": (str, "text"),
    "seed": (int, "an integer"),
    "payload": (Mapping, "a mapping of JSON values"),
    "tags": (tuple, "a tuple of texts"),
}


def ask_task_set(env: EnvironmentPart, split: str) -> tuple[Task, ...]:
    question = f"task_set({split!r})"
    tasks = _ask(env, question, lambda: env.task_set(split))
    if not isinstance(tasks, list | tuple):
        raise _wrong(env, question, tasks, "a tuple of Tasks")
    for task in tasks:
        if not isinstance(task, Task):
            raise _wrong(env, question, task, "Tasks alone")
        # Most tasks pass here. A task set can have thousands, and the checks by field take three times as long.
        if type(task.seed) is int and type(task.payload) is dict and type(task.tags) is tuple:
            texts = (task.id, task.env, task.split, *task.tags)
            if set(map(type, texts)) == {str} and is_whole("".join(texts)):
                continue
        for field, (kind, needed) in _NEEDED.items():
            value = getattr(task, field)
            texts = task.tags if field == "tags" else (value,) if kind is str else ()
            if not isinstance(value, kind) or not all(map(_is_text, texts)):
                raise _wrong(env, question, value, needed, field=field)
    return tuple(tasks)


def ask_vocabulary(env: EnvironmentPart) -> tuple[str, ...]:
    check_vocabulary(env)
    assert isinstance(env, HasVocabulary)
    words = _ask(env, "vocabulary()", env.vocabulary)
    if not isinstance(words, list | tuple):
        raise _wrong(env, "vocabulary()", words, "a tuple of words")
    for word in words:
        if not _is_text(word):
            raise _wrong(env, "vocabulary()", word, "words that are text")
    return tuple(words)


def check_vocabulary(env: EnvironmentPart) -> None:
    if not isinstance(env, HasVocabulary):
        name = type(env).__name__
        raise ConfigError(
            f"env: {name} has no vocabulary(), and the model is made from scratch with a tokenizer of the "
            f'environment\'s words; add vocabulary() to {name}, or set model.kind = "pretrained"'
        )


def ask_instruction(env: EnvironmentPart) -> str:
    instruction = _ask(env, "instruction()", env.instruction)
    if not _is_text(instruction):
        raise _wrong(env, "instruction()", instruction, "text")
    return str(instruction)


def ask_max_steps(env: EnvironmentPart) -> int:
    max_steps = _ask(env, "max_steps", lambda: env.max_steps)
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise _wrong(env, "max_steps", max_steps, "an integer of at least 1")
    return max_steps


def _ask(env: EnvironmentPart, question: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (KeyboardInterrupt, GroupwiseError):
        raise
    except BaseException as error:
        name = type(env).__name__
        raise ConfigError(f"env: {name}.{question} raised {quote_error(error)}; fix the environment") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_whole(value)


def _wrong(env: EnvironmentPart, question: str, value: object, needed: str, *, field: str = "") -> ConfigError:
    what = f"has a task whose {field} is" if field else "gave"
    return ConfigError(f"env: {type(env).__name__}.{question} {what} {show_value(value)}; give {needed}")
