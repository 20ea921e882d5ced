"""verl-agent step dumps, and verl's own dumps.

The fixtures have the shape that forks of verl-agent write (one active step a row, the fields of the rollout loop as
they are, a running number of the fork's own) and that verl 0.9.1 writes to `trainer.rollout_data_dir`; the content is
made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import methods
from groupwise.store.formats import open_rollouts
from groupwise.store.verl import PADDING
from groupwise.system.errors import FileError

DATA = Path(__file__).parent / "data"
STEPS = [json.loads(line) for line in (DATA / "verl_agent_steps.jsonl").read_text().splitlines()]
STEP = {"uid": "g", "traj_uid": "t", "rewards": 1.0}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_steps_become_rows() -> None:
    file = open_rollouts(DATA / "verl_agent_steps.jsonl")
    rows = list(file.rows())
    assert rows[1] == {
        "task": "3f0e6d1c-51aa-4c1e-9a44-0d7f6f0a1b01",
        "rollout": "aa000000-0000-4000-8000-000000000000",
        "step": 1,
        "reward": 10.0,
        "state": "The cabinet is open.",
        "outcome": 10.0,
        "well_formed": True,
        "action": "take mug 1",
        "observation": "Your task is: put the mug on the shelf. The cabinet is open.",
    }
    assert [row["step"] for row in rows] == [0, 1, 0, 1, 2, 0, 1]
    assert [row["well_formed"] for row in rows] == [True, True, False, True, True, True, True]
    assert rows[5]["state"] == ["grid", [0, 1], [2, 0]]
    assert rows[6]["state"] is None
    assert file.left_out == {PADDING: 1}


def test_steps_give_credit() -> None:
    (chunk,) = open_rollouts(DATA / "verl_agent_steps.jsonl").chunks()
    credit = methods.dr_grpo().advantage(chunk.table())
    assert credit.values.tolist() == [5.0, 5.0, -5.0, -5.0, -5.0, 0.0, 0.0]
    assert credit.compared.tolist() == [True] * 5 + [False] * 2


def test_the_penalty_is_on_what_verl_agent_calls_invalid_which_is_a_malformed_response() -> None:
    (chunk,) = open_rollouts(DATA / "verl_agent_steps.jsonl").chunks()
    table = chunk.table()
    assert {"well_formed"} == {"well_formed", "accepted", "valid"} & set(table.extra)
    # The first step of the second rollout is malformed. Three steps stand in its state, and their mean loses a third.
    with_penalty, without = (
        methods.hgpo(depth=0, scale="none", invalid_penalty=penalty).advantage(table).values for penalty in (0.1, 0.0)
    )
    assert (with_penalty - without).tolist() == pytest.approx([0.1 / 3, 0.0, -0.2 / 3, 0.1 / 3, 0.0, 0.0, 0.0])


def test_without_a_step_index_the_order_of_the_file_counts_also_when_rollouts_interleave(tmp_path: Path) -> None:
    steps = [{name: value for name, value in step.items() if name != "step_in_traj"} for step in STEPS[:5]]
    path = write(tmp_path / "steps.jsonl", [steps[i] for i in (2, 0, 3, 1, 4)])
    rows = list(open_rollouts(path).rows())
    assert [(row["rollout"][-1], row["step"]) for row in rows] == [("1", 0), ("0", 0), ("1", 1), ("0", 1), ("1", 2)]


def test_neither_index_nor_step_is_the_step_index(tmp_path: Path) -> None:
    rows = [STEP | {"index": 40, "step": 7}, STEP | {"index": 40, "step": 7}]
    assert [row["step"] for row in open_rollouts(write(tmp_path / "steps.jsonl", rows)).rows()] == [0, 1]


def test_numbers_and_truth_values_that_were_written_as_text(tmp_path: Path) -> None:
    rows = [STEP | {"rewards": "1.5", "is_action_valid": "False", "active_masks": "True", "turn_idx": "3.0"}]
    assert list(open_rollouts(write(tmp_path / "steps.jsonl", rows)).rows()) == [
        {"task": "g", "rollout": "t", "step": 3, "reward": 1.5, "well_formed": False}
    ]


def test_copies_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "steps.jsonl", [STEP | {"episode_lengths": 1.0}] * 2)
    assert message(path) == (
        f"{path}, line 2: field 'episode_lengths' is 1, but this is row 2 of rollout 't'; the dump holds copies "
        "(verl-agent pads batches with them): dump before padding, or add a step_index"
    )


def message(path: Path, format: str = "verl_agent") -> str:
    with pytest.raises(FileError) as caught:
        list(open_rollouts(path, format=format).chunks())
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1], "found [1] instead of an object; check the format"),
        ({"uid": "g", "traj_uid": "t"}, "field 'rewards' is missing; the format needs it"),
        ({"uid": "g", "rewards": 1}, "field 'traj_uid' is missing; the format needs it"),
        (STEP | {"uid": 1.5}, "field 'uid' is 1.5; an id is text or an integer"),
        (STEP | {"rewards": "much"}, "field 'rewards' is \"much\"; it takes a number"),
        (STEP | {"active_masks": "yes"}, "field 'active_masks' is \"yes\"; it takes true or false"),
        (STEP | {"step_num": 0.5}, "field 'step_num' is 0.5; it takes a whole number"),
        (
            STEP | {"rewards": float("nan")},
            "key 'reward' is NaN; it takes a finite number "
            "(a missing score is not a zero: score the rollout or leave it out)",
        ),
    ],
)
def test_bad_steps(tmp_path: Path, row: Any, expected: str) -> None:
    path = write(tmp_path / "steps.jsonl", [row])
    assert message(path) == f"{path}, line 1: {expected}"


def test_a_dump_of_nothing_but_padding(tmp_path: Path) -> None:
    path = write(tmp_path / "steps.jsonl", [STEP | {"active_masks": False}] * 3)
    assert message(path) == (
        f"{path}: the file holds no rows (left out: 3 steps after the end of their rollout (active_masks is false)); "
        "record at least one step"
    )


def test_generations_are_rollouts_of_one_step_grouped_by_prompt_and_update() -> None:
    rows = list(open_rollouts(DATA / "verl_generations.jsonl").rows())
    first, second, third = (row["task"] for row in rows)
    assert first == second != third
    assert rows[1] == {
        "task": first,
        "group": f"{first}@7",
        "rollout": 1,
        "step": 0,
        "observation": "user\nWhat is 2+2?\nassistant\n",
        "action": "5",
        "reward": 0.0,
        "outcome": 0.0,
        "extra": {"acc": False},
    }
    assert [row["rollout"] for row in rows] == [0, 1, 0]


def test_generations_of_one_prompt_at_two_updates_are_two_groups(tmp_path: Path) -> None:
    row = {"input": "q", "output": "a", "score": 1.0}
    path = write(tmp_path / "both.jsonl", [row | {"step": 1}, row | {"step": 2}])
    (chunk,) = open_rollouts(path).chunks()
    assert len(set(chunk.columns["task"])) == 2
    assert len(set(chunk.tasks)) == 1


def test_a_uid_of_three_parts_names_task_rollout_and_step() -> None:
    rows = list(open_rollouts(DATA / "verl_generations_with_uid.jsonl").rows())
    cells = [(row["group"], row["rollout"], row["step"], row["reward"], row["outcome"]) for row in rows]
    assert cells == [
        ("q1@7", 0, 0, 0.0, 1.0),
        ("q1@7", 0, 1, 1.0, 1.0),
        ("q1@7", 1, 0, 0.0, 0.0),
        ("q2@7", 0, 0, 1.0, 1.0),
    ]


def test_a_bad_score(tmp_path: Path) -> None:
    path = write(tmp_path / "1.jsonl", [{"input": "q", "output": "a", "score": None, "step": 1}])
    assert message(path) == f"{path}, line 1: field 'score' is missing; the format needs it"
