"""From the rows of a data set to tasks: columns by their map, splits, and what is refused before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.parts.part import Part
from groupwise.core.text.json_text import is_plain
from groupwise.core.text.safe_text import quote_line
from groupwise.envs.data_set.hugging_face import is_hugging_face, read_hugging_face
from groupwise.envs.kit.answers import MAX_ANSWER_CHARACTERS, read_number
from groupwise.envs.kit.row_files import SAYS_SPLIT, find_row_files, read_rows, read_split_name


class Columns(Part):
    """Which column holds what; every column stays with the task under its own name, for reward functions."""

    prompt: str = "prompt"
    """What is asked: text, or the messages of a chat (one of the user's, perhaps after one of the system's)."""
    answer: str = "answer"
    """The right answer, text or a number; the verifier "none" does without."""
    id: str = ""
    """What rows are known by, which no two may share; empty = their content alone."""
    split: str = ""
    """train, validation or test; empty = what files are called, or the prompts, decide."""
    tag: str = ""
    """A family, by which evaluations are told apart; empty = none."""


@dataclass(frozen=True, kw_only=True)
class DataRow:
    """A row that can become a task."""

    where: str
    """Its file and line, for messages."""
    prompt: str
    """What is asked, as it is shown."""
    split: str
    """What the row, its file or its set says: train, validation or test; empty = nothing."""
    tags: tuple[str, ...]
    """Its family, if any."""
    values: Mapping[str, Any]
    """Every column, as JSON values."""

    def identify_prompt(self) -> dict[str, str]:
        """What its split follows from."""
        return identify_prompt(self.prompt)


@dataclass(frozen=True)
class RowReader:
    """Reads rows as a column map says."""

    columns: Columns
    leave_out: tuple[str, ...]
    verifier: str
    """What answers are compared by: "none" does without, "number" needs numbers."""
    answer_after: str

    def read(self, path: str, *, subset: str = "", revision: str = "") -> list[DataRow]:
        """All rows of a file, a folder, a pattern or a data set; refused with its place where one is of no use."""
        rows = [self._read_row(*placed) for placed in _find_rows(path, subset, revision)]
        if not rows:
            raise FileError(f"data_set: {path!r} has no rows; write one object for each task")
        return rows

    def _read_row(self, where: str, split_name: str, row: Mapping[str, Any]) -> DataRow:
        columns = self.columns
        for use in ("prompt", "id", "split", "tag", *(["answer"] if self.verifier != "none" else [])):
            name = getattr(columns, use)
            if name and name not in row:
                there = ", ".join(map(str, row)) or "no columns at all"
                raise FileError(
                    f"{where}: there is no column {name!r} for the {use}; it has {there}: name the one that holds it "
                    f"in env.columns.{use}"
                )
        values = {name: _to_plain(value) for name, value in row.items() if name not in self.leave_out}
        if not is_plain(values):
            strange = next((name for name, value in values.items() if not is_plain([value])), "")
            raise FileError(
                f"{where}: the column {strange!r} holds {type(values.get(strange)).__name__}, which a task cannot "
                f"keep; add it to env.leave_out, or store text and numbers"
            )
        if self.verifier != "none":
            answer = read_answer_of(where, values[columns.answer], self.answer_after)
            if self.verifier == "number":
                _check_number(where, answer)
        return DataRow(
            where=where,
            prompt=read_prompt(where, values[columns.prompt]),
            split=_read_split(where, values[columns.split]) if columns.split else read_split_name([split_name])[0],
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
            raise FileError(f"{file}: the file has no rows; write one object for each task, or take it away")
        yield from ((where, " ".join(parts), row) for where, row in rows)


def read_prompt(where: str, prompt: Any) -> str:
    """The text of a prompt: as it stands, or what the user says in a chat, after what the system says."""
    if isinstance(prompt, list):
        turns = [turn if isinstance(turn, Mapping) else {} for turn in prompt]
        roles = [turn.get("role") for turn in turns]
        if roles not in (["user"], ["system", "user"]):
            raise FileError(
                f"{where}: the prompt is a chat of {', '.join(map(str, roles)) or 'no messages'}; give one message of "
                "the user's, at most with one of the system's before it"
            )
        prompt = "\n\n".join(str(turn.get("content") or "") for turn in turns)
    if not isinstance(prompt, str) or not prompt.strip():
        raise FileError(f"{where}: the prompt is {quote_line(repr(prompt), limit=60)}; give text that asks something")
    return prompt.strip()


def identify_prompt(prompt: str) -> dict[str, str]:
    """What a split follows from: a prompt's words, in any case and spacing."""
    return {"prompt": " ".join(prompt.lower().split())}


def read_answer_of(where: str, stored: Any, answer_after: str) -> str:
    """The right answer, as text: what stands after the last `answer_after`, where that is set."""
    if isinstance(stored, float):  # a table of numbers makes 27.0 of 27, and JSON 1e-05 of 0.00001
        stored = int(stored) if stored.is_integer() else format(Decimal(str(stored)), "f")
    if isinstance(stored, bool) or not isinstance(stored, str | int | float) or not str(stored).strip():
        raise FileError(
            f"{where}: the answer is {quote_line(repr(stored), limit=60)}; give text or a number, or judge by a reward "
            'of your own and set env.verifier to "none"'
        )
    _, marker, after = str(stored).rpartition(answer_after) if answer_after else ("", "", str(stored))
    if answer_after and not (marker and after.strip()):
        raise FileError(
            f"{where}: nothing stands after {answer_after!r} in the answer {quote_line(repr(stored), limit=60)}; mend "
            "the row, or env.answer_after"
        )
    return after.strip()


def _check_number(where: str, answer: str) -> None:
    if len(answer) > MAX_ANSWER_CHARACTERS or read_number(answer) is None:
        raise FileError(
            f"{where}: the answer {quote_line(repr(answer), limit=60)} is no number such as 1,200, -0.5 or 3/4, so "
            "that no response could be right; mend the row, say in env.answer_after what stands before the number, or "
            "take another env.verifier"
        )


def check_ids(rows: Sequence[DataRow], column: str) -> None:
    """Refuse two rows that go by one id."""
    places: dict[str, str] = {}
    for row in rows if column else ():
        name = str(row.values[column])
        if name in places:
            raise ConfigError(
                f"{row.where}: its id {quote_line(name, limit=60)!r} is also that of {places[name]}; give every row an "
                "id of its own, or leave env.columns.id out"
            )
        places[name] = row.where


def _read_split(where: str, said: Any) -> str:
    split = SAYS_SPLIT.get(str(said).lower())
    if split is None:
        raise FileError(
            f"{where}: the split is {quote_line(repr(said), limit=60)}; write one of {', '.join(SAYS_SPLIT)}"
        )
    return split


def _to_plain(value: Any) -> Any:
    """A number that is none, which tables write for what is missing, as nothing."""
    return None if isinstance(value, float) and math.isnan(value) else value
