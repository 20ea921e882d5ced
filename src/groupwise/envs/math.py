"""Mathematical problems from publishers' files, with math-verify as the checker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.kit import answers
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.row_files import Row, assign_splits, find_row_files, read_rows, read_split_name
from groupwise.envs.kit.task_set import SPLITS, TaskSets, check_env, choose_split
from groupwise.envs.kit.words import collect_vocabulary
from groupwise.envs.verifier.answer_grammars import guard_sympy
from groupwise.envs.verifier.verifier import Verdict, find_verifier
from groupwise.parts.part import Part
from groupwise.parts.path_settings import ABSOLUTE, SHOWN_AS_PATH, PathText
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import digest_value

# Mathematical problems as their publishers write them: JSON lines, JSON or Parquet, one problem a row.

Format = Literal["auto", "gsm8k", "math", "dapo", "aime", "amc", "minerva", "olympiadbench"]
_REQUEST = "Solve the following math problem"
_REMINDER = "\n\nRemember to put your answer"
"""The text around a problem in a chat message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A problem and its answer."""

    text: str
    answer: str
    """The final answer; empty if the row has none."""
    split: str
    """The split in the file's name: train, validation or test; empty = none."""
    source: str
    """The dataset's name: the file's name without the split."""


def read_problems(path: str, format: Format = "auto") -> list[Problem]:
    """All problems of a file, a folder or a pattern such as `*.jsonl`."""
    problems: list[Problem] = []
    for file, parts in find_row_files(path, env="math", rows="problems"):
        split, source = read_split_name(parts)
        for where, row in read_rows(file, row_name="a problem"):
            text, answer = _read_row(where, row, format)
            problems.append(Problem(text=text, answer=answer, split=split, source=source or "problems"))
    return problems


def _read_row(where: str, row: Row, format: Format) -> tuple[str, str]:
    shapes = SHAPES[format]
    for shape in shapes:
        read = READERS[shape](row)
        if read is not None:
            text, answer = read
            return text.strip(), answer.strip()
    fields = ", ".join(map(str, row)) or "nothing"
    wanted = "; or ".join(FIELDS[shape] for shape in shapes)
    raise FileError(f"{where}: found the fields {fields}; format {format!r} has {wanted}; choose the format that fits")


def _read_gsm8k(row: Row) -> tuple[str, str] | None:
    """A worked answer that ends in "#### 72"; thousands are parted by commas."""
    answer = row.get("answer")
    if not (isinstance(row.get("question"), str) and isinstance(answer, str) and "####" in answer):
        return None
    return str(row["question"]), answer.rpartition("####")[2].replace(",", "")


def _read_stated(row: Row) -> tuple[str, str] | None:
    """A problem and its answer, which is empty in a few rows."""
    text = _find_text(row)
    name = next((name for name in ("answer", "Answer") if name in row), None)
    answer = "" if name is None or row[name] is None else row[name]
    solved_elsewhere = answer == "" and isinstance(row.get("solution"), str)
    if text is None or name is None or solved_elsewhere or not isinstance(answer, str | int | float):
        return None
    # A table of numbers makes 27.0 of 27.
    whole = isinstance(answer, float) and answer.is_integer()
    return text, str(int(answer) if whole else answer)


def _read_boxed(row: Row) -> tuple[str, str] | None:
    text, solution = _find_text(row), row.get("solution")
    return (text, answers.find_last_boxed(solution)) if text is not None and isinstance(solution, str) else None


def _read_chat(row: Row) -> tuple[str, str] | None:
    """A prompt of chat turns and what a reward model compares with; the request for a form is cut off."""
    prompt, reward = row.get("prompt"), row.get("reward_model")
    if not (isinstance(prompt, list) and prompt and isinstance(reward, Mapping) and "ground_truth" in reward):
        return None
    text = str(prompt[-1]["content"])
    begin = text.find("\n\n", len(_REQUEST)) + 2 if text.startswith(_REQUEST) else 0
    end = text.rfind(_REMINDER, begin) if begin > 1 else -1
    return (text[begin:end] if end >= 0 else text), str(reward["ground_truth"])


