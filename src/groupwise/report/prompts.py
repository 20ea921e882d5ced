"""The recorded prompt of a step, with the origin of each token.

The journal has the prompt's ids, and the observation and response of each step. These texts are searched in the
prompt. From its end: the current observation, then the past steps that the history shows. From its beginning: the
system prompt, the instruction and the goal. Everything else is template, also lists of possible actions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from groupwise.data.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.kit.task_set import SPLITS
from groupwise.envs.mixture import find_environment
from groupwise.envs.part_queries import ask_instruction
from groupwise.parts.part import Slot
from groupwise.rollout.environment_runner import Fault, call_guarded
from groupwise.rollout.origins import TokenOrigin
from groupwise.store.run_folder import TOKENIZER, RunPaths
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.secrets import redact
from groupwise.system.text import Decoder, cut_text
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class RecordedPrompt:
    """A recorded prompt and its response, with the text of each token."""

    prompt_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    origins: tuple[TokenOrigin, ...]
    response_ids: tuple[int, ...]
    response_texts: tuple[str, ...]
    cut: int = 0
    """How many tokens the limit on prompts removed."""


def read_prompt(folder: RunFolder, *, number: int, task: str, rollout: int, step: int) -> RecordedPrompt:
    rows = next(
        record["steps"]
        for record in folder.journal.trajectories(number)
        if (record["task"], record["rollout"]) == (task, rollout)
    )
    where = f"{folder.path}, update {number}, task {task!r}, rollout {rollout}"
    place = next((place for place, row in enumerate(rows) if row["step"] == step), None)
    if place is None:
        raise RecordError(f"{where}: there is no step {step}; give one from 0 to {rows[-1]['step']}")
    row, texts = rows[place], TokenTexts(folder.path)
    ids, response = tuple(row.get("prompt_ids") or ()), tuple(row.get("response_ids") or ())
    if not ids:
        raise RecordError(f"{where}: step {step} has no recorded prompt; choose a sampled step")
    prompt_texts, response_texts = texts.cut(ids), texts.cut(response)
    if prompt_texts is None or response_texts is None:
        raise RecordError(
            f"{where}: the prompt of step {step} cannot be shown: the tokenizer of the run's last checkpoint cannot be "
            "read, or the text contains a secret; check tokenizer.json, and install 'groupwise[train]'"
        )
    return RecordedPrompt(
        prompt_ids=ids,
        prompt_texts=tuple(prompt_texts),
        origins=_find_origins(folder, prompt_texts, rows[:place], row, texts),
        response_ids=response,
        response_texts=tuple(response_texts),
        cut=row.get("prompt_cut", 0),
    )


def _find_origins(
    folder: RunFolder,
    prompt_texts: Sequence[str],
    past: Sequence[Mapping[str, Any]],
    row: Mapping[str, Any],
    texts: TokenTexts,
) -> tuple[TokenOrigin, ...]:
    marks = _PromptMarks(prompt_texts)
    marks.mark_last(row.get("observation") or "", TokenOrigin.OBSERVATION)
    try:
        history: Any = Slot("history").fill(folder.setting("rollout.history"))
        first_shown: int = history.first_shown(len(past))
    except ConfigError:  # it cannot be loaded here: search all past steps
        first_shown = 0
    for before in reversed(past[first_shown:]):
        said = "".join(texts.cut(before.get("response_ids") or ()) or ())
        if not marks.mark_last(said, TokenOrigin.HISTORY):  # the history shows the action only
            marks.mark_last(before.get("action") or "", TokenOrigin.HISTORY)
        marks.mark_last(before.get("observation") or "", TokenOrigin.HISTORY)
    goal = GoalLookup(folder.find_env()).find(row["task"])
    marks.mark_first(str(folder.setting("rollout.system") or ""), TokenOrigin.SYSTEM)
    marks.mark_first(goal.instruction, TokenOrigin.INSTRUCTION)
    marks.mark_first(goal.text, TokenOrigin.TASK)
    return tuple(marks.origins)


class _PromptMarks:
    """Finds texts in a prompt, ignoring case and white space, which a tokenizer may change."""

    def __init__(self, token_texts: Sequence[str]) -> None:
        self.origins = [TokenOrigin.TEMPLATE] * len(token_texts)
        self._tokens = [token for token, said in enumerate(token_texts) for _ in _squeeze(said)]
        self._text = "".join(map(_squeeze, token_texts))
        self._begin, self._end = 0, len(self._text)

    def mark_last(self, text: str, origin: TokenOrigin) -> bool:
        """Mark the last occurrence of a text before those marked from the end; False if there is none."""
        place = self._mark(text, self._text.rfind, origin)
        self._end = self._end if place is None else place.start
        return place is not None

    def mark_first(self, text: str, origin: TokenOrigin) -> None:
        """Mark the first occurrence of a text after those marked from the beginning."""
        place = self._mark(text, self._text.find, origin)
        self._begin = self._begin if place is None else place.stop

    def _mark(self, text: str, find: Callable[[str, int, int], int], origin: TokenOrigin) -> range | None:
        squeezed = _squeeze(text)
        start = find(squeezed, self._begin, self._end) if squeezed else -1
        if start < 0:
            return None
        for token in self._tokens[start : start + len(squeezed)]:
            self.origins[token] = origin
        return range(start, start + len(squeezed))


def _squeeze(text: str) -> str:
    return "".join(text.casefold().split())


# Responses as text, by the tokenizer of the run's last checkpoint.


def make_response_decoder(folder: Path) -> Decoder | None:
    """A function from ids to text, without special tokens; None without a tokenizer."""
    decode = _make_decoder(folder, skip_special_tokens=True)
    return None if decode is None else lambda ids: decode(ids).strip()


class TokenTexts:
    """Cuts a response into the texts of its tokens, if the run has a readable tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _decode(self) -> Decoder | None:
        return _make_decoder(self._folder, skip_special_tokens=False)

    def cut(self, ids: Sequence[int]) -> list[str] | None:
        """The text of each token, special tokens included. None without a tokenizer, or if the response has a secret:
        it could not be recognised in pieces."""
        if self._decode is None:
            return None
        pieces = cut_text(ids, self._decode)
        whole = "".join(pieces)
        return pieces if redact(whole) == whole else None


