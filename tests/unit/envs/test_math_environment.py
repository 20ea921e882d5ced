"""Problems with math-verify: the splits, the verdicts, and, where they are at hand, the publishers' own files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from groupwise.data.records import Task
from groupwise.envs import Math, check_environment, task_set_hash
from groupwise.envs.environment import Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.task_set import SPLITS
from groupwise.rollout.worker_pool import Workers
from groupwise.system.errors import ConfigError
from tests.unit.envs.math_sets import gsm8k, state_answers, write_lines

SETS = Path(os.environ.get("GROUPWISE_MATH_DATA", Path(__file__).parents[4] / "shared" / "data" / "math"))
"""Where the publishers' files may lie."""


def texts(part: Math, split: str) -> set[str]:
    return {task.payload["problem"] for task in part.task_set(split)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_lines(tmp_path / "gsm8k_train.jsonl", gsm8k(1, 200))
    write_lines(tmp_path / "gsm8k_test.jsonl", gsm8k(1000, 20))
    return tmp_path


def test_without_the_package_one_sentence_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ConfigError) as raised:
        Math(path=str(folder)).task_set("train")
    assert str(raised.value) == (
        "the environment 'math' needs a package that is not installed; pip install 'groupwise[math]'"
    )


class TestTaskSets:
    @pytest.fixture(autouse=True)
    def math_verify(self) -> Any:
        return pytest.importorskip("math_verify", reason="the extra `math` is not installed")

    def test_the_publishers_splits_are_kept_and_validation_is_cut_out_of_training(self, folder: Path) -> None:
        part = Math(path=str(folder))
        assert texts(part, "test") == {row["question"] for row in gsm8k(1000, 20)}
        assert texts(part, "train") | texts(part, "validation") == {row["question"] for row in gsm8k(1, 200)}
        assert 8 <= len(part.task_set("validation")) <= 35
        assert part.counts() == {
            "train": len(part.task_set("train")),
            "validation": len(part.task_set("validation")),
            "test": 20,
            "duplicates": 0,
            "without_answer": 0,
        }
        assert {task.tags for task in part.task_set("train")} == {("gsm8k",)}

    def test_a_problems_split_does_not_depend_on_what_else_is_there(self, folder: Path, tmp_path: Path) -> None:
        whole = Math(path=str(folder))
        fewer = Math(path=str(write_lines(tmp_path / "less" / "x_train.jsonl", gsm8k(1, 100))))
        assert texts(fewer, "validation") == texts(whole, "validation") & {row["question"] for row in gsm8k(1, 100)}
        assert texts(fewer, "test") <= {row["question"] for row in gsm8k(1, 100)}, (
            "no file has it, so it is cut out too"
        )

    def test_a_set_that_says_nothing_is_divided_by_its_problems(self, tmp_path: Path) -> None:
        part = Math(path=str(write_lines(tmp_path / "aime24.jsonl", state_answers(2, 300))))
        sizes = Counter({split: len(part.task_set(split)) for split in SPLITS})
        assert sum(sizes.values()) == 300
        assert 190 < sizes["train"] < 250
        assert 30 < sizes["test"] < 70

    def test_beside_training_files_a_set_that_says_nothing_is_for_the_test(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "dapo_train.jsonl", state_answers(2, 100))
        write_lines(tmp_path / "aime24.jsonl", state_answers(500, 5))
        part = Math(path=str(tmp_path))
        assert texts(part, "test") == {row["problem"] for row in state_answers(500, 5)}
        assert len(part.task_set("train")) + len(part.task_set("validation")) == 100

    def test_a_test_set_from_elsewhere(self, tmp_path: Path) -> None:
        train = write_lines(tmp_path / "dapo_train.jsonl", state_answers(2, 100))
        test = write_lines(tmp_path / "aime_train.jsonl", state_answers(500, 5))
        assert texts(Math(path=str(train), test_path=str(test)), "test") == {
            row["problem"] for row in state_answers(500, 5)
        }

    def test_a_test_problem_is_taken_out_of_training_and_counted(self, tmp_path: Path) -> None:
        again = [{"problem": "  what IS $3^2$? ", "answer": "9"}, {"problem": "Prove it.", "answer": ""}]
        write_lines(tmp_path / "a_train.jsonl", [*state_answers(2, 60), *state_answers(2, 1)])
        write_lines(tmp_path / "a_test.jsonl", [*again, *state_answers(100, 3)])
        part = Math(path=str(tmp_path))
        assert part.counts()["duplicates"] == 2, "one again in training, one in the test too"
        assert part.counts()["without_answer"] == 1
        assert "what IS $3^2$?" in texts(part, "test")
        assert not {"What is $3^2$?"} & (texts(part, "train") | texts(part, "validation"))
        with pytest.raises(ConfigError) as raised:
            Math(path=str(tmp_path), duplicates="refuse").task_set("train")
        assert '; remove it from one of the files, or set duplicates = "drop"' in str(raised.value)

    def test_task_sets_are_cut_to_size_and_fixed(self, folder: Path) -> None:
        part = Math(path=str(folder), num_train=7, num_test=3)
        assert (len(part.task_set("train")), len(part.task_set("test"))) == (7, 3)
        assert part.task_set("train") == Math(path=str(folder)).task_set("train")[:7]
        # Provenance: printed by task_set_hash of these problems, which this file writes.
        assert task_set_hash(part.task_set("test"))[:12] == "8e63fb12f357"

    def test_a_split_that_nobody_has_is_told(self, folder: Path) -> None:
        with pytest.raises(ConfigError) as raised:
            Math(path=str(folder / "gsm8k_test.jsonl")).task_set("train")
        assert str(raised.value) == (
            f"math: '{folder / 'gsm8k_test.jsonl'}' has no problem for the split 'train'; add a file with that split"
        )
        assert Math(path=str(folder / "gsm8k_test.jsonl")).vocabulary()

    @pytest.mark.parametrize("form", ["boxed", "tags", "whole", "last_line"])
    def test_it_keeps_every_rule_of_environments(self, folder: Path, form: Any) -> None:
        results = check_environment(Math(path=str(folder), form=form))
        assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
        untested = {result.rule for result in results if result.status == "not tested"}
        expected = {"admissible_actions_are_accepted", "state_key_has_no_counter_or_clock"}
        assert untested == expected, "answers are free, and a question comes once"


