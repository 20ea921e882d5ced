"""Anybody's JSON Lines and Parquet by a map of columns: what comes of it, and what is said of files that do not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from groupwise.store import write_rollouts
from groupwise.store.formats import open_rollouts
from groupwise.store.mapped_rows import ColumnMap
from groupwise.system.errors import ConfigError, FileError

# One row a rollout: what most trainers of single answers dump.
ROLLOUTS = [
    {"prompt_id": 7, "completion": "42", "reward_model": {"score": 1.0, "style": "rule"}, "step": 3},
    {"prompt_id": 7, "completion": "41", "reward_model": {"score": 0.0, "style": "rule"}, "step": 3},
    {"prompt_id": 8, "completion": "12", "reward_model": {"score": 0.5, "style": "rule"}, "step": 3},
]
MAP = {"task": "prompt_id", "reward": "reward_model.score", "action": "completion"}


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def read(path: Path, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    return [dict(row) for row in open_rollouts(path, columns=columns).rows()]


@pytest.mark.parametrize(("name", "write"), [("a.jsonl", write_lines), ("a.parquet", write_table)])
def test_rows_that_are_rollouts_are_numbered_within_their_task(tmp_path: Path, name: str, write: Any) -> None:
    assert read(write(tmp_path / name, ROLLOUTS), MAP) == [
        {"task": 7, "reward": 1.0, "action": "42", "rollout": 0, "step": 0},
        {"task": 7, "reward": 0.0, "action": "41", "rollout": 1, "step": 0},
        {"task": 8, "reward": 0.5, "action": "12", "rollout": 0, "step": 0},
    ]


def test_rollouts_are_numbered_within_their_group_where_there_is_one(tmp_path: Path) -> None:
    rows = [row | {"step": number} for number, row in enumerate(ROLLOUTS[:2])]
    numbered = read(write_lines(tmp_path / "a.jsonl", rows), {**MAP, "group": "step"})
    assert [(row["task"], row["group"], row["rollout"]) for row in numbered] == [(7, "7@0", 0), (7, "7@1", 0)]


def test_two_tasks_of_one_group_are_two_groups(tmp_path: Path) -> None:
    rows = read(write_lines(tmp_path / "a.jsonl", ROLLOUTS), {**MAP, "group": "step"})
    assert [(row["group"], row["rollout"]) for row in rows] == [("7@3", 0), ("7@3", 1), ("8@3", 0)]
    with_rollouts = [row | {"uid": 0} for row in ROLLOUTS[1:]]
    rows = read(write_lines(tmp_path / "b.jsonl", with_rollouts), {**MAP, "group": "step", "rollout": "uid"})
    assert [(row["group"], row["step"]) for row in rows] == [("7@3", 0), ("8@3", 0)]


def test_no_two_pairs_of_task_and_group_share_an_id(tmp_path: Path) -> None:
    rows = [{"q": task, "g": group, "r": 1} for task, group in [("a@b", "c"), ("a", "b@c"), ("a", "b"), ("a", "b@c")]]
    groups = [
        row["group"]
        for row in read(write_lines(tmp_path / "a.jsonl", rows), {"task": "q", "reward": "r"} | {"group": "g"})
    ]
    assert (groups[0], groups[2], groups[3]) == ("a@b@c", "a@b", groups[1])
    assert len(set(groups)) == 3


def test_rows_of_one_rollout_are_its_steps_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [{"q": "t", "uid": uid, "r": reward} for uid, reward in [("a", 0), ("b", 0), ("a", 1), ("b", 2)]]
    read_rows = read(write_lines(tmp_path / "a.jsonl", rows), {"task": "q", "rollout": "uid", "reward": "r"})
    assert [(row["rollout"], row["step"], row["reward"]) for row in read_rows] == [
        ("a", 0, 0),
        ("b", 0, 0),
        ("a", 1, 1),
        ("b", 1, 2),
    ]


def test_values_are_read_for_what_they_must_mean(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2 + 2?"}]
    rows = [
        {"messages": chat, "answer": ["4"], "correct": True, "turns": [{"obs": "x"}, {"obs": "y"}], "a.b": 2, "t": "3"},
        {"messages": chat, "answer": ["5"], "correct": False, "turns": [{"obs": "z"}], "a.b": None, "t": "1"},
    ]
    columns = {
        "task": "messages",
        "reward": "correct",
        "action": "answer",
        "state": "turns.-1.obs",
        "extra.level": "a.b",
        "tokens": "t",
    }
    first, second = read(write_lines(tmp_path / "a.jsonl", rows), columns)
    assert first == {
        "task": first["task"],
        "reward": 1.0,
        "action": '["4"]',
        "state": "y",
        "extra": {"level": 2},
        "tokens": 3,
        "rollout": 0,
        "step": 0,
    }
    assert second == {**first, "reward": 0.0, "action": '["5"]', "state": "z", "extra": {"level": None}} | {
        "tokens": 1,
        "rollout": 1,
    }
    assert len(first["task"]) == 16, "the digest of the chat"


def test_a_data_frames_integers_stay_ids(tmp_path: Path) -> None:
    rows = [{"q": 3.0, "r": 1.0}]
    assert read(write_lines(tmp_path / "a.jsonl", rows), {"task": "q", "reward": "r"})[0]["task"] == 3


BAD_ROWS = [
    ({"score": "high"}, "line 2: field 'score' is \"high\"; it takes a number"),
    (
        {"score": None},
        "line 2: column 'score' is null; a missing score is not a zero: score the rollout or leave it out",
    ),
    (
        {"score": float("nan")},
        "line 2: key 'reward' is NaN; it takes a finite number (a missing score is not a zero: score the rollout or "
        "leave it out)",
    ),
    ({"id": None}, "line 2: column 'id' is null; every row needs a task: fill it in, or leave the row out"),
    ({"id": 1.5}, "line 2: field 'id' is 1.5; an id is text or an integer"),
    (
        {"id": "x"},
        "line 2: key 'task' is \"x\", but line 1 has an integer; use text or integers throughout (1 and '1' "
        "would be two ids)",
    ),
    ({"turn": 0.5}, "line 2: field 'turn' is 0.5; it takes a whole number"),
    (
        {"meta": {"logp": [1]}},
        "line 2: 'logp_behaviour' has 1 entries for 2 response_ids; store one per token, or none",
    ),
    ({"ids": "1 2"}, "line 2: field 'ids' is \"1 2\"; it takes a list of integers"),
    ({"meta": {}, "won": None}, "line 2: no 'outcome', but line 1 has one; give it to every row or to none"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD_ROWS)
def test_a_wrong_value_is_told_with_its_line_and_column(tmp_path: Path, wrong: dict[str, Any], sentence: str) -> None:
    good = {"id": 1, "run": 0, "turn": 0, "score": 1, "won": 1, "ids": [5, 6], "meta": {"logp": [-1.0, -2.0]}}
    path = write_lines(tmp_path / "a.jsonl", [good, good | {"turn": 1} | wrong])
    columns = {"task": "id", "rollout": "run", "step": "turn", "reward": "score", "outcome": "won"}
    with pytest.raises(FileError) as caught:
        read(path, columns | {"response_ids": "ids", "logp_behaviour": "meta.logp"})
    assert str(caught.value) == f"{path}, {sentence}"
    assert caught.value.row == 2


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"task": "prompt"}, ", line 1: no column 'prompt'; did you mean 'prompt_id'? Valid: completion, prompt_id, "),
        ({"reward": "reward_model.scores"}, ", line 1: no column 'reward_model.scores'; within 'reward_model' did you"),
        (
            {"reward": "completion.score"},
            ", line 1: no column 'completion.score'; 'completion' holds \"42\", and nothing",
        ),
        ({"state": "stat"}, ": no line has a column 'stat', which 'state' is mapped to; did you mean 'step'?"),
    ],
)
def test_a_missing_column_is_told_with_the_nearest(tmp_path: Path, columns: dict[str, str], sentence: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", ROLLOUTS)
    with pytest.raises(FileError) as caught:
        read(path, {**MAP, **columns})
    assert str(caught.value).startswith(f"{path}{sentence}")


def test_a_missing_column_of_a_table_is_told_before_a_row_is_read(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", ROLLOUTS)
    with pytest.raises(FileError) as caught:
        open_rollouts(path, columns={**MAP, "state": "stpe"})
    assert str(caught.value) == (
        f"{path}: there is no column 'stpe', which 'state' is mapped to; did you mean 'step'? "
        "Valid: completion, prompt_id, reward_model, step"
    )


def test_only_mapped_columns_of_a_table_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path / "a.parquet", [row | {"images": [0] * 50} for row in ROLLOUTS])
    monkeypatch.setattr("groupwise.store.parquet._MAX_ENTRIES", 10)
    assert len(read(path, MAP)) == 3
    with pytest.raises(FileError, match=r"column 'images.list.element' holds 150 entries in 3 rows"):
        read(path, {**MAP, "prompt_ids": "images"})


def test_a_list_needs_a_position(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"q": 1, "scores": [0.5, 1.0]}])
    assert read(path, {"task": "q", "reward": "scores.-1"})[0]["reward"] == 1.0
    with pytest.raises(FileError) as caught:
        read(path, {"task": "q", "reward": "scores.value"})
    assert str(caught.value) == (
        f"{path}, line 1: no column 'scores.value'; 'scores' holds a list of 2: continue with a position, from 0, or "
        "-1 for the last"
    )


def test_a_line_that_is_no_object(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [ROLLOUTS[0], [1, 2]])
    with pytest.raises(FileError) as caught:
        read(path, MAP)
    assert str(caught.value) == f"{path}, line 2: found [1, 2] instead of an object with columns"


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (["task=id"], "no column for 'reward'; a map needs task and reward, such as task=prompt_id,reward=score"),
        (["task=id,reward"], "'reward' is no KEY=COLUMN; write it as in task=prompt_id,reward=score"),
        (["task=id,reward="], "key 'reward' has no column; write reward=COLUMN"),
        (["task=id,reward=a", "reward=b"], "'reward' stands twice, as 'a' and 'b'; leave one of the two out"),
        (
            ["task=id,reward=a,step=i"],
            "'step' is mapped, but 'rollout' is not; map the rollout's column too, or leave 'step' out",
        ),
        (
            ["task=id,reward=a,extra.state=s"],
            "a further column cannot be 'extra.state' ('state' is taken); write extra.NAME=COLUMN",
        ),
    ],
)
def test_a_map_that_cannot_be_meant(entries: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ColumnMap.parse(entries)
    assert str(caught.value) == f"column map: {sentence}"


def test_an_unknown_key_of_the_map_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        ColumnMap.parse(["task=id,rewrd=score"])
    assert str(caught.value).startswith(
        "column map: unknown key 'rewrd'; did you mean 'reward'? docs/reference/rollouts.md lists them all "
    )
    assert str(caught.value).endswith("(further columns are extra.NAME)")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_file_of_ours_needs_no_map(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write_rollouts(tmp_path / name, [{"task": 1, "rollout": 0, "step": 0, "reward": 1.0}])
    with pytest.raises(ConfigError) as caught:
        open_rollouts(tmp_path / name, columns=MAP)
    assert str(caught.value) == (
        f"{tmp_path / name}: this is a groupwise rollouts file, which needs no column map; leave the map out"
    )
    with pytest.raises(ConfigError, match="format 'verifiers' and a column map; a format knows its columns"):
        open_rollouts(tmp_path / name, columns=MAP, format="verifiers")


def test_what_json_does_not_have_is_no_text(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", [{"q": 1, "r": 1.0, "a": b"\xff"}])
    with pytest.raises(FileError) as caught:
        read(path, {"task": "q", "reward": "r", "action": "a"})
    assert str(caught.value) == f"{path}, row 1: field 'a' is a bytes; it takes text, or what JSON has"