def _make_decoder(folder: Path, *, skip_special_tokens: bool) -> Decoder | None:
    paths = RunPaths(folder)
    try:
        latest = paths.latest.read_text(encoding="utf-8").strip()
        path = paths.checkpoints / Path(latest).name / TOKENIZER
        is_there = path.is_file()
    except (OSError, ValueError):  # a page is useful without it; `train --resume` reports the problem
        return None
    if not is_there or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = _try(lambda: Tokenizer.from_file(str(path)))
    if tokenizer is None:
        return None
    return lambda ids: str(_try(lambda: tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)) or "")


def _try(call: Callable[[], Any]) -> Any:
    """The result of a call; None if it fails. A damaged file makes the tokenizer panic, which is no `Exception`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


# Goals of tasks, from the environment.


@dataclass(frozen=True, kw_only=True)
class TaskGoal:
    """The goal, tags and instruction of a task."""

    text: str
    """The goal; empty if it is part of the observation, or unknown."""
    tags: tuple[str, ...]
    instruction: str = ""
    """The environment's instruction; empty = unknown."""


class GoalLookup:
    """Finds tasks in an environment's task sets; without an environment, or if it fails, goals are empty."""

    def __init__(self, env: EnvironmentPart | None) -> None:
        self._env = env
        self._tasks: dict[str, Task] | None = None

    def find(self, task_id: str) -> TaskGoal:
        goal = call_guarded(lambda: self._look_up(task_id))
        return TaskGoal(text="", tags=()) if isinstance(goal, Fault) else goal

    def _look_up(self, task_id: str) -> TaskGoal:
        if self._env is None:
            return TaskGoal(text="", tags=())
        if self._tasks is None:
            self._tasks = {task.id: task for split in SPLITS for task in self._env.task_set(split)}
        task = self._tasks.get(task_id)
        if task is None:
            return TaskGoal(text="", tags=())
        instruction = ask_instruction(find_environment(self._env, task))
        return TaskGoal(text=self._env.open(task).observe().goal, tags=task.tags, instruction=instruction)
