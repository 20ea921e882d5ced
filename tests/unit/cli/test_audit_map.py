"""`--map`: files of other programs are audited, checked and explained by their own columns."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store.formats import open_rollouts
from groupwise.system.errors import RecordError
from tests.unit.cli.calls import show_json
from tests.unit.cli.files import EXAMPLE

ROOT = Path(__file__).parents[3]
SETS = Path(os.environ.get("GROUPWISE_MATH_DATA", ROOT.parent / "shared" / "data" / "math"))
RENAMED = {"task": "prompt_id", "rollout": "uid", "step": "turn", "state": "where.seen", "reward": "scores.0"}
COLUMNS = ",".join(f"{key}={column}" for key, column in RENAMED.items())


def rename(row: dict[str, Any]) -> dict[str, Any]:
    """A row as another program might have written it."""
    renamed = {"prompt_id": row["task"], "uid": row["rollout"], "turn": row["step"], "scores": [row["reward"], None]}
    rest = {key: value for key, value in row.items() if key not in RENAMED}
    return {"where": {"seen": row["state"]}, **renamed, **rest}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("foreign") / "steps.jsonl"
    rows = (rename(dict(row)) for row in RolloutsFile.open(EXAMPLE).rows())
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def list_columns() -> list[str]:
    kept = {key for row in RolloutsFile.open(EXAMPLE).rows() for key in row} - RENAMED.keys() - {"extra"}
    return ["--map", COLUMNS, "--map", ",".join(f"{key}={key}" for key in sorted(kept))]


def count_faults(*arguments: object) -> dict[str, int]:
    faults = show_json("check", "rollouts", *arguments)["faults"]
    return {kind: fault["count"] for kind, fault in faults.items()}


def test_recorded_games_under_other_names_give_the_same_audit(foreign: Path) -> None:
    methods = ["--method", "grpo", "--method", "hgpo"]
    assert show_json("audit", foreign, *list_columns(), *methods) == show_json("audit", EXAMPLE, *methods)


def test_the_same_columns_are_checked_and_explained(foreign: Path) -> None:
    assert count_faults(foreign, *list_columns()) == count_faults(EXAMPLE)
    first = next(iter(RolloutsFile.open(EXAMPLE).rows()))
    step = ["--task", first["task"], "--rollout", first["rollout"], "--step", first["step"], "--method", "grpo"]
    assert show_json("explain", foreign, *list_columns(), *step) == show_json("explain", EXAMPLE, *step)


def test_a_map_that_cannot_be_meant_gives_one_line_and_status_2(foreign: Path) -> None:
    result = CliRunner().invoke(make_app(), ["audit", str(foreign), "--map", "task=prompt_id,score=scores.0"])
    assert str(result.exception).startswith("column map: unknown key 'score'; ")


def test_a_published_set_is_grouped_by_a_column_of_its_own() -> None:
    """MATH-500 with its subjects for tasks and its levels for rewards: real rows, counted a second time by hand."""
    if not (file := SETS / "math500.jsonl").is_file():
        pytest.skip(f"no {file}")
    census = show_json("audit", file, "--map", "task=subject,reward=level,rollout=unique_id", "--method", "grpo")[
        "census"
    ]
    levels = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        levels[row["subject"]].append(row["level"])
    counts = [level for group in levels.values() for level in group]
    assert (census["tasks"], census["rollouts"], census["steps"]) == (len(levels), len(counts), len(counts))
    assert census["mean_return"] == pytest.approx(sum(counts) / len(counts))


def test_a_published_table_is_read_by_its_columns() -> None:
    """DAPO's training set with its answers, numbers written as text, for rewards."""
    parquet = pytest.importorskip("pyarrow.parquet")
    if not (file := SETS / "dapo_train.parquet").is_file():
        pytest.skip(f"no {file}")
    answers = [float(text) for text in parquet.read_table(file, columns=["answer"])["answer"].to_pylist()]
    rewards = [row["reward"] for row in open_rollouts(file, columns={"task": "problem", "reward": "answer"}).rows()]
    assert rewards == answers


def test_answers_in_words_are_refused_as_rewards() -> None:
    if not (file := SETS / "gsm8k_test.jsonl").is_file():
        pytest.skip(f"no {file}")
    result = CliRunner().invoke(make_app(), ["audit", str(file), "--map", "task=question,reward=answer"])
    assert str(result.exception).startswith(f"{file}, line 1: field 'answer' is \"")
    assert str(result.exception).endswith("; it takes a number")


def write_updates(path: Path, answers: list[tuple[str, int, float]]) -> list[str]:
    """Answers with their task, update and reward; the arguments that read them."""
    rows = [{"prompt_id": task, "step": step, "score": score} for task, step, score in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(path), "--map", "task=prompt_id,reward=score,group=step"]


def test_tasks_of_one_update_are_compared_each_by_itself(tmp_path: Path) -> None:
    alike = [(task, 12, reward) for task, reward in [("apples", 1.0), ("pears", 0.0)] for _ in range(2)]
    census = show_json("audit", *write_updates(tmp_path / "a.jsonl", alike), "--method", "grpo")["census"]
    assert (census["tasks"], census["equal_tasks"]) == (2, 2)


def test_a_step_of_a_divided_task_is_explained_by_the_task_or_by_the_group(tmp_path: Path) -> None:
    answers = [("apples", 12, 1.0), ("pears", 12, 0.0), ("pears", 12, 3.0), ("pears", 13, 0.0)]
    arguments = [*write_updates(tmp_path / "a.jsonl", answers), "--step", "0", "--method", "grpo"]
    by_task = show_json("explain", *arguments, "--task", "pears", "--rollout", "1")
    assert by_task == show_json("explain", *arguments, "--task", "pears@12", "--rollout", "1")
    assert [(member["task"], member["value"]) for member in by_task["members"]] == [
        ("pears@12", 0.0),
        ("pears@12", 3.0),
    ]
    assert by_task == show_json("explain", *arguments, "--task", "pea", "--rollout", "1")
    assert by_task == show_json("explain", *arguments, "--task", "p@12", "--rollout", "1")
    for task in ("pears", "p"):
        with pytest.raises(RecordError) as caught:
            show_json("explain", *arguments, "--task", task, "--rollout", "0")
        assert str(caught.value) == (
            f"rollout '0' exists in 2 tasks; {task!r} matches all: give more of the id, one of: pears@12, pears@13"
        )


def test_a_group_that_goes_by_the_id_comes_before_the_task(tmp_path: Path) -> None:
    rows = [
        {"task": task, "group": group, "rollout": rollout, "step": 0, "reward": rollout}
        for task, group in ("ab", "ba")
        for rollout in range(2)
    ]
    write_rollouts(tmp_path / "a.jsonl", rows)
    for group in "ab":
        step = ["--task", group, "--rollout", "0", "--step", "0", "--method", "grpo"]
        explained = show_json("explain", tmp_path / "a.jsonl", *step)
        assert [member["task"] for member in explained["members"]] == [group, group]