def _read_final_answers(row: Row) -> tuple[str, str] | None:
    """OlympiadBench: a list of final answers, and perhaps a context; a proof has no answer."""
    if not (isinstance(row.get("question"), str) and "final_answer" in row):
        return None
    text = "\n".join(str(part) for part in (row.get("context"), row["question"]) if part)
    return text, ", ".join(str(answer).strip().strip("$") for answer in row["final_answer"] or ())


def _find_text(row: Row) -> str | None:
    return next((row[name] for name in ("problem", "question", "Problem") if isinstance(row.get(name), str)), None)


READERS: dict[str, Callable[[Row], tuple[str, str] | None]] = {
    "final_answers": _read_final_answers,
    "chat": _read_chat,
    "gsm8k": _read_gsm8k,
    "stated": _read_stated,
    "boxed": _read_boxed,
}
"""Readers of row shapes in the order of `auto`; a reader returns None for another shape."""
FIELDS = {
    "final_answers": "`question` and `final_answer`",
    "chat": "`prompt` and `reward_model.ground_truth`",
    "gsm8k": "`question` and an `answer` that ends in #### and the number",
    "stated": "`problem` or `question`, and `answer`",
    "boxed": "`problem` and a `solution` with its answer in \\boxed{}",
}
SHAPES: dict[Format, tuple[str, ...]] = {
    "auto": tuple(READERS),
    "gsm8k": ("gsm8k",),
    "math": ("stated", "boxed"),
    "dapo": ("chat", "stated"),
    "aime": ("stated",),
    "amc": ("stated",),
    "minerva": ("stated", "boxed"),
    "olympiadbench": ("final_answers",),
}
"""The shapes in which each dataset is published."""


ENV = "math"
JUDGE = "groupwise.envs.math:make_judge"


