"""Wrong types in the files of verifiers and verl: a sentence that names the line and the field."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.store import verifiers as verifiers_nodes
from groupwise.store.formats import open_rollouts
from groupwise.system.errors import FileError

DATA = Path(__file__).parents[1] / "unit" / "store" / "data"
EPISODE = json.loads((DATA / "verifiers_traces.jsonl").read_text().splitlines()[0])
GENERATION = {"input": "What is 2 + 2?", "output": "4", "score": 1.0, "step": 3}
STEP = {"uid": "g", "traj_uid": "t", "rewards": 1.0}


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def message(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        [chunk.table() for chunk in open_rollouts(path).chunks()]
    return str(caught.value)


def trace_with(**fields: Any) -> Any:
    episode = copy.deepcopy(EPISODE)
    episode["traces"] = [episode["traces"][0] | fields]
    return episode


def node_with(**fields: Any) -> Any:
    """The first episode with some fields of its first sampled node changed."""
    episode = trace_with()
    node = next(node for node in episode["traces"][0]["nodes"] if node.get("sampled"))
    node |= fields
    return episode


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"token_ids": 5}, "'traces[0].nodes[2].token_ids' is 5; it takes a list of integers"),
        ({"token_ids": ["20", "21"]}, '\'traces[0].nodes[2].token_ids\' is ["20", "21"]; it takes a list of integers'),
        ({"token_ids": [True, 21]}, "'traces[0].nodes[2].token_ids' is [true, 21]; it takes a list of integers"),
        ({"mask": "x"}, "'traces[0].nodes[2].mask' is \"x\"; it takes a list of true and false"),
        ({"mask": [0, 7]}, "'traces[0].nodes[2].mask' is [0, 7]; it takes a list of true and false"),
        ({"logprobs": 5}, "'traces[0].nodes[2].logprobs' is 5; it takes a list of numbers"),
        ({"entropies": [None, 1]}, "'traces[0].nodes[2].entropies' is [null, 1]; it takes a list of numbers"),
        ({"advantages": ["x"]}, "'traces[0].nodes[2].advantages' is [\"x\"]; it takes a list of numbers"),
        ({"advantages": 3}, "'traces[0].nodes[2].advantages' is 3; it takes a list of numbers"),
        ({"sampled": "maybe"}, "'traces[0].nodes[2].sampled' is \"maybe\"; it takes true or false"),
        ({"parent": True}, "'traces[0].nodes[2].parent' is true; the trace has 5 nodes"),
        ({"parent": -1}, "'traces[0].nodes[2].parent' is -1; the trace has 5 nodes"),
    ],
)
def test_nodes_of_verifiers(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    path = write(tmp_path / "traces.jsonl", node_with(**fields))
    assert message(path) == f"{path}, line 1: field {expected}"


@pytest.mark.parametrize("advantages", [[10**400], [1.0, -(10**400)]])
def test_advantages_that_have_no_float(tmp_path: Path, advantages: list[Any]) -> None:
    path = write(tmp_path / "traces.jsonl", node_with(advantages=advantages))
    assert "field 'traces[0].nodes[2].advantages' is [1" in message(path)
    assert message(path).endswith("; it takes a list of numbers")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ok": "perhaps"}, "field 'traces[0].ok' is \"perhaps\"; it takes true or false"),
        ({"is_timeout": [1]}, "field 'traces[0].is_timeout' is [1]; it takes true or false"),
        (
            {"version": "x" * 5000},
            "field 'traces[0].version' is \"" + "x" * 58 + "…; this reader knows version 1 of a trace",
        ),
    ],
)
def test_traces_of_verifiers(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    path = write(tmp_path / "traces.jsonl", trace_with(**fields))
    assert message(path) == f"{path}, line 1: {expected}"


def test_a_score_that_has_no_float(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", trace_with(rewards={"right": {"score": 10**400, "weight": 0.5}}))
    assert message(path).startswith(f"{path}, line 1: field 'traces[0].rewards.right.score' is 1000")


def test_task_data_nested_just_as_deep_as_can_be_parsed(tmp_path: Path) -> None:
    """There is a depth that Python still parses but no longer writes; which, depends on who calls."""
    path = tmp_path / "traces.jsonl"
    refused = 0
    for depth in range(800, 1000):
        written = json.dumps(trace_with(task={"data": "DEEP"})).replace('"DEEP"', "[" * depth + "]" * depth)
        path.write_text(written + "\n")
        try:
            list(open_rollouts(path).rows())
        except FileError:
            refused += 1
    assert 0 < refused < 200


def test_task_data_that_holds_nan_is_told_from_other_tasks(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", trace_with(task={"data": {"limit": float("nan")}}))
    assert {row["task"] for row in open_rollouts(path).rows()} == {"d9207c16031acbf3"}


def test_nodes_that_are_their_own_parents(tmp_path: Path) -> None:
    nodes = [{"parent": 1}, {"parent": 0}, {"parent": 0, "sampled": True, "message": {"content": "x"}}]
    path = write(tmp_path / "traces.jsonl", trace_with(nodes=nodes))
    assert message(path) == (
        f"{path}, line 1: field 'traces[0].nodes[2].parent' leads back to where it came from; write the traces again"
    )


def test_nodes_that_tell_one_past_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers_nodes, "MAX_OBSERVED", 100_000)
    past = [{"parent": at - 1 if at else None, "message": {"content": "x" * 500}} for at in range(100)]
    sampled = [{"parent": 99, "sampled": True, "message": {"content": "y"}} for _ in range(100)]
    path = write(tmp_path / "traces.jsonl", trace_with(nodes=past + sampled))
    assert "repeats more than 100000 characters" in message(path)


@pytest.mark.parametrize("uid", ["q_" + "9" * 5000 + "_0", "q_0_" + "9" * 5000])
def test_huge_digits_in_a_uid(tmp_path: Path, uid: str) -> None:
    path = write(tmp_path / "1.jsonl", GENERATION | {"uid": uid})
    assert message(path) == (
        f"{path}, line 1: field 'uid' ends in a number of more than 100 digits; verl numbers sessions and outputs "
        "from 0"
    )


def test_digits_in_a_uid_that_no_index_can_have(tmp_path: Path) -> None:
    path = write(tmp_path / "1.jsonl", GENERATION | {"uid": "q_0_" + "9" * 25})
    assert message(path) == (
        f"{path}, line 1: key 'step' is 9999999999999999999999999; it takes an integer from 0 upwards"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rewards": 10**400}, "field 'rewards' is 1000"),
        ({"rewards": "1e999"}, "key 'reward' is Infinity"),
        ({"anchor_obs": ["room", float("nan")]}, "key 'state' holds NaN"),
        ({"is_action_valid": [1]}, "field 'is_action_valid' is [1]; it takes true or false"),
        ({"step_index": "9" * 5000}, "field 'step_index' is Infinity; it takes a whole number"),
        ({"uid": 1.5}, "field 'uid' is 1.5; an id is text or an integer"),
    ],
)
def test_steps_of_verl_agent(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    path = write(tmp_path / "steps.jsonl", STEP | fields)
    assert message(path).startswith(f"{path}, line 1: {expected}")
