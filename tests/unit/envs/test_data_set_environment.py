"""Tasks from a file of one's own: splits, ids, task sets and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError
from groupwise.envs import SPLITS, DataSet, Math, check_environment, task_set_hash
from tests.unit.envs.row_sets import sums, write_rows

GSM8K: dict[str, Any] = {
    "columns": {"prompt": "question"},
    "answer_after": "####",
    "verifier": "number",
    "form": "last_number",
}


def prompts(part: DataSet, split: str) -> set[str]:
    return {task.payload[part.columns.prompt] for task in part.task_set(split)}


def test_a_file_that_says_no_split_is_divided_by_its_prompts_and_every_column_stays(tmp_path: Path) -> None:
    part = DataSet(path=write_rows(tmp_path / "sums.jsonl", sums(0, 200)), **GSM8K)
    sizes = {split: len(part.task_set(split)) for split in SPLITS}
    assert sum(sizes.values()) == 200
    assert 100 < sizes["train"] < 180
    assert min(sizes.values()) > 5
    for split in SPLITS:
        for task in part.task_set(split):
            assert set(task.payload) == {"question", "answer", "level"}
    fewer = DataSet(path=write_rows(tmp_path / "less" / "sums.jsonl", reversed(sums(0, 100))), **GSM8K)
    for split in SPLITS:
        assert {task.id for task in fewer.task_set(split)} <= {task.id for task in part.task_set(split)}


def test_a_split_is_what_the_column_says_else_the_files_name(tmp_path: Path) -> None:
    rows = [{"prompt": str(n), "answer": "a", "part": part} for n, part in enumerate(("Train", "dev", "test", "test"))]
    by_column = DataSet(path=write_rows(tmp_path / "a_train.jsonl", rows), columns={"split": "part"})
    assert {split: prompts(by_column, split) for split in SPLITS} == {
        "train": {"0"},
        "validation": {"1"},
        "test": {"2", "3"},
    }
    write_rows(tmp_path / "b" / "train.jsonl", sums(0, 60))
    write_rows(tmp_path / "b" / "test.jsonl", sums(100, 4))
    by_name = DataSet(path=str(tmp_path / "b"), **GSM8K)
    assert prompts(by_name, "test") == {row["question"] for row in sums(100, 4)}
    assert prompts(by_name, "train") | prompts(by_name, "validation") == {row["question"] for row in sums(0, 60)}
    test = write_rows(tmp_path / "held_out.jsonl", sums(200, 3))
    beside = DataSet(path=write_rows(tmp_path / "all.jsonl", sums(0, 60)), test_path=test, **GSM8K)
    assert prompts(beside, "test") >= {row["question"] for row in sums(200, 3)}


def test_equal_rows_are_one_task_and_a_prompt_is_in_one_split(tmp_path: Path) -> None:
    row, other = {"prompt": "One?", "answer": "1"}, {"prompt": "Two?", "answer": "2"}
    write_rows(tmp_path / "train.jsonl", [row, row, other, other | {"answer": "two"}])
    write_rows(tmp_path / "validation.jsonl", [{"prompt": "Three?", "answer": "3"}])
    write_rows(tmp_path / "test.jsonl", [{"prompt": " one? ", "answer": "un"}])
    part = DataSet(path=str(tmp_path))
    assert [task.payload["answer"] for task in part.task_set("test")] == ["un"]
    assert {task.payload["answer"] for task in part.task_set("train")} == {"2", "two"}
    assert part.counts() == {"train": 2, "validation": 1, "test": 1, "duplicates": 2}


def test_a_changed_file_makes_another_task_set_in_the_same_process(tmp_path: Path) -> None:
    part = DataSet(path=write_rows(tmp_path / "sums.jsonl", sums(0, 50)), **GSM8K)
    before = task_set_hash(part.task_set("train"))
    changed = sums(0, 50)
    for row in changed:
        row["level"] += 1  # a column that only a reward function reads
    write_rows(tmp_path / "sums.jsonl", changed)
    assert task_set_hash(part.task_set("train")) != before
    write_rows(tmp_path / "sums.jsonl", sums(0, 50))
    assert task_set_hash(part.task_set("train")) == before


def test_task_sets_can_be_smaller(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "sums.jsonl", sums(0, 200))
    whole, part = DataSet(path=path, **GSM8K), DataSet(path=path, num_train=7, num_test=3, **GSM8K)
    assert part.task_set("train") == whole.task_set("train")[:7]
    assert part.task_set("test") == whole.task_set("test")[:3]


@pytest.mark.parametrize("form", ["whole", "tags", "boxed"])
def test_it_keeps_every_rule(form: str, tmp_path: Path) -> None:
    part = DataSet(path=write_rows(tmp_path / "sums.jsonl", sums(0, 200)), **GSM8K | {"form": form})
    assert [result.rule for result in check_environment(part) if result.status == "broken"] == []


def answer(tmp_path: Path, said: str, **settings: Any) -> tuple[float, bool | None, bool]:
    row = {"prompt": "How much?", "answer": settings.pop("stored"), "split": "train"}
    fields = {"form": "tags", "columns": {"split": "split"}, **settings}
    part = DataSet(path=write_rows(tmp_path / "one.jsonl", [row]), **fields)
    outcome = part.open(part.task_set("train")[0]).act(said)
    return outcome.reward, outcome.success, outcome.accepted


@pytest.mark.parametrize(
    ("verifier", "stored", "said", "is_right"),
    [
        ("words", "New York", "<answer>new  york</answer>", True),
        ("words", "New York", "<answer>York</answer>", False),
        ("text", "New York", "<answer>new york</answer>", False),
        ("text", "New York", "<answer> New York </answer>", True),
        ("number", 1200.0, "<answer>$1,200</answer>", True),
        ("number", "1200", "<answer>1201</answer>", False),
        ("number", 1e-05, "<answer>0.00001</answer>", True),
        ("math", "1/2", r"<answer>\frac{1}{2}</answer>", True),
        ("math", "1/2", "<answer>1/3</answer>", False),
    ],
)
def test_verifiers(verifier: str, stored: object, said: str, is_right: bool, tmp_path: Path) -> None:
    if verifier == "math":
        pytest.importorskip("math_verify")
    assert answer(tmp_path, said, verifier=verifier, stored=stored) == (float(is_right), is_right, True)


def test_a_response_without_the_form_is_no_answer(tmp_path: Path) -> None:
    assert answer(tmp_path, "New York", verifier="words", stored="New York") == (0.0, False, False)


def test_without_a_verifier_any_response_ends_the_rollout_and_nobody_says_how(tmp_path: Path) -> None:
    assert answer(tmp_path, "whatever", verifier="none", stored=None) == (0.0, None, True)
    assert answer(tmp_path, " ", verifier="none", stored="x") == (0.0, None, False)
    for stored in ("", True, ["a", "b"], {"a": 1}):  # whatever a reward can read
        assert answer(tmp_path, "whatever", verifier="none", stored=stored) == (0.0, None, True)
    part = DataSet(path=write_rows(tmp_path / "p.jsonl", [{"prompt": "Write a poem.", "style": 3}]), verifier="none")
    assert (part.instruction(), part.tells_success) == ("", False)
    assert {"poem", "answered"} <= set(part.vocabulary())


def test_the_instruction_asks_for_the_form_or_is_your_own(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "sums.jsonl", sums(0, 20))
    assert DataSet(path=path, **GSM8K).instruction() == "End with the final answer, a number."
    assert DataSet(path=path, instruction_line="Think first.", **GSM8K).instruction() == "Think first."


def test_a_checker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = DataSet(path=write_rows(tmp_path / "sums.jsonl", sums(0, 20)), **GSM8K | {"verifier": "math"})
    monkeypatch.setattr("groupwise.envs.data_set.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as raised:
        part.task_set("train")
    assert str(raised.value) == (
        "the environment 'data_set' needs a package that is not installed; pip install 'groupwise[math]'"
    )


@pytest.mark.parametrize("name", ["questions.jsonl", "train.jsonl"])
def test_too_few_rows_to_cut_a_split_out_of_are_counted(tmp_path: Path, name: str) -> None:
    path = write_rows(tmp_path / name, sums(0, 2))
    lacking = [split for split in SPLITS if not DataSet(path=path, **GSM8K).counts()[split]]
    assert lacking, "two rows do not make three splits"
    messages = {
        "train": "be divided into training, validation and test; add rows, or a split column",
        "validation": "cut out 10 % for validation; add rows, or a split column",
        "test": "cut out 16 % for test; add rows, a split column, or test_path",
    }
    for split in lacking:
        with pytest.raises(ConfigError) as raised:
            DataSet(path=path, **GSM8K).task_set(split)
        assert str(raised.value) == f"data_set: {path!r}: 2 rows are too few to {messages[split]}"


def refusal(part: DataSet, split: str) -> str:
    with pytest.raises(ConfigError) as raised:
        part.task_set(split)
    return str(raised.value)


def test_rows_whose_prompts_are_all_in_another_split_are_not_called_too_few(tmp_path: Path) -> None:
    path, remedy = write_rows(tmp_path / "all.jsonl", sums(0, 60)), "add rows with other prompts, or remove them"
    both = DataSet(path=path, test_path=path, **GSM8K)
    by_split = {split: len(DataSet(path=path, **GSM8K).task_set(split)) for split in SPLITS}
    for split in ("train", "validation"):
        assert refusal(both, split) == (
            f"data_set: {path!r}: every prompt for the split {split!r} ({by_split[split]} rows) is also in test_path "
            f"and stays there; {remedy} there"
        )
    folder = tmp_path / "named"
    for name in ("train", "validation", "test"):
        write_rows(folder / f"{name}.jsonl", sums(0, 1))
    assert refusal(DataSet(path=str(folder), **GSM8K), "train") == (
        f"data_set: {str(folder)!r}: every prompt for the split 'train' (1 row) is also in the split 'test' and stays "
        f"there; {remedy} there"
    )


def test_a_file_of_another_kind_is_not_called_broken(tmp_path: Path) -> None:
    path = tmp_path / "sums.csv"
    path.write_text("question,answer\n1+1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        DataSet(path=str(path), **GSM8K).task_set("train")
    assert str(raised.value) == (f"{path}: the file suffix is '.csv'; expected .jsonl, .json or .parquet")


def test_an_empty_path_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path / "train.jsonl", sums(0, 3))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="DataSet: path: string should have at least 1 character"):
        DataSet(path="", **GSM8K)
    with pytest.raises(ConfigError, match="Math: path: string should have at least 1 character"):
        Math(path="")


def test_a_split_without_rows_is_a_sentence(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "test.jsonl", sums(0, 3))
    with pytest.raises(ConfigError) as raised:
        DataSet(path=path, **GSM8K).task_set("train")
    assert str(raised.value) == f"data_set: {path!r} has no row for the split 'train'; add rows for it"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"subset": "main"},
            "DataSet: subset: '/data/a.jsonl' is not on the hub; write hub:OWNER/NAME, or remove subset",
        ),
        (
            {"columns": {"answer": ""}},
            'DataSet: columns.answer is empty; name the column, or use a reward and verifier = "none"',
        ),
        ({"leave_out": ["answer"]}, "DataSet: leave_out: the column 'answer' is also in columns; remove it from one "),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        DataSet(path="/data/a.jsonl", **settings)
    assert str(raised.value).startswith(message)
