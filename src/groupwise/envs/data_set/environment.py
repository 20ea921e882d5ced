"""Tasks from a data set of one's own: a prompt and perhaps an answer a row, in any columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import SHOWN_AS_PATH
from groupwise.core.records import Task
from groupwise.envs.data_set.hugging_face import DATA_PLACE, HUB, is_hugging_face
from groupwise.envs.data_set.rows import (
    Columns,
    DataRow,
    RowReader,
    check_ids,
    identify_prompt,
    read_answer_of,
    read_prompt,
)
from groupwise.envs.kit.answers import ASKED, COMPARISONS, Form, say_answer
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.panel import (
    SPLITS,
    TEST_SHARE,
    VALIDATION_SHARE,
    Panels,
    check_disjoint,
    check_env,
    choose_split,
    digest_of_content,
)
from groupwise.envs.kit.question import SENTENCES, WITHOUT_VERDICT, Question, QuestionEnvironment, open_question
from groupwise.envs.kit.row_files import assign_splits, find_row_files
from groupwise.envs.kit.words import collect_vocabulary
from groupwise.envs.math.environment import JUDGE
from groupwise.envs.verifier.verifier import Verdict, find_verifier

ENV = "data_set"
FileStamps = tuple[tuple[str, int, int], ...]
"""Names, times and sizes of files: what was read stays good while they are the same."""


class DataSet(Part, slot="env"):
    """Prompts from a file, a folder or a Hugging Face data set, answered in one response.

    The reward is 1 where the verifier finds the response's answer equal to the row's, else 0; with the verifier "none"
    it is what the run's own rewards say. A task keeps every column of its row, so that reward functions have them.

    Choices: splits are what the column `split` says, else what files, folders and the splits of a Hugging Face set are
    called. Beside rows for training, those that say nothing are for the test; without them, rows are divided by their
    prompts, and so is a split that nothing speaks of cut out of training. Rows that are equal in every column are one
    task. A prompt that is in several splits, in any case and spacing, stays in the test before validation, and there
    before training. A task's id is a digest of its row, so that a changed file makes another panel.
    """

    path: Annotated[str, Field(min_length=1), DATA_PLACE, SHOWN_AS_PATH]
    """A file, a folder or a pattern of .jsonl, .json or .parquet; a folder that `datasets` saved; or hub:OWNER/NAME."""
    test_path: Annotated[str, DATA_PLACE, SHOWN_AS_PATH] = ""
    """More of the same, all for the test, whatever their names say; empty = none."""
    subset: str = ""
    """The configuration of a data set on the hub; empty = its only one."""
    revision: str = ""
    """Branch, tag or commit of a data set on the hub; empty = the newest, which may change."""
    columns: Columns = Columns()
    """Which column holds what."""
    leave_out: tuple[str, ...] = ()
    """Columns that tasks do without, such as pictures."""
    answer_after: str = ""
    """What stands before the answer in its column, such as "####"; empty = the column is the answer."""
    verifier: Literal["words", "text", "number", "math", "none"] = "words"
    """How answers are compared: by their words, in any case and spacing; as text; as numbers; by math-verify. none = a
    reward of the run judges the response."""
    form: Form = "boxed"
    """Where a response says its answer."""
    instruction_line: str | None = None
    """What prompts begin with; None = a sentence that asks for the form, and nothing with the verifier "none"."""
    num_train: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the training panel, from the first; None = all."""
    num_validation: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the validation panel; None = all."""
    num_test: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the test panel; None = all."""
    verifier_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Seconds of computing that a verdict of math-verify may take."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the attempt, so one step is all there is."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DataSet:
        for name in ("subset", "revision"):
            if getattr(self, name) and not self.path.startswith(HUB):
                raise ValueError(f"{name}: {self.path!r} is not on the hub; write {HUB}OWNER/NAME, or leave it out")
        if not self.columns.prompt or (self.tells_success and not self.columns.answer):
            missing = "answer" if self.columns.prompt else "prompt"
            raise ValueError(f'columns.{missing} is empty; name the column, or judge by a reward and verifier = "none"')
        mapped = [name for name in self.columns.model_dump().values() if name in self.leave_out]
        if mapped:
            raise ValueError(f"leave_out: the column {mapped[0]!r} is also in columns; leave it out of one of them")
        return self

    @property
    def tells_success(self) -> bool:
        """Whether it says itself if an attempt succeeded; else a reward must."""
        return self.verifier != "none"

    def panel(self, split: str) -> tuple[Task, ...]:
        if self.verifier == "math" and find_spec("math_verify") is None:
            raise report_missing_package(ENV, extra="math")
        divided = self._read_panels()
        tasks = choose_split(divided.panels, split)
        if not tasks:
            raise ConfigError(f"data_set: {self.path!r}{divided.explain_lack(split)}")
        return tasks[: {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]]

    def open(self, task: Task) -> QuestionEnvironment:
        check_env(task, ENV)
        stored = self._find_answer(task)
        judge = None if stored is None or self.verifier == "none" else partial(self._judge_answer, stored)
        question = Question(
            text=read_prompt(task.id, task.payload[self.columns.prompt]),
            stored=stored,
            form=self.form if self.tells_success else "whole",
            judge=judge,
        )
        return open_question(task, question, max_steps=self.max_steps)

    def identify_content(self, task: Task) -> Mapping[str, str]:
        """What a task shares with those that must not be in another split: its prompt, in any case and spacing."""
        return identify_prompt(read_prompt(task.id, task.payload[self.columns.prompt]))

    def vocabulary(self) -> tuple[str, ...]:
        panels = self._read_panels().panels
        tasks = [task for split in SPLITS if panels[split] for task in self.panel(split)]
        texts = [read_prompt(task.id, task.payload[self.columns.prompt]) for task in tasks]
        texts += [self._find_answer(task) or "" for task in tasks]
        said = say_answer("", self.form)
        return collect_vocabulary(texts, f"{self.instruction()} {SENTENCES} {WITHOUT_VERDICT} {said}")

    def instruction(self) -> str:
        if self.instruction_line is not None:
            return self.instruction_line
        return ASKED[self.form] if self.tells_success else ""

    def counts(self) -> Mapping[str, int]:
        """What became of the rows: kept by split, and left out because another row has the same content."""
        divided = self._read_panels()
        return {split: len(tasks) for split, tasks in divided.panels.items()} | {"duplicates": divided.duplicates}

    def _read_panels(self) -> DividedRows:
        return _divide_rows(self, _stamp_files([self.path, self.test_path]))

    def _find_answer(self, task: Task) -> str | None:
        stored = task.payload.get(self.columns.answer)
        if self.tells_success:
            return read_answer_of(task.id, stored, self.answer_after)
        return stored.strip() or None if isinstance(stored, str) else None

    def _judge_answer(self, stored: str, answer: str) -> Verdict:
        if self.verifier == "math":
            request = {"stored": stored, "answer": answer, "form": self.form}
            return find_verifier(JUDGE).judge(request, seconds=self.verifier_seconds)
        return Verdict(score=float(COMPARISONS[self.verifier](answer, stored)))


