"""Recorded sessions of every form give the same calls; bad input is one sentence with its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.agents.recorded_sessions import RecordedCall, open_sessions
from groupwise.agents.state_rules import ResultsStateRule
from groupwise.store import write_rollouts
from groupwise.system.errors import FileError
from tests.unit.agents.chats import Message, calls, exchange, says, user

CHATS: dict[tuple[str, str], list[Message]] = {
    ("t1", "a"): [user("Find 1."), *exchange("find", '{"order": 1}', "open"), says("It is open.")],
    ("t1", "b"): [user("Find 1!"), *exchange("find", '{"order":1}', "open"), calls(("find", '{"order": 2}'))],
    ("t2", "a"): [user("Hello."), says("Hello.")],
}
REWARDS = {("t1", "a"): 1.0, ("t1", "b"): 0.0, ("t2", "a"): 0.5}


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def each_call(make: Callable[[str, str, list[Message], Message], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**make(task, rollout, chat[:place], message), "reward": REWARDS[task, rollout]}
        for (task, rollout), chat in CHATS.items()
        for place, message in enumerate(chat)
        if message["role"] == "assistant"
    ]


def each_session(**names: str) -> list[dict[str, Any]]:
    sessions = [
        {"task": task, "rollout": rollout, "reward": REWARDS[task, rollout], "messages": chat}
        for (task, rollout), chat in CHATS.items()
    ]
    return [{names.get(key, key): value for key, value in session.items()} for session in sessions]


FORMS: dict[str, list[dict[str, Any]]] = {
    "logs": each_session(),
    "chat-sessions": [{"format": "chat-sessions", "version": 1, "meta": {}}, *each_session(rollout="attempt")],
    "openenv": [{**session, "done": True, "tool_trace": []} for session in each_session(rollout="episode_id")],
    "openenv calls": each_call(
        lambda task, rollout, before, reply: {
            "request": {"messages": before, "tools": []},
            "response": {"choices": [{"message": reply}]},
            "metadata": {"task_id": task, "session_id": rollout},
        }
    ),
    "rllm gateway": each_call(
        lambda task, rollout, before, reply: {
            "trace_id": "tr",
            "session_id": rollout,
            "messages": before,
            "response_message": reply,
            "metadata": {"task_id": task},
        }
    ),
    "rllm sdk": each_call(
        lambda task, rollout, before, reply: {
            "trace_id": "tr",
            "session_name": f"{task}:{rollout}:0",
            "input": {"messages": before},
            "output": {"choices": [{"message": reply}]},
        }
    ),
}


def summarise(path: Path) -> list[tuple[Any, ...]]:
    """What a rule sees of each call."""
    rule = ResultsStateRule()
    return [
        (
            call.task,
            str(call.rollout).removeprefix(f"{call.task}:").removesuffix(":0"),
            call.reward,
            rule(call.messages),
        )
        for call in open_sessions(path).calls(None)
    ]


EXPECTED = [
    (task, rollout, REWARDS[task, rollout], ResultsStateRule()(chat[:place]))
    for (task, rollout), chat in CHATS.items()
    for place, message in enumerate(chat)
    if message["role"] == "assistant"
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_calls(form: str, tmp_path: Path) -> None:
    assert summarise(write_lines(tmp_path / "sessions.jsonl", FORMS[form])) == EXPECTED


@pytest.mark.parametrize("indent", [None, 2])
def test_results_of_tau_bench_are_one_json_list(indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = [
        {**session, "info": {"task": {}}} for session in each_session(task="task_id", rollout="trial", messages="traj")
    ]
    path.write_text(json.dumps(results, indent=indent), encoding="utf-8")
    assert summarise(path) == EXPECTED


def test_a_compressed_file_is_read_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "sessions"
    path.write_bytes(gzip.compress(write_lines(tmp_path / "plain", FORMS["logs"]).read_bytes()))
    assert summarise(path) == EXPECTED


def test_the_header_names_the_writing_tools(tmp_path: Path) -> None:
    header = {"format": "chat-sessions", "version": 1, "meta": {"writes": ["cancel_*"]}}
    assert open_sessions(write_lines(tmp_path / "s.jsonl", [header, *each_session()])).writes == ("cancel_*",)
    unknown = header | {"meta": {"writes": None}}
    assert open_sessions(write_lines(tmp_path / "u.jsonl", [unknown, *each_session()])).writes == ()


def test_sessions_without_a_rollout_are_numbered_within_their_task(tmp_path: Path) -> None:
    records = [{key: value for key, value in session.items() if key != "rollout"} for session in each_session()]
    found = dict.fromkeys((call.task, call.rollout) for call in read(write_lines(tmp_path / "s.jsonl", records)))
    assert list(found) == [("t1", 0), ("t1", 1), ("t2", 0)]


def read(path: Path) -> list[RecordedCall]:
    return list(open_sessions(path).calls(None))


def test_a_task_that_is_no_id_is_known_by_its_content(tmp_path: Path) -> None:
    tasks: list[Any] = [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 2}]
    records = [{**session, "task": task} for session, task in zip(each_session(), tasks, strict=True)]
    records[1]["rollout"] = "b"
    first, second, third = dict.fromkeys(
        (call.task, call.rollout) for call in read(write_lines(tmp_path / "s", records))
    )
    assert first[0] == second[0] != third[0]


def test_recorded_states_of_the_environment_are_kept(tmp_path: Path) -> None:
    records = [{**each_session()[0], "world": ["w0", "w1"]}]
    first, second = read(write_lines(tmp_path / "s.jsonl", records))
    assert first.state is not None
    assert first.state != second.state


def test_the_steps_of_a_rollouts_file_are_calls_of_one_tool(tmp_path: Path) -> None:
    steps = [("hall", "north"), ("cellar", "take lamp"), ("cellar, lit", "stop")]
    rows = [
        {"task": "t", "rollout": 0, "step": step, "reward": float(step == 2), "observation": seen, "action": action}
        for step, (seen, action) in enumerate(steps)
    ]
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, rows[::-1])
    found = read(path)
    assert [call.reward for call in found] == [1.0, 1.0, 1.0]
    keys = [ResultsStateRule()(call.messages) for call in found]
    act = '["act",{"action":"north"},"cellar"]'
    assert keys == [
        '{"known":[]}',
        f'{{"known":[{act}]}}',
        f'{{"known":[{act},["act",{{"action":"take lamp"}},"cellar, lit"]]}}',
    ]


GOOD = each_session()[0]
HEADER = {"format": "chat-sessions", "version": 1}
WRONG: list[tuple[Any, str]] = [
    ({**GOOD, "task": None}, "line 1: field 'task' is missing; name the task of each session: rollouts of one task"),
    ({**GOOD, "rollout": 1.5}, "line 1: field 'rollout' is 1.5; an id is text or an integer"),
    ({**GOOD, "reward": "good"}, "line 1: field 'reward' is \"good\"; it takes a number"),
    ({**GOOD, "messages": []}, "line 1: field 'messages' is missing or empty; it takes the messages of the session"),
    ({**GOOD, "messages": "hi"}, "line 1: field 'messages' is \"hi\"; it takes a list of objects"),
    (
        {**GOOD, "messages": [{"role": "human", "content": "hi"}]},
        "line 1: field 'messages[0].role' is \"human\"; it takes system, developer, user, assistant, tool",
    ),
    (
        {**GOOD, "messages": [{"role": "user", "content": 3}]},
        "line 1: field 'messages[0].content' is 3; it takes text, null, or a list of parts",
    ),
    (
        {**GOOD, "messages": [{"role": "user", "content": ["hi"]}]},
        "line 1: field 'messages[0].content' is [\"hi\"]; it takes a list of objects",
    ),
    (
        {**GOOD, "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]},
        "line 1: field 'messages[0].tool_calls[0].function.name' is missing; a call names its tool",
    ),
    (
        {**GOOD, "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]},
        "line 1: field 'messages[0].tool_calls[0].function.arguments' is 3; it takes JSON text, or an object",
    ),
    *(
        (
            {**GOOD, "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]},
            f"line 1: field 'messages[0].content[0].text' is {shown}; it takes text; leave a part without text out",
        )
        for text, shown in ((None, "null"), (3, "3"))
    ),
    *(
        ([{**HEADER, "meta": meta}, GOOD], f"line 1: field 'meta' is {shown}; it takes an object; leave it out if")
        for meta, shown in ((None, "null"), ("book", '"book"'))
    ),
    *(
        (
            [{**HEADER, "meta": {"writes": writes}}, GOOD],
            f"line 1: field 'meta.writes' is {shown}; it takes a list of text; write one text per tool, e.g. [",
        )
        for writes, shown in (("book", '"book"'), (["book", 3], '["book", 3]'))
    ),
    ({**GOOD, "world": ["w0"]}, "line 1: field 'world' has 1 entries, and the session has 2 replies; it takes one"),
    ({**GOOD, "world": "w0"}, "line 1: field 'world' is \"w0\", and the session has 2 replies; it takes one state per"),
    ([GOOD, GOOD], "line 2: field 'rollout' is \"a\" as in line 1, for the same task; give each session of a task its"),
    ([GOOD, 3], "line 2: found 3 instead of an object; check the format"),
]


@pytest.mark.parametrize(("records", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_bad_input_is_named_with_its_place(records: Any, message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", records if isinstance(records, list) else [records])
    with pytest.raises(FileError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"role": "user", "content": "hi"}]\n', ', entry 1: found {"role": "user"'),
        ('[{"task": "t"}]\n[{"task": "t"}]\n', ": not a valid JSON list (Extra data"),
        ('[{"task": "t"', ": not a valid JSON list (Expecting"),
        ("", ": the file is empty"),
        ('{"task": "t",\n', ", line 1: "),
    ],
)
def test_a_file_of_another_form_is_an_error(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_rollouts_without_texts_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [{"task": "t", "rollout": 0, "step": 0, "reward": 1.0, "state": "s"}])
    with pytest.raises(FileError, match="row 1: state rules read observation and action, and one is missing"):
        read(path)
