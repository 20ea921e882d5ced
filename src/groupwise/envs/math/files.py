"""Mathematical problems as their publishers write them: JSON lines, JSON or Parquet, one problem a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from groupwise.core.errors import FileError
from groupwise.envs.kit.answers import find_last_boxed
from groupwise.envs.kit.row_files import Row, find_row_files, read_rows, read_split_name

Format = Literal["auto", "gsm8k", "math", "dapo", "aime", "amc", "minerva", "olympiadbench"]
_REQUEST = "Solve the following math problem"
_REMINDER = "\n\nRemember to put your answer"
"""What stands around a problem that was written as a turn of a chat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A problem and its answer."""

    text: str
    """What is asked."""
    answer: str
    """The final answer; empty where the row has none."""
    split: str
    """What its file says: train, validation or test; empty = nothing."""
    source: str
    """The set's name: its file's, without what says the split."""


def read_problems(path: str, format: Format = "auto") -> list[Problem]:
    """All problems of a file, of a folder and what is in it, or of the files that a pattern such as `*.jsonl` names."""
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
    raise FileError(f"{where}: found the fields {fields}; format {format!r} has {wanted}; name the format that fits")


def _read_gsm8k(row: Row) -> tuple[str, str] | None:
    """A worked answer that ends in "#### 72"; thousands are parted by commas."""
    answer = row.get("answer")
    if not (isinstance(row.get("question"), str) and isinstance(answer, str) and "####" in answer):
        return None
    return str(row["question"]), answer.rpartition("####")[2].replace(",", "")


def _read_stated(row: Row) -> tuple[str, str] | None:
    """A problem and its answer, which a few rows leave open."""
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
    """A worked solution with its answer in a box."""
    text, solution = _find_text(row), row.get("solution")
    return (text, find_last_boxed(solution)) if text is not None and isinstance(solution, str) else None


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
    """OlympiadBench: a list of final answers, and a context that some questions share; a proof has none."""
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
"""Shapes of a row, in the order in which `auto` tries them; None = the row has another shape."""
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
"""The shapes in which each set is published."""
