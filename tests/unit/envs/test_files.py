"""Publishers' files: every shape of a row, what file names say, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from groupwise.envs.math import FIELDS, READERS, SHAPES, Format, Problem, read_problems
from groupwise.system.errors import ConfigError, FileError
from tests.unit.envs.math_sets import gsm8k, state_answers, write_json, write_lines

DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\nWhat is\n\n$6 \\cdot 7$?\n\nRemember "
    'to put your answer on its own line after "Answer:".'
)
ROWS: dict[str, tuple[Format, dict[str, Any], tuple[str, str]]] = {
    "gsm8k": (
        "gsm8k",
        {"question": "How many?", "answer": "500 + 700 = <<500+700=1200>>1200\n#### 1,200"},
        ("How many?", "1200"),
    ),
    "math, as published": (
        "math",
        {
            "problem": "Find $x$.",
            "level": "Level 5",
            "type": "Algebra",
            "solution": r"Not $\boxed{1}$ but $\boxed{\frac{1}{2}}$.",
        },
        ("Find $x$.", r"\frac{1}{2}"),
    ),
    "math-500": (
        "math",
        {"problem": "Find $x$.", "solution": r"$\boxed{7}$", "answer": "3", "subject": "Algebra"},
        ("Find $x$.", "3"),
    ),
    "math, without an answer": ("math", {"problem": "Find $x$.", "answer": None, "type": "A"}, ("Find $x$.", "")),
    "math, answer in the solution": (
        "math",
        {"problem": "Find $x$.", "answer": None, "solution": r"$\boxed{7}$"},
        ("Find $x$.", "7"),
    ),
    "dapo, as published": (
        "dapo",
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": DAPO_PROMPT}],
            "reward_model": {"ground_truth": "42", "style": "rule-lighteval/MATH_v2"},
        },
        ("What is\n\n$6 \\cdot 7$?", "42"),
    ),
    "dapo, as a table": ("dapo", {"problem": "\nFind $x$.\n", "answer": "34"}, ("Find $x$.", "34")),
    "aime 2024": (
        "aime",
        {"id": 60, "problem": "Find $s$.", "solution": "s is 204", "answer": 204},
        ("Find $s$.", "204"),
    ),
    "aime 2025": ("aime", {"question": "Find $b$.", "answer": "70"}, ("Find $b$.", "70")),
    "aime, capital": ("aime", {"ID": "2024-I-1", "Problem": "Find $b$.", "Answer": 70}, ("Find $b$.", "70")),
    "amc": ("amc", {"id": 0, "problem": "How far?", "answer": 27.0, "question": "How far?"}, ("How far?", "27")),
    "amc, fraction": ("amc", {"problem": "How far?", "answer": 0.25}, ("How far?", "0.25")),
    "minerva": (
        "minerva",
        {"problem": "How wide?", "solution": r"s=\boxed{1.6} cm", "type": "Astronomy", "idx": 0},
        ("How wide?", "1.6"),
    ),
    "olympiadbench": (
        "olympiadbench",
        {"question": "How many moves?", "context": "Xenia plays.", "final_answer": ["$2$", " $3$"]},
        ("Xenia plays.\nHow many moves?", "2, 3"),
    ),
    "olympiadbench, a proof": (
        "olympiadbench",
        {"question": "Prove it.", "context": None, "final_answer": None},
        ("Prove it.", ""),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_publishers_row_is_read_by_name_and_recognised_without(name: str, tmp_path: Path) -> None:
    format, row, (text, answer) = ROWS[name]
    path = write_lines(tmp_path / "some.jsonl", [row])
    expected = [Problem(text=text, answer=answer, split="", source="some")]
    assert read_problems(str(path), format) == expected
    assert read_problems(str(path)) == expected


def test_every_format_has_a_row_here_and_every_shape_a_format() -> None:
    assert {format for format, _, _ in ROWS.values()} == set(get_args(Format)) - {"auto"}
    assert {shape for shapes in SHAPES.values() for shape in shapes} == set(READERS) == set(FIELDS)


@pytest.mark.parametrize(
    ("file", "split", "source"),
    [
        ("gsm8k_train.jsonl", "train", "gsm8k"),
        ("test.jsonl", "test", "problems"),
        ("aime24.jsonl", "", "aime24"),
        ("main/train-00000-of-00001.jsonl", "train", "main"),
        ("MATH/test/algebra/12.json", "test", "math_algebra"),
        ("math_valid.json", "validation", "math"),
        ("contest.json", "", "contest"),
        ("latest.json", "", "latest"),
    ],
)
def test_names_of_files_and_folders_say_the_split_and_the_set(
    file: str, split: str, source: str, tmp_path: Path
) -> None:
    write = write_lines if file.endswith("jsonl") else write_json
    write(tmp_path / "train" / file, state_answers(2, 1))  # the folder that is given says nothing
    (problem,) = read_problems(str(tmp_path / "train"))
    assert (problem.split, problem.source) == (split, source)


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    write_lines(tmp_path / "gsm8k_train.jsonl", gsm8k(1, 3))
    write_lines(tmp_path / "gsm8k_test.jsonl", gsm8k(9, 2))
    write_json(tmp_path / "math" / "math_train.json", state_answers(2, 4))
    write_json(tmp_path / "math" / "one.json", state_answers(9, 1)[0])
    (tmp_path / "README.md").write_text("not problems")
    count = lambda path: len(read_problems(str(tmp_path / path)))  # noqa: E731
    assert [count("gsm8k_train.jsonl"), count("gsm8k_*.jsonl"), count("math"), count("")] == [3, 5, 5, 10]


def test_parquet_is_read_where_pyarrow_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "dapo_train.parquet"
    rows = [ROWS["dapo, as published"][1]]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_problems(str(path), "dapo") == [
        Problem(text="What is\n\n$6 \\cdot 7$?", answer="42", split="train", source="dapo")
    ]
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="not Parquet"):
        read_problems(str(path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError) as raised:
        read_problems(str(path))
    needed = "Parquet needs a package that is not installed; pip install 'groupwise[parquet]'"
    assert str(raised.value) == f"{path}: {needed}"


def _nothing(folder: Path) -> str:
    return str(folder / "nowhere")


def _empty(folder: Path) -> str:
    return str(folder)


def _write_broken(folder: Path) -> str:
    (folder / "a.jsonl").write_text('{"problem": "x"')
    return str(folder)


def _numbers(folder: Path) -> str:
    return str(write_json(folder / "a.json", [1, 2]))


def _foreign(folder: Path) -> str:
    return str(write_lines(folder / "a.jsonl", [state_answers(2, 1)[0], {"text": "hello", "label": 1}]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_nothing, "math: there are no problems at '{path}'; give a file, a folder or a pattern of .jsonl, .json, "),
        (_empty, "math: there are no problems at '{path}'; give a file, a folder or a pattern of .jsonl, .json, "),
        (
            _write_broken,
            "{path}/a.jsonl:1: not JSON: Expecting ',' delimiter at column 16; "
            "fix the line, or download the file again",
        ),
        (_numbers, "{path}, row 1: found int; a problem is an object with named fields"),
        (_foreign, "{path}:2: found the fields text, label; format 'auto' has `question` and `final_answer`; or "),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(make: Callable[[Path], str], message: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises((ConfigError, FileError)) as raised:
        read_problems(path)
    assert str(raised.value).startswith(message.format(path=path))


def test_a_row_of_another_format_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", state_answers(2, 1))
    with pytest.raises(FileError) as raised:
        read_problems(str(path), "gsm8k")
    assert str(raised.value) == (
        f"{path}:1: found the fields problem, answer; format 'gsm8k' has `question` and an `answer` that ends in "
        "#### and the number; choose the format that fits"
    )
