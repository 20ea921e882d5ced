"""Mathematical problems as their publishers write them: JSON lines, JSON or Parquet, one problem a row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal

from groupwise.core.errors import ConfigError, FileError
from groupwise.envs.kit.answers import find_last_boxed

Format = Literal["auto", "gsm8k", "math", "dapo", "aime", "amc", "minerva", "olympiadbench"]
_REQUEST = "Solve the following math problem"
_REMINDER = "\n\nRemember to put your answer"
"""What stands around a problem that was written as a turn of a chat."""
SUFFIXES = (".jsonl", ".json", ".parquet")
SAYS_SPLIT = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
"""Words of a file's or folder's name that say its split."""
Row = Mapping[str, Any]


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
    for file, parts in _find_files(path):
        split, source = _read_file_name(parts)
        for where, row in _read_rows(file):
            text, answer = _read_row(where, row, format)
            problems.append(Problem(text=text, answer=answer, split=split, source=source))
    return problems


def _find_files(path: str) -> list[tuple[Path, tuple[str, ...]]]:
    """The files, each with the part of its path that may say its split: what stands above `path` says nothing."""
    place = Path(path).expanduser()
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.suffix in SUFFIXES)
        named = [(file, file.relative_to(place).with_suffix("").parts) for file in files]
    else:
        files = [Path(file) for file in sorted(glob(str(place)))] if has_magic(path) else [place]
        named = [(file, (file.stem,)) for file in files if file.is_file()]
    if not named:
        raise ConfigError(
            f"math: there are no problems at {path!r}; give a file, a folder or a pattern of {', '.join(SUFFIXES)} "
            "files, as the publisher offers them"
        )
    return named


def _read_file_name(parts: tuple[str, ...]) -> tuple[str, str]:
    """A file's split and the name of its set.

    >>> _read_file_name(("gsm8k_train",)), _read_file_name(("test", "algebra", "12"))
    (('train', 'gsm8k'), ('test', 'algebra'))
    """
    tokens = [token for part in parts for token in re.split(r"[^a-z0-9]+", part.lower()) if token]
    splits = [SAYS_SPLIT[token] for token in tokens if token in SAYS_SPLIT]
    # Parts of a set ("train-00000-of-00002") and files of one problem ("12.json") have numbers that name nothing.
    names = [token for token in tokens if token not in SAYS_SPLIT and token != "of" and not token.isdigit()]
    return splits[-1] if splits else "", "_".join(names) or "problems"


def _read_rows(file: Path) -> Iterator[tuple[str, Row]]:
    if file.suffix == ".parquet":
        rows = _read_parquet(file)
    else:
        try:
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".jsonl":
                rows = [json.loads(line) for line in text.splitlines() if line.strip()]
            else:
                content = json.loads(text)
                rows = content if isinstance(content, list) else [content]
        except (ValueError, RecursionError) as error:
            raise FileError(f"{file}: not {file.suffix[1:].upper()}: {error}; fetch the file again") from None
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise FileError(
                f"{file}, row {number}: found {type(row).__name__}; a problem is an object with named fields"
            )
        yield f"{file}, row {number}", row


def _read_parquet(file: Path) -> list[Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(
            f"{file}: Parquet needs a package that is not here; pip install 'groupwise[parquet]'"
        ) from None
    try:
        return list(parquet.read_table(file).to_pylist())
    except pyarrow.ArrowException as error:
        raise FileError(f"{file}: not Parquet: {error}; fetch the file again") from None


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
