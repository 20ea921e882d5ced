"""Traces of verifiers.

The fixture was written by verifiers 0.4.0 itself (`verifiers.v1.utils.trace_store.write_episode`) from records built
by hand: two scored rollouts in one group, one of which is on two branches, a judge, a rollout that failed before its
first message, and an evaluation without token ids.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import methods
from groupwise.store.formats import open_rollouts
from groupwise.store.verifiers import NO_STEPS, NOT_SCORED, NOT_TRAINABLE
from groupwise.system.errors import FileError

FIXTURE = Path(__file__).parent / "data" / "verifiers_traces.jsonl"
EPISODES = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
MUG = "5cbd80bc8ff1a85758a3f807cfae5cc461eeead6369c4b35d222f86dac116c8f"
PLATE = "a2694f01cfa6b6b9d6e891783cf7df1e120f602d29a8e37bb2159ad2ffb79b73"


def write(path: Path, episodes: list[Any]) -> Path:
    path.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    return path


def make_episode(**fields: Any) -> dict[str, Any]:
    """The first episode with some fields of its first trace changed, and no other trace."""
    episode: dict[str, Any] = copy.deepcopy(EPISODES[0])
    episode["traces"] = [episode["traces"][0] | fields]
    return episode


def test_sampled_messages_become_rows() -> None:
    file = open_rollouts(FIXTURE)
    rows = list(file.rows())
    rollout = {"task": MUG, "group": "group-0/agent", "rollout": "trace-0", "role": "agent", "version": 2}
    assert rows[:2] == [
        rollout
        | {
            "step": 0,
            "observation": "You find things.\nWhere is the mug?",
            "action": 'open({"what": "fridge"})',
            "reward": 0.0,
            "outcome": 1.1,
            "response_ids": [20, 21],
            "logp_behaviour": [-0.1235, -1.5],
            "extra": {"advantage": 0.5},
        },
        rollout
        | {
            "step": 1,
            "observation": "The fridge is empty.",
            "action": "On the shelf.",
            "reward": 1.1,
            "outcome": 1.1,
            "response_ids": [22, 23, 24],
            "logp_behaviour": [-0.1, -0.2, -0.3],
            "extra": {"advantage": 0.5},
            "stop": "terminated",
        },
    ]
    assert file.left_out == {NOT_TRAINABLE: 1, NOT_SCORED: 1}


def test_branches_are_steps_in_the_order_of_sampling_and_length_is_truncation() -> None:
    rows = list(open_rollouts(FIXTURE).rows())[2:4]
    assert [(row["step"], row["action"], row["observation"]) for row in rows] == [
        (0, "I do not know.", "You find things.\nWhere is the mug?"),
        (1, "In the sink, and", "Where is the mug? (shortened)"),
    ]
    assert rows[1]["stop"] == "truncated"


def test_an_evaluation_has_no_group_and_no_ids_but_counts() -> None:
    rows = list(open_rollouts(FIXTURE).rows())[4:]
    assert [(row["group"], row["tokens"], row.get("stop")) for row in rows] == [
        (f"{PLATE}/agent", 11, None),
        (f"{PLATE}/agent", 7, "timeout"),
    ]
    assert "response_ids" not in rows[0]


def test_traces_give_credit_and_keep_the_credit_they_came_with() -> None:
    (chunk,) = open_rollouts(FIXTURE).chunks()
    table = chunk.table()
    values = methods.dr_grpo().advantage(table).values
    assert values.tolist() == pytest.approx([0.45, 0.45, -0.45, -0.45, 0.0, 0.0])
    assert chunk.columns["advantage"] == [0.5, 0.5, -0.5, -0.5, None, None]
    assert chunk.lines == [1, 1, 2, 2, 4, 4]


def test_a_bare_trace_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", EPISODES[0]["traces"][:1])
    rows = list(open_rollouts(path).rows())
    assert [(row["task"], row["group"], row["rollout"]) for row in rows] == [(MUG, f"{MUG}/agent", "trace-0")] * 2


def test_two_agents_are_two_scopes(tmp_path: Path) -> None:
    episode = make_episode()
    solver = copy.deepcopy(episode["traces"][0])
    solver |= {"id": "trace-s", "agent": solver["agent"] | {"name": "solver"}}
    episode["traces"].append(solver)
    (chunk,) = open_rollouts(write(tmp_path / "traces.jsonl", [episode])).chunks()
    assert chunk.columns["task"] == ["group-0/agent"] * 2 + ["group-0/solver"] * 2


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
        ({"ok": False}, "error"),
        ({"errors": [{"type": "ProviderError", "message": "tried again"}]}, "terminated"),
        ({"stop_condition": "max_turns"}, "truncated"),
        ({"is_timeout": True, "ok": False}, "timeout"),
    ],
)
def test_why_an_rollout_ended(tmp_path: Path, fields: dict[str, Any], stop: str) -> None:
    rows = list(open_rollouts(write(tmp_path / "traces.jsonl", [make_episode(**fields)])).rows())
    assert rows[-1]["stop"] == stop


@pytest.mark.parametrize(("task", "expected"), [({"hash": "h"}, "h"), ({"key": "k", "hash": "h"}, "k")])
def test_the_name_of_a_task(tmp_path: Path, task: dict[str, Any], expected: str) -> None:
    rows = list(open_rollouts(write(tmp_path / "traces.jsonl", [make_episode(task=task)])).rows())
    assert rows[0]["task"] == expected


def test_a_task_without_a_name_is_named_by_its_content(tmp_path: Path) -> None:
    tasks = ({"data": {"b": 1, "a": 2}}, {"data": {"a": 2, "b": 1}}, {"data": {"a": 2, "b": 3}})
    path = write(tmp_path / "traces.jsonl", [make_episode(task=task, id=str(i)) for i, task in enumerate(tasks)])
    names = [row["task"] for row in open_rollouts(path).rows() if row["step"] == 0]
    assert names[0] == names[1] != names[2]


def test_a_state_key_of_a_node_class_of_your_own(tmp_path: Path) -> None:
    episode = make_episode()
    for node in episode["traces"][0]["nodes"]:
        node["state_key"] = "kitchen"
    rows = list(open_rollouts(write(tmp_path / "traces.jsonl", [episode])).rows())
    assert [row["state"] for row in rows] == ["kitchen", "kitchen"]


def message(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        list(open_rollouts(path).chunks())
    return str(caught.value)


def node(**fields: Any) -> list[dict[str, Any]]:
    """The nodes of the first trace, the third of them (the first sampled one) changed."""
    nodes: list[dict[str, Any]] = copy.deepcopy(EPISODES[0]["traces"][0]["nodes"])
    nodes[2] |= fields
    return nodes


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"version": 2}, "field 'traces[0].version' is 2; this reader knows version 1 of a trace"),
        ({"nodes": 3}, "field 'traces[0].nodes' is 3; it takes a list of objects"),
        ({"rewards": {"a": {"score": "x"}}}, "field 'traces[0].rewards.a.score' is \"x\"; it takes a number"),
        ({"rewards": {"a": 1.0}}, "field 'traces[0].rewards.a' is 1.0; it takes an object"),
        (
            {"nodes": node(mask=[True])},
            "field 'traces[0].nodes[2].mask' has 1 entries for 3 token_ids; write the traces again",
        ),
        (
            {"nodes": node(logprobs=[-1.0])},
            "field 'traces[0].nodes[2].logprobs' has 1 entries for 2 sampled tokens; write the traces again",
        ),
        ({"nodes": node(parent=9)}, "field 'traces[0].nodes[2].parent' is 9; the trace has 5 nodes"),
    ],
)
def test_bad_traces(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    path = write(tmp_path / "traces.jsonl", [make_episode(**fields)])
    assert message(path) == f"{path}, line 1: {expected}"


def test_a_trace_without_a_task(tmp_path: Path) -> None:
    episode = make_episode(task=None)
    del episode["task"]
    path = write(tmp_path / "traces.jsonl", [episode])
    assert message(path) == (
        f"{path}, line 1: field 'traces[0].task' is missing; a trace names its task by key, hash or data"
    )


def test_a_file_without_a_usable_trace(tmp_path: Path) -> None:
    unsampled = [message | {"sampled": False} for message in EPISODES[0]["traces"][0]["nodes"]]
    path = write(tmp_path / "traces.jsonl", [make_episode(nodes=unsampled), make_episode(rewards={})])
    assert message(path) == (
        f"{path}: the file holds no rows (left out: 1 {NO_STEPS}, 1 {NOT_SCORED}); record at least one step"
    )