class DividedRows(NamedTuple):
    """Panels, and what they were made of."""

    panels: Panels
    duplicates: int
    """Rows that have the same content as another."""
    num_cut: int
    """Rows that splits which nothing speaks of are cut out of."""
    said: frozenset[str]
    """Splits that something speaks of."""
    moved: Mapping[str, Counter[str]]
    """Rows that a split does without because their prompt stays elsewhere: by split, how many stay where."""

    def explain_lack(self, split: str) -> str:
        """Finish the message about a split that has no rows."""
        if places := self.moved[split]:
            rows = f"{places.total()} row{'s' if places.total() > 1 else ''}"
            return (
                f": every prompt for the split {split!r} ({rows}) is also in {' or '.join(sorted(places))}, and stays "
                "there; add rows with other prompts, or take these out there"
            )
        if split in self.said or not self.num_cut:
            return f" has no row for the split {split!r}; add rows that say so"
        rows = "1 row is" if self.num_cut == 1 else f"{self.num_cut} rows are"
        share = {"validation": VALIDATION_SHARE, "test": TEST_SHARE}.get(split)
        purpose = "be divided into training, validation and test"
        purpose = purpose if share is None else f"cut out {100 * share:.0f} % for {split}"
        remedies = "rows, a split column, or test_path" if split == "test" else "rows, or a split column"
        return f": {rows} too few to {purpose}; add {remedies}"


@lru_cache(8)
def _divide_rows(part: DataSet, stamps: FileStamps) -> DividedRows:
    reader = RowReader(part.columns, part.leave_out, part.verifier, part.answer_after)
    rows = reader.read(part.path, subset=part.subset, revision=part.revision)
    tests = reader.read(part.test_path) if part.test_path else []
    check_ids([*rows, *tests], part.columns.id)
    assigned = assign_splits(
        rows, said=lambda row: row.split, content=DataRow.identify_prompt, has_test=bool(part.test_path)
    )
    assigned += [("test", row) for row in tests]
    panels: dict[str, dict[str, Task]] = {split: {} for split in SPLITS}
    owner: dict[str, str] = {}
    moved: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    in_test_path = {digest_of_content(row.identify_prompt()) for row in tests}
    for split in reversed(SPLITS):
        for row in (row for said, row in assigned if said == split):
            prompt = digest_of_content(row.identify_prompt())
            if owner.setdefault(prompt, split) == split:
                task = Task.create(env=ENV, split=split, payload=row.values, tags=row.tags)
                panels[split][task.id] = task
            else:
                moved[split]["test_path" if prompt in in_test_path else f"the split {owner[prompt]!r}"] += 1
    # In an order that says nothing about the rows, so that the first of a panel stand for all of it.
    ordered: Panels = {split: tuple(task for _, task in sorted(tasks.items())) for split, tasks in panels.items()}
    check_disjoint(ordered)
    said_of_rows = Counter(row.split for row in rows)
    return DividedRows(
        panels=ordered,
        duplicates=len(assigned) - sum(map(len, ordered.values())),
        num_cut=said_of_rows["train"] or said_of_rows[""],
        said=frozenset(said_of_rows),
        moved=moved,
    )


def _stamp_files(paths: Sequence[str]) -> FileStamps:
    files = [file for path in paths if path and not path.startswith(HUB) for file in _list_files(path)]
    stats = [(str(file), file.stat()) for file in files]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _list_files(path: str) -> list[Path]:
    if is_hugging_face(path):
        return sorted(file for file in Path(path).rglob("*") if file.is_file())
    return [file for file, _ in find_row_files(path, env=ENV, rows="rows")]
