"""What a model saw at a step of a run: the recorded prompt, token by token, with where each token comes from.

The journal holds the prompt's ids, and of each step what was shown and answered. These texts are found again in the
prompt, from its end: the present observation, then past steps as far as the run's memory shows them; at its beginning
the system prompt, the instruction and the goal. All else is the template's, lists of possible actions too.
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
from groupwise.envs.kit.panel import SPLITS
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
    """A prompt and the response to it, as the journal has them, and what each token says."""

    prompt_ids: tuple[int, ...]
    prompt_texts: tuple[str, ...]
    origins: tuple[TokenOrigin, ...]
    """Where each token of the prompt comes from."""
    response_ids: tuple[int, ...]
    response_texts: tuple[str, ...]


def read_prompt(folder: RunFolder, *, number: int, task: str, attempt: int, step: int) -> RecordedPrompt:
    """Read the prompt of a step of an update, and find out where its tokens come from."""
    rows = next(
        record["steps"]
        for record in folder.journal.trajectories(number)
        if (record["task"], record["attempt"]) == (task, attempt)
    )
    where = f"{folder.path}, update {number}, task {task!r}, attempt {attempt}"
    place = next((place for place, row in enumerate(rows) if row["index"] == step), None)
    if place is None:
        raise RecordError(f"{where}: there is no step {step}; give one from 0 to {rows[-1]['index']}")
    row, texts = rows[place], TokenTexts(folder.path)
    ids, response = tuple(row.get("prompt_ids") or ()), tuple(row.get("response_ids") or ())
    if not ids:
        raise RecordError(f"{where}: step {step} was recorded without its prompt; ask for a step that was sampled")
    prompt_texts, response_texts = texts.cut(ids), texts.cut(response)
    if prompt_texts is None or response_texts is None:
        raise RecordError(
            f"{where}: the prompt of step {step} cannot be shown, since the tokenizer of the run's last checkpoint "
            "cannot be read, or the text holds a secret; look for tokenizer.json there, and install 'groupwise[train]'"
        )
    return RecordedPrompt(
        prompt_ids=ids,
        prompt_texts=tuple(prompt_texts),
        origins=_find_origins(folder, prompt_texts, rows[:place], row, texts),
        response_ids=response,
        response_texts=tuple(response_texts),
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
    for before in reversed(past[_find_first_shown(folder, len(past)) :]):
        said = "".join(texts.cut(before.get("response_ids") or ()) or ())
        if not marks.mark_last(said, TokenOrigin.MEMORY):  # told in words
            marks.mark_last(before.get("action") or "", TokenOrigin.MEMORY)
        marks.mark_last(before.get("observation") or "", TokenOrigin.MEMORY)
    goal = GoalLookup(folder.find_env()).find(row["task"])
    marks.mark_first(str(folder.setting("rollout.system") or ""), TokenOrigin.SYSTEM)
    marks.mark_first(goal.instruction, TokenOrigin.INSTRUCTION)
    marks.mark_first(goal.text, TokenOrigin.TASK)
    return tuple(marks.origins)


def _find_first_shown(folder: RunFolder, num_past: int) -> int:
    """The first past step that the run's memory shows; the first of all where its memory cannot be decoded here."""
    try:
        memory: Any = Slot("memory").fill(folder.setting("rollout.memory"))
    except ConfigError:
        return 0
    first: int = memory.first_shown(num_past)
    return first


class _PromptMarks:
    """A prompt in which texts are found, whatever a tokenizer does to upper case and white space."""

    def __init__(self, token_texts: Sequence[str]) -> None:
        self.origins = [TokenOrigin.TEMPLATE] * len(token_texts)
        self._tokens = [token for token, said in enumerate(token_texts) for _ in _squeeze(said)]
        self._text = "".join(map(_squeeze, token_texts))
        self._begin, self._end = 0, len(self._text)

    def mark_last(self, text: str, origin: TokenOrigin) -> bool:
        """Mark the last place at which a text stands before what was marked from the end; whether there is one."""
        place = self._mark(text, self._text.rfind, origin)
        self._end = self._end if place is None else place.start
        return place is not None

    def mark_first(self, text: str, origin: TokenOrigin) -> None:
        """Mark the first place at which a text stands after what was marked so."""
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


# What a model said, as text: responses whole, or token by token, by the tokenizer of the run's last checkpoint.


def make_response_decoder(folder: Path) -> Decoder | None:
    """What turns sampled ids into text, without special tokens and space around it; None where nothing can."""
    decode = _make_decoder(folder, skip_special_tokens=True)
    return None if decode is None else lambda ids: decode(ids).strip()


class TokenTexts:
    """Cuts a response into the texts of its tokens; where a run has no tokenizer that can be read, it knows none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _decode(self) -> Decoder | None:
        return _make_decoder(self._folder, skip_special_tokens=False)

    def cut(self, ids: Sequence[int]) -> list[str] | None:
        """The text of each token, special ones too: joined, they are the response. None where nothing can tell.

        None also where the response holds a secret: cut into tokens, nobody would know it again to hide it.
        """
        if self._decode is None:
            return None
        pieces = cut_text(ids, self._decode)
        whole = "".join(pieces)
        return pieces if redact(whole) == whole else None


def _make_decoder(folder: Path, *, skip_special_tokens: bool) -> Decoder | None:
    """What the tokenizer of a run's last checkpoint makes of ids; None where it cannot be read."""
    paths = RunPaths(folder)
    try:
        latest = paths.latest.read_text(encoding="utf-8").strip()
        path = paths.checkpoints / Path(latest).name / TOKENIZER
        is_there = path.is_file()
    except (OSError, ValueError):  # a page is worth showing without it; `train --resume` says what is wrong
        return None
    if not is_there or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = _try(lambda: Tokenizer.from_file(str(path)))
    if tokenizer is None:
        return None
    return lambda ids: str(_try(lambda: tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)) or "")


def _try(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it fails. A damaged file makes the tokenizer panic, which is no `Exception`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


# What a task asks for, in the environment's own words.


@dataclass(frozen=True, kw_only=True)
class TaskGoal:
    """What is known of a task beyond its id."""

    text: str
    """What the task asks for; empty where the observation says it all."""
    tags: tuple[str, ...]
    """Its labels, such as its family."""
    instruction: str = ""
    """The line of its environment; empty where that is not known."""


class GoalLookup:
    """Looks tasks up in an environment's panels; an environment that is not there, or fails, knows nothing."""

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
            self._tasks = {task.id: task for split in SPLITS for task in self._env.panel(split)}
        task = self._tasks.get(task_id)
        if task is None:
            return TaskGoal(text="", tags=())
        instruction = ask_instruction(find_environment(self._env, task))
        return TaskGoal(text=self._env.open(task).observe().goal, tags=task.tags, instruction=instruction)