def play(answer: str, response: str, **fields: Any) -> tuple[float, bool, str]:
    part = Math(path="unread", **fields)
    task = Task.create(env="math", payload={"problem": "?", "answer": answer})
    outcome = part.open(task).act(response)
    return outcome.reward, outcome.accepted, outcome.note


class TestVerdicts:
    @pytest.fixture(autouse=True)
    def math_verify(self) -> Any:
        return pytest.importorskip("math_verify", reason="the extra `math` is not installed")

    @pytest.mark.parametrize(
        ("stored", "response", "reward"),
        [
            ("1200", r"So \boxed{1,200}.", 1.0),
            ("0.5", r"\boxed{\frac{1}{2}}", 1.0),
            (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}", 1.0),
            ("42", r"first \boxed{42}, then \boxed{43}", 0.0),
            ("42", r"\boxed{-42}", 0.0),
            ("x+1", r"\boxed{1+x}", 1.0),
        ],
    )
    def test_equal_answers_in_another_writing_are_right(self, stored: str, response: str, reward: float) -> None:
        assert play(stored, response) == (reward, True, "")

    @pytest.mark.parametrize("form", ["whole", "last_line"])
    def test_a_free_response_is_searched_and_a_bare_expression_is_taken(self, form: Any) -> None:
        assert play("42", "42", form=form) == (1.0, True, "")
        assert play("42", "43", form=form) == (0.0, True, "")
        assert play(r"\frac{1}{2}", r"\frac12", form=form) == (1.0, True, "")

    def test_without_a_box_there_is_no_answer(self) -> None:
        assert play("42", "The answer is 42.") == (0.0, False, "")

    def test_worker_processes_and_threads_judge_alike(self, folder: Path) -> None:
        part = Math(path=str(folder), verifier_seconds=2.0)
        tasks = dict(enumerate(part.task_set("test")[:3]))
        said = {0: f"\\boxed{{{tasks[0].payload['answer']}}}", 1: r"\boxed{7}", 2: r"\boxed{9^{9^{9^{9}}}!}"}
        with Workers(part, num=1, timeout=60.0) as host:
            host.open(tasks)
            in_worker = host.act(said)
        with ThreadPoolExecutor(3) as pool:
            in_thread = dict(pool.map(lambda n: (n, part.open(tasks[n]).act(said[n])), tasks))
        for outcomes_there in (in_worker, in_thread):
            outcomes = [outcomes_there[number] for number in tasks]
            assert [isinstance(outcome, Outcome) and outcome.reward for outcome in outcomes] == [1.0, 0.0, 0.0]
            assert [isinstance(outcome, Outcome) and bool(outcome.note) for outcome in outcomes] == [False, False, True]

    def test_an_answer_that_takes_for_ever_is_a_zero_with_a_reason(self) -> None:
        reward, accepted, note = play("7", r"\boxed{9^{9^{9^{9}}}!}", verifier_seconds=0.5)
        assert (reward, accepted) == (0.0, True)
        assert note.startswith("the verifier "), note
        assert play("7", r"\boxed{7}") == (1.0, True, "")


@pytest.mark.parametrize(
    ("file", "rows", "min_right"),
    [
        ("gsm8k_test.jsonl", 1319, 60),
        ("math_train.json", 7474, 60),
        ("math500.jsonl", 500, 60),
        ("aime24.jsonl", 30, 30),
        ("aime25.jsonl", 30, 30),
        ("amc23.jsonl", 40, 40),
        ("minerva_math.jsonl", 272, 60),
        ("olympiadbench.jsonl", 675, 60),
        ("dapo_train.parquet", 17917, 60),
    ],
)
def test_the_publishers_own_answers_are_right(file: str, rows: int, min_right: int) -> None:
    pytest.importorskip("math_verify", reason="the extra `math` is not installed")
    if not (SETS / file).is_file():
        pytest.skip(f"{SETS / file} is not here; GROUPWISE_MATH_DATA names the folder")
    part = Math(path=str(SETS / file))
    counts = part.counts()
    assert sum(counts.values()) == rows
    task_sets = [task for split in SPLITS if counts[split] for task in part.task_set(split)]
    sample = Draws("gold", file).sample(task_sets, min(min_right, len(task_sets)))
    wrong = []
    for task in sample:
        environment: Any = part.open(task)
        outcome = environment.act(environment.expert())
        if not outcome.success:
            wrong.append((task.payload["answer"], outcome.note))
    assert wrong == []
