"""Tasks from a dataset of one's own: a prompt and perhaps an answer a row, in any columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.kit import answers
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.row_files import SAYS_SPLIT, assign_splits, find_row_files, read_rows, read_split_name
from groupwise.envs.kit.task_set import SPLITS, TEST_SHARE, VALIDATION_SHARE, TaskSets, check_env, choose_split
from groupwise.envs.kit.words import collect_vocabulary
from groupwise.envs.math import JUDGE
from groupwise.envs.verifier.verifier import Verdict, find_verifier
from groupwise.parts.part import Part
from groupwise.parts.path_settings import SHOWN_AS_PATH, make_absolute, resolve_by
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import digest_value, is_plain
from groupwise.system.quoted_errors import quote_error
from groupwise.system.text import quote_line

# From the rows of a dataset to tasks: columns by their map, splits, and what is rejected before any work.


class Columns(Part):
    """Which column has what. A task keeps every column under its own name, for reward functions."""

    prompt: str = "prompt"
    """The prompt: text, or chat messages (one of the user, optionally after one of the system)."""
    answer: str = "answer"
    """The right answer, text or a number; not needed with the verifier "none"."""
    id: str = ""
    """A unique id per row; empty = the content is the id."""
    split: str = ""
    """train, validation or test; empty = the names of files, or the prompts, decide."""
    tag: str = ""
    """A category; evaluations report each one. Empty = none."""


@dataclass(frozen=True, kw_only=True)
class DataRow:
    """A row that can become a task."""

    where: str
    prompt: str
    """The prompt as it is shown."""
    split: str
    """The split from the row, its file or its dataset: train, validation or test; empty = none."""
    tags: tuple[str, ...]
    values: Mapping[str, Any]
    """Every column, as JSON values."""


def read_data(part: DataSet, path: str, *, subset: str = "", revision: str = "") -> list[DataRow]:
    """All rows of a file, a folder, a pattern or a dataset; a bad row is an error with its place."""
    rows = [_read_row(part, *placed) for placed in _find_rows(path, subset, revision)]
    if not rows:
        raise FileError(f"data_set: {path!r} has no rows; write one object per task")
    return rows


def _read_row(part: DataSet, where: str, split_name: str, row: Mapping[str, Any]) -> DataRow:
    columns = part.columns
    for use in ("prompt", "id", "split", "tag", *(["answer"] if part.tells_success else [])):
        name = getattr(columns, use)
        if name and name not in row:
            there = ", ".join(map(str, row)) or "no columns at all"
            raise FileError(
                f"{where}: there is no column {name!r} for the {use}; it has {there}. Set env.columns.{use} "
                f"to the right column{'' if use in ('prompt', 'answer') else ', or to the empty text'}"
            )
    # Tables write NaN for missing values.
    values = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
        if name not in part.leave_out
    }
    if not is_plain(values):
        strange = next((name for name, value in values.items() if not is_plain([value])), "")
        raise FileError(
            f"{where}: the column {strange!r} holds {type(values.get(strange)).__name__}, which a task cannot "
            f"store; add it to env.leave_out, or use text and numbers"
        )
    if part.tells_success:
        answer = read_answer_of(where, values[columns.answer], part.answer_after)
        if part.verifier == "number" and (
            len(answer) > answers.MAX_ANSWER_CHARACTERS or answers.read_number(answer) is None
        ):
            raise FileError(
                f"{where}: the answer {quote_line(repr(answer), limit=60)} is not a number such as 1,200, -0.5 or 3/4; "
                "fix the row, set env.answer_after to the text before the number, or choose another env.verifier"
            )
    split = read_split_name([split_name])[0]
    if columns.split:
        said = values[columns.split]
        if str(said).lower() not in SAYS_SPLIT:
            listed = ", ".join(SAYS_SPLIT)
            raise FileError(f"{where}: the split is {quote_line(repr(said), limit=60)}; write one of {listed}")
        split = SAYS_SPLIT[str(said).lower()]
    return DataRow(
        where=where,
        prompt=read_prompt(where, values[columns.prompt]),
        split=split,
        tags=(str(values[columns.tag]).replace(",", ";"),) if columns.tag else (),
        values=values,
    )


def _find_rows(path: str, subset: str, revision: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    if is_hugging_face(path):
        yield from read_hugging_face(path, subset=subset, revision=revision)
        return
    for file, parts in find_row_files(path, env="data_set", rows="rows"):
        rows = list(read_rows(file, row_name="a row"))
        if not rows:
            raise FileError(f"{file}: the file has no rows; write one object per task, or remove it")
        yield from ((where, " ".join(parts), row) for where, row in rows)


def read_prompt(where: str, prompt: Any) -> str:
    """The text of a prompt; of a chat, the system message and then the user message."""
    if isinstance(prompt, list):
        turns = [turn if isinstance(turn, Mapping) else {} for turn in prompt]
        roles = [turn.get("role") for turn in turns]
        if roles not in (["user"], ["system", "user"]):
            raise FileError(
                f"{where}: the prompt is a chat of {', '.join(map(str, roles)) or 'no messages'}; give one user "
                "message, optionally after one system message"
            )
        prompt = "\n\n".join(str(turn.get("content") or "") for turn in turns)
    if not isinstance(prompt, str) or not prompt.strip():
        raise FileError(f"{where}: the prompt is {quote_line(repr(prompt), limit=60)}; give a text that is not empty")
    return prompt.strip()


def identify_prompt(prompt: str) -> dict[str, str]:
    """The content that decides the split: a prompt's words, in any case and spacing."""
    return {"prompt": " ".join(prompt.lower().split())}


