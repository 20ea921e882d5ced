"""What is wrong with a row is told with its place, before any work."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, FileError
from groupwise.envs import DataSet
from tests.unit.envs.row_sets import write_rows

GOOD = {"prompt": "How much?", "answer": "1"}
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How much?"}]


def read(path: str, **settings: Any) -> str:
    """The sentence that a data set is refused with."""
    with pytest.raises((ConfigError, FileError)) as raised:
        DataSet(path=path, **settings).task_set("train")
    return str(raised.value)


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        (
            {"question": "?", "label": 1},
            {},
            "there is no column 'prompt' for the prompt; it has question, label. Set "
            "env.columns.prompt to the right column",
        ),
        (
            {"prompt": "?", "target": 1},
            {},
            "there is no column 'answer' for the answer; it has prompt, target. Set "
            "env.columns.answer to the right column",
        ),
        (
            GOOD,
            {"columns": {"id": "uid"}},
            "there is no column 'uid' for the id; it has prompt, answer. Set env.columns.id to the right column, "
            "or to the empty text",
        ),
        ([1, 2], {}, "found list; a row is an object with named fields"),
        (GOOD | {"prompt": " "}, {}, "the prompt is ' '; give a text that is not empty"),
        (GOOD | {"prompt": 3}, {}, "the prompt is 3; give a text that is not empty"),
        (
            GOOD | {"prompt": [*CHAT, {"role": "assistant", "content": "1"}]},
            {},
            "the prompt is a chat of system, user, assistant; give one user message, optionally "
            "after one system message",
        ),
        (
            GOOD | {"answer": None},
            {},
            'the answer is None; give text or a number, or use your own reward and set env.verifier to "none"',
        ),
        (
            GOOD,
            {"answer_after": "####"},
            "there is no text after '####' in the answer '1'; fix the row, or env.answer_after",
        ),
        (
            GOOD | {"answer": "#### two"},
            {"verifier": "number", "answer_after": "####"},
            "the answer 'two' is not a number such as 1,200, -0.5 or 3/4; fix the row, "
            "set env.answer_after to the text before the number, or choose another env.verifier",
        ),
        (
            GOOD | {"part": "both"},
            {"columns": {"split": "part"}},
            "the split is 'both'; write one of train, training, val, valid, validation, dev, test",
        ),
    ],
)
def test_a_row_that_is_of_no_use(row: Any, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [GOOD | {"uid": 1, "part": "test", "answer": "#### 1"}, row])
    assert read(path, **settings) == f"{path}:2: {message}"


def test_an_answer_of_too_many_digits_is_no_number(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [GOOD, GOOD | {"answer": "9" * 5000}])
    assert read(path, verifier="number").startswith(f"{path}:2: the answer '999")


def test_a_line_that_is_no_json_is_told_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n\n{"prompt": \n', encoding="utf-8")
    assert read(str(tmp_path / "rows.jsonl")) == (
        f"{tmp_path}/rows.jsonl:3: not JSON: Expecting value at column 12; fix the line, or download the file again"
    )


def test_files_that_are_empty_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n", encoding="utf-8")
    assert read(str(tmp_path / "rows.jsonl")) == (
        f"{tmp_path}/rows.jsonl: the file has no rows; write one object per task, or remove it"
    )
    assert read(str(tmp_path / "nowhere.jsonl")) == (
        f"data_set: there are no rows at '{tmp_path}/nowhere.jsonl'; give a file, a folder or a pattern of .jsonl, "
        ".json, .parquet files"
    )


def test_two_rows_of_one_id_are_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [GOOD | {"id": 7}, GOOD | {"id": 8}, GOOD | {"id": 7, "prompt": "?"}])
    assert read(path, columns={"id": "id"}) == (
        f"{path}:3: its id '7' is also that of {path}:1; give every row its own id, or remove env.columns.id"
    )


def test_the_messages_of_a_chat_are_one_prompt(tmp_path: Path) -> None:
    rows = [GOOD | {"prompt": prompt, "part": "train"} for prompt in (CHAT, CHAT[1:])]
    part = DataSet(path=write_rows(tmp_path / "rows.jsonl", rows), columns={"split": "part"})
    shown = {part.open(task).observe().text for task in part.task_set("train")}
    assert shown == {"Be brief.\n\nHow much?", "How much?"}


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def test_parquet_gives_the_tasks_of_json_lines(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}?", "answer": n, "tools": ["a"], "share": 0.5} for n in range(40)]
    (tmp_path / "a").mkdir()
    in_lines = DataSet(path=write_rows(tmp_path / "a" / "rows.jsonl", rows))
    in_parquet = DataSet(path=write_parquet(tmp_path / "rows.parquet", rows))
    assert in_lines.task_set("train") == in_parquet.task_set("train")


def test_what_json_cannot_say_is_left_out_by_name_or_refused(tmp_path: Path) -> None:
    rows = [GOOD | {"when": datetime.date(2026, 1, 1), "share": float("nan")}]
    path = write_parquet(tmp_path / "train.parquet", rows)
    assert read(path) == (
        f"{path}, row 1: the column 'when' holds date, which a task cannot store; add it to env.leave_out, or use "
        "text and numbers"
    )
    [task] = DataSet(path=path, leave_out=["when"]).task_set("train")
    assert task.payload == GOOD | {"share": None}


def test_a_family_is_a_tag(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "train.jsonl", [GOOD | {"topic": "north, south"}])
    [task] = DataSet(path=path, columns={"tag": "topic"}).task_set("train")
    assert task.tags == ("north; south",)