class Math(Part, slot="env"):
    """Problems of GSM8K, MATH, DAPO-17k, AIME, AMC, Minerva or OlympiadBench, answered in one response.

    The reward is 1 if math-verify finds the answer equal to the publisher's, else 0.

    Choices: a file whose name says train, validation or test is that split. Other files are test files if there are
    training files (AIME beside DAPO); otherwise problems are divided by their text. A split without a file is cut out
    of training, also by text. A problem that occurs twice, in any case and spacing, is kept once: in test first, then
    in validation. The order of a task set says nothing about the problems. The verifier runs in its own process,
    because math-verify's time limit works in the main thread only. If it raises, or needs more than `verifier_seconds`
    of CPU time, the score is 0 and the record says why.
    """

    path: Annotated[str, Field(min_length=1), ABSOLUTE, SHOWN_AS_PATH]
    """A file, a folder, or a pattern such as "math/gsm8k_*.jsonl"; jsonl, json or parquet."""
    format: Format = "auto"
    """The format of the files; "auto" recognises each row by its fields."""
    test_path: PathText = ""
    """More files, all for the test set; their names do not matter. Empty = none."""
    duplicates: Literal["drop", "refuse"] = "drop"
    """What to do with a problem that occurs twice; `counts` has their number."""
    num_train: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the train set, from the first; None = all."""
    num_validation: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the validation set; None = all."""
    num_test: Annotated[int, Field(ge=1)] | None = None
    """Tasks in the test set; None = all."""
    form: answers.Form = "boxed"
    """Where a response has its answer; the instruction asks for it."""
    match_words: bool = False
    """Whether an answer with the publisher's words, in any case and spacing, counts as the publisher's: for tokenizers
    that keep neither."""
    verifier_seconds: Annotated[float, Field(gt=0)] = 5.0
    """CPU seconds for one check."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        if find_spec("math_verify") is None:
            raise report_missing_package(ENV)
        tasks = choose_split(self._read_task_sets()[0], split)
        if not tasks:
            raise ConfigError(f"math: {self.path!r} has no problem for the split {split!r}; add a file with that split")
        return tasks[: {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}[split]]

    def open(self, task: Task) -> answers.QuestionEnvironment:
        check_env(task, ENV)
        stored = str(task.payload["answer"])
        question = answers.Question(
            text=str(task.payload["problem"]),
            stored=stored,
            form=self.form,
            judge=partial(self._judge_answer, stored),
            match_words=self.match_words,
        )
        return answers.open_question(task, question, max_steps=self.max_steps)

    def vocabulary(self) -> tuple[str, ...]:
        task_sets, _ = self._read_task_sets()
        tasks = [task for split in SPLITS if task_sets[split] for task in self.task_set(split)]
        texts = [str(task.payload[name]) for task in tasks for name in ("problem", "answer")]
        return collect_vocabulary(
            texts, f"{self.instruction()} {answers.SENTENCES} {answers.say_answer('', self.form)}"
        )

    def instruction(self) -> str:
        return f"Solve the problem. {answers.ASKED[self.form]}"

    def counts(self) -> Mapping[str, int]:
        task_sets, left_out = self._read_task_sets()
        return {split: len(tasks) for split, tasks in task_sets.items()} | left_out

    def _read_task_sets(self) -> tuple[TaskSets, dict[str, int]]:
        return _divide_problems(self.path, self.format, self.test_path, self.duplicates)

    def _judge_answer(self, stored: str, answer: str) -> Verdict:
        request = {"stored": stored, "answer": answer, "form": self.form}
        return find_verifier(JUDGE).judge(request, seconds=self.verifier_seconds)


def make_judge() -> Callable[[Mapping[str, Any]], float]:
    from math_verify import parse, verify

    guard_sympy()
    # It warns at every call that its own time limit is off; this process has another one.
    logging.getLogger("math_verify").setLevel(logging.ERROR)

    @lru_cache(256)
    def read(answer: str, *, boxed: bool) -> list[Any]:
        text = answers.say_answer(answer, "boxed") if boxed else answer
        return list(parse(text, parsing_timeout=None, raise_on_error=True))

    def score(request: Mapping[str, Any]) -> float:
        stored = read(request["stored"], boxed=True)
        if not stored:
            raise ValueError(f"the stored answer {request['stored']!r} cannot be read")
        # In a free response math-verify searches for the answer; it does not find a bare expression, which is boxed.
        free = request["form"] in ("whole", "last_line")
        answer = (free and read(request["answer"], boxed=False)) or read(request["answer"], boxed=True)
        return float(verify(stored, answer, timeout_seconds=None, raise_on_error=True))

    return score


@cache
def _divide_problems(
    path: str, format: Format, test_path: str, duplicates: Literal["drop", "refuse"]
) -> tuple[TaskSets, dict[str, int]]:
    """The task sets, and how many rows were left out, by reason."""
    problems = read_problems(path, format)
    assigned = assign_splits(
        problems, said=lambda problem: problem.split, content=_identify_problem, has_test=bool(test_path)
    )
    if test_path:
        assigned += [("test", problem) for problem in read_problems(test_path, format)]
    by_digest = sorted(
        ((digest_value(_identify_problem(problem)), split, problem) for split, problem in assigned),
        key=lambda entry: entry[0],
    )
    left_out = {"duplicates": 0, "without_answer": 0}
    task_sets: dict[str, list[Task]] = {split: [] for split in SPLITS}
    seen: dict[str, str] = {}
    for split in reversed(SPLITS):
        for digest, _, problem in (entry for entry in by_digest if entry[1] == split):
            if not (problem.answer and problem.text):
                left_out["without_answer"] += 1
            elif digest not in seen:
                seen[digest] = split
                payload = {"problem": problem.text, "answer": problem.answer}
                task_sets[split].append(Task.create(env=ENV, split=split, payload=payload, tags=(problem.source,)))
            elif duplicates == "drop":
                left_out["duplicates"] += 1
            else:
                raise ConfigError(
                    f"math: the problem {problem.text[:60]!r} of {problem.source} is in the split {seen[digest]!r} and "
                    f'again in {split!r}; remove it from one of the files, or set duplicates = "drop"'
                )
    return {split: tuple(tasks) for split, tasks in task_sets.items()}, left_out


def _identify_problem(problem: Problem) -> dict[str, str]:
    return {"problem": " ".join(problem.text.lower().split())}