def read_answer_of(where: str, stored: Any, answer_after: str) -> str:
    """The right answer as text; if `answer_after` is set, the text after its last occurrence."""
    if isinstance(stored, float):  # a table of numbers makes 27.0 of 27, and JSON 1e-05 of 0.00001
        stored = int(stored) if stored.is_integer() else format(Decimal(str(stored)), "f")
    if isinstance(stored, bool) or not isinstance(stored, str | int | float) or not str(stored).strip():
        raise FileError(
            f"{where}: the answer is {quote_line(repr(stored), limit=60)}; give text or a number, or use your own "
            'reward and set env.verifier to "none"'
        )
    _, marker, after = str(stored).rpartition(answer_after) if answer_after else ("", "", str(stored))
    if answer_after and not (marker and after.strip()):
        raise FileError(
            f"{where}: there is no text after {answer_after!r} in the answer {quote_line(repr(stored), limit=60)}; "
            "fix the row, or env.answer_after"
        )
    return after.strip()


# Datasets of the package `datasets`: a folder that `save_to_disk` wrote, or a name on the hub. All that adapts it.

HUB = "hub:"
"""What a path begins with that is the name of a dataset on the hub."""
DATA_PLACE = resolve_by(lambda path: path if path.startswith(HUB) else make_absolute(path))
"""Makes the path of a field absolute, but for the name of a dataset on the hub."""
SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `save_to_disk` wrote: several splits, or one set."""


def is_hugging_face(path: str) -> bool:
    return path.startswith(HUB) or any((Path(path) / name).is_file() for name in SAVED)


def read_hugging_face(path: str, *, subset: str = "", revision: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"data_set: {path!r} needs a package that is not installed; pip install 'groupwise[datasets]'"
        ) from None
    try:
        loaded = (
            datasets.load_dataset(path.removeprefix(HUB), subset or None, revision=revision or None)
            if path.startswith(HUB)
            else datasets.load_from_disk(path)
        )
    except Exception as error:  # a server that does not answer, a name that is none, a folder that is damaged
        raise FileError(
            f"data_set: {path!r} cannot be loaded ({quote_error(error)}); give a name on the hub, with its "
            "subset if it has several, or a folder that save_to_disk wrote"
        ) from None
    splits = loaded if isinstance(loaded, dict) else {"": loaded}
    for split, rows in splits.items():
        for number, row in enumerate(rows, start=1):
            yield f"{path}, {f'{split} ' if split else ''}row {number}", split, dict(row)


ENV = "data_set"
FileStamps = tuple[tuple[str, int, int], ...]
"""Names, times and sizes of files: cached rows are valid while these are equal."""


class DataSet(Part, slot="env"):
    """Prompts from a file, a folder or a Hugging Face dataset, answered in one response.

    The reward is 1 if the verifier finds the response's answer equal to the row's, else 0. With the verifier "none",
    only the run's own rewards count. A task keeps every column of its row, for reward functions.

    Choices: the split is what the column `split` says, else the name of the file, folder or Hugging Face split. Rows
    without a split are test rows if other rows are for training; otherwise they are divided by their prompts. A split
    that no row has is cut out of training, also by prompts. Rows that are equal in every column are one task. If a
    prompt is in several splits (in any case and spacing), it stays in test first, then in validation. A task's id is a
    digest of its row, so a changed file makes another task set.
    """

    path: Annotated[str, Field(min_length=1), DATA_PLACE, SHOWN_AS_PATH]
    """A file, a folder or a pattern of .jsonl, .json or .parquet; a folder that `datasets` saved; or hub:OWNER/NAME."""
    test_path: Annotated[str, DATA_PLACE, SHOWN_AS_PATH] = ""
    """More files, all for the test set; their names do not matter. Empty = none."""
    subset: str = ""
    """The configuration of a dataset on the hub; empty = its only one."""
    revision: str = ""
    """Branch, tag or commit of a dataset on the hub; empty = the newest, which may change."""
    columns: Columns = Columns()
    """Which column holds what."""
    leave_out: tuple[str, ...] = ()
    """Columns to drop, such as images."""
    answer_after: str = ""
    """The text before the answer in its column, such as "####"; empty = the column is the answer."""
    verifier: Literal["words", "text", "number", "math", "none"] = "words"
    """How answers are compared: by their words, in any case and spacing; as text; as numbers; by math-verify. none = a
    reward of the run judges the response."""
    form: answers.Form = "boxed"
    """Where a response has its answer."""
    instruction_line: str | None = None
    """First line of prompts; None = a sentence that asks for the form (nothing with the verifier "none")."""
    num_train: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the train set, from the first; None = all."""
    num_validation: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the validation set; None = all."""
    num_test: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the test set; None = all."""
    verifier_seconds: Annotated[float, Field(gt=0)] = 5.0
    """CPU seconds for one check by math-verify."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DataSet:
        for name in ("subset", "revision"):
            if getattr(self, name) and not self.path.startswith(HUB):
                raise ValueError(f"{name}: {self.path!r} is not on the hub; write {HUB}OWNER/NAME, or remove {name}")
        if not self.columns.prompt or (self.tells_success and not self.columns.answer):
            missing = "answer" if self.columns.prompt else "prompt"
            raise ValueError(f'columns.{missing} is empty; name the column, or use a reward and verifier = "none"')
        mapped = [name for name in self.columns.model_dump().values() if name in self.leave_out]
        if mapped:
            raise ValueError(f"leave_out: the column {mapped[0]!r} is also in columns; remove it from one of them")
        return self

    @property
    def tells_success(self) -> bool:
        """Whether the environment decides about success; otherwise a reward does."""
        return self.verifier != "none"

    def task_set(self, split: str) -> tuple[Task, ...]:
        if self.verifier == "math" and find_spec("math_verify") is None:
            raise report_missing_package(ENV, extra="math")
        divided = self._read_task_sets()
        tasks = choose_split(divided.task_sets, split)
        if not tasks:
            raise ConfigError(f"data_set: {self.path!r}{divided.explain_lack(split)}")
        return tasks[: {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]]

    def open(self, task: Task) -> answers.QuestionEnvironment:
        check_env(task, ENV)
        stored = self._find_answer(task)
        judge = None if stored is None or self.verifier == "none" else partial(self._judge_answer, stored)
        question = answers.Question(
            text=self._read_prompt(task), stored=stored, form=self.form if self.tells_success else "whole", judge=judge
        )
        return answers.open_question(task, question, max_steps=self.max_steps)

    def identify_content(self, task: Task) -> Mapping[str, str]:
        return identify_prompt(self._read_prompt(task))

    def vocabulary(self) -> tuple[str, ...]:
        task_sets = self._read_task_sets().task_sets
        tasks = [task for split in SPLITS if task_sets[split] for task in self.task_set(split)]
        texts = [self._read_prompt(task) for task in tasks]
        texts += [self._find_answer(task) or "" for task in tasks]
        said = answers.say_answer("", self.form)
        return collect_vocabulary(texts, f"{self.instruction()} {answers.SENTENCES} {answers.WITHOUT_VERDICT} {said}")

    def instruction(self) -> str:
        if self.instruction_line is not None:
            return self.instruction_line
        return answers.ASKED[self.form] if self.tells_success else ""

    def counts(self) -> Mapping[str, int]:
        divided = self._read_task_sets()
        return {split: len(tasks) for split, tasks in divided.task_sets.items()} | {"duplicates": divided.duplicates}

    def _read_task_sets(self) -> DividedRows:
        files: list[Path] = []
        for path in (self.path, self.test_path):
            if path and is_hugging_face(path) and not path.startswith(HUB):
                files += sorted(file for file in Path(path).rglob("*") if file.is_file())
            elif path and not path.startswith(HUB):
                files += [file for file, _ in find_row_files(path, env=ENV, rows="rows")]
        stats = [(str(file), file.stat()) for file in files]
        return _divide_rows(self, tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))

    def _read_prompt(self, task: Task) -> str:
        return read_prompt(task.id, task.payload[self.columns.prompt])

    def _find_answer(self, task: Task) -> str | None:
        stored = task.payload.get(self.columns.answer)
        if self.tells_success:
            return read_answer_of(task.id, stored, self.answer_after)
        return stored.strip() or None if isinstance(stored, str) else None

    def _judge_answer(self, stored: str, answer: str) -> Verdict:
        if self.verifier == "math":
            request = {"stored": stored, "answer": answer, "form": self.form}
            return find_verifier(JUDGE).judge(request, seconds=self.verifier_seconds)
        return Verdict(score=float(answers.COMPARISONS[self.verifier](answer, stored)))


class DividedRows(NamedTuple):
    """Task sets, and what they were made of."""

    task_sets: TaskSets
    duplicates: int
    """Rows with the same content as another row."""
    num_cut: int
    """Rows from which missing splits are cut out."""
    said: frozenset[str]
    """Splits that rows or files name."""
    moved: Mapping[str, Counter[str]]
    """Rows left out of a split because their prompt stays in another: by split, how many per place."""

    def explain_lack(self, split: str) -> str:
        """Finish the message about a split that has no rows."""
        if places := self.moved[split]:
            rows = f"{places.total()} row{'s' if places.total() > 1 else ''}"
            return (
                f": every prompt for the split {split!r} ({rows}) is also in {' or '.join(sorted(places))} and stays "
                "there; add rows with other prompts, or remove them there"
            )
        if split in self.said or not self.num_cut:
            return f" has no row for the split {split!r}; add rows for it"
        rows = "1 row is" if self.num_cut == 1 else f"{self.num_cut} rows are"
        share = {"validation": VALIDATION_SHARE, "test": TEST_SHARE}.get(split)
        purpose = "be divided into training, validation and test"
        purpose = purpose if share is None else f"cut out {100 * share:.0f} % for {split}"
        remedies = "rows, a split column, or test_path" if split == "test" else "rows, or a split column"
        return f": {rows} too few to {purpose}; add {remedies}"


@lru_cache(8)
def _divide_rows(part: DataSet, stamps: FileStamps) -> DividedRows:
    rows = read_data(part, part.path, subset=part.subset, revision=part.revision)
    tests = read_data(part, part.test_path) if part.test_path else []
    places: dict[str, str] = {}
    for row in (*rows, *tests) if part.columns.id else ():
        name = str(row.values[part.columns.id])
        if name in places:
            raise ConfigError(
                f"{row.where}: its id {quote_line(name, limit=60)!r} is also that of {places[name]}; give every row "
                "its own id, or remove env.columns.id"
            )
        places[name] = row.where
    assigned = assign_splits(
        rows, said=lambda row: row.split, content=lambda row: identify_prompt(row.prompt), has_test=bool(part.test_path)
    )
    assigned += [("test", row) for row in tests]
    task_sets: dict[str, dict[str, Task]] = {split: {} for split in SPLITS}
    owner: dict[str, str] = {}
    moved: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    in_test_path = {digest_value(identify_prompt(row.prompt)) for row in tests}
    for split in reversed(SPLITS):
        for row in (row for said, row in assigned if said == split):
            prompt = digest_value(identify_prompt(row.prompt))
            if owner.setdefault(prompt, split) == split:
                task = Task.create(env=ENV, split=split, payload=row.values, tags=row.tags)
                task_sets[split][task.id] = task
            else:
                moved[split]["test_path" if prompt in in_test_path else f"the split {owner[prompt]!r}"] += 1
    # Sorted by id, which is a digest: the first tasks are a random sample of all.
    ordered: TaskSets = {split: tuple(task for _, task in sorted(tasks.items())) for split, tasks in task_sets.items()}
    said_of_rows = Counter(row.split for row in rows)
    return DividedRows(
        task_sets=ordered,
        duplicates=len(assigned) - sum(map(len, ordered.values())),
        num_cut=said_of_rows["train"] or said_of_rows[""],
        said=frozenset(said_of_rows),
        moved=moved,
    )
