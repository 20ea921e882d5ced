"""Reads recorded sessions of agents as model calls, each with the messages before it. Nothing is run.

| record | what it is | where its keys are from |
|---|---|---|
| `messages` | one session: OpenAI-style messages | chat logs of any program |
| `traj` | one session | results of tau-bench, a JSON list |
| `messages`, `episode_id` | one session | `results.jsonl` of OpenEnv |
| `messages`, `response_message` | one call | trace records of rLLM's gateway |
| `input`, `output` | one call | traces of rLLM's SDK |
| `request`, `response` | one call | trace entries of OpenEnv |
| a row of a rollouts file | one step | groupwise: observation and action are a tool's result and its call |

A record is a line of a JSON Lines file, or an entry of a JSON list. A record or its `metadata` names task, rollout and
reward.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.store.foreign_record import Record, make_id, read_records
from groupwise.store.formats import is_run, open_rollouts
from groupwise.store.rollout_lines import GZIP_MAGIC, PARQUET_MAGIC, JsonLines, Progress, is_header, read_first_bytes
from groupwise.store.rollout_rows import quote_json
from groupwise.system.errors import FileError
from groupwise.system.json_text import parse_json

TASK = ("task", "task_id")
ROLLOUT = ("rollout", "attempt", "trial", "episode_id", "rollout_id", "session_id", "session_name")
REWARD = ("reward", "score")
MESSAGES = ("messages", "traj")
STATES = ("states", "world")
ROLES = ("system", "developer", "user", "assistant", "tool")
FORMAT = "chat-sessions"
"""The format that a header names."""
MAX_LIST_BYTES = 1 << 30
"""Of a file that is one JSON list: it is read whole."""
ACT = "act"
"""The tool that the actions of a rollouts file are calls of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One model call of a recorded session."""

    task: str | int
    rollout: str | int
    """Id within its task."""
    messages: Sequence[Mapping[str, Any]]
    """What the model read, in OpenAI's chat form."""
    reward: float | None = None
    """Final score of the rollout; None = this record does not say."""
    state: str | None = None
    """The environment's state before the call, if it was recorded."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """An opened file of recorded sessions."""

    size: int
    writes: tuple[str, ...]
    """Tools that change the environment, if the file names them."""
    calls: Callable[[Progress | None], Iterator[RecordedCall]]
    """Every call; those of one rollout in their order."""


def open_sessions(path: Path) -> Sessions:
    """Open recorded sessions in any of the forms above; a file of another form is an error."""
    if is_run(path) or (first := read_first_bytes(path)) == PARQUET_MAGIC:
        return _open_rollouts(path)
    size = path.stat().st_size
    is_compressed = first.startswith(GZIP_MAGIC)
    with gzip.open(path) if is_compressed else path.open("rb") as file:
        if file.read(256).lstrip()[:1] == b"[":
            return Sessions(size, (), lambda progress: _read_sessions(_read_list(path, is_compressed)))
    lines = JsonLines(path, is_compressed)
    line, head = next(lines.values(), (1, None))
    if is_header(head):
        return _open_rollouts(path)
    writes = _read_writes(Record(path, line, head)) if isinstance(head, dict) else ()
    return Sessions(size, writes, lambda progress: _read_sessions(_skip_header(lines, progress)))


def _read_writes(head: Record) -> tuple[str, ...]:
    """The writing tools that the first record names, if it is a header."""
    meta = head.fields.get("meta", {}) if head.fields.get("format") == FORMAT else {}
    if not isinstance(meta, dict):
        raise head.error("meta", f"is {quote_json(meta)}", "it takes an object; leave it out if it names nothing")
    writes = meta.get("writes")
    if writes is None:  # the writing tools are not known
        return ()
    if not isinstance(writes, list) or not all(isinstance(tool, str) for tool in writes):
        advice = 'it takes a list of text; write one text per tool, e.g. ["book", "send_*"]'
        raise head.error("meta.writes", f"is {quote_json(writes)}", advice)
    return tuple(writes)


def _skip_header(lines: JsonLines, progress: Progress | None) -> Iterator[Record]:
    return (record for record in read_records(lines, progress) if record.fields.get("format") != FORMAT)


def _read_list(path: Path, is_compressed: bool) -> Iterator[Record]:
    with gzip.open(path) if is_compressed else path.open("rb") as file:
        content = file.read(MAX_LIST_BYTES + 1)
    if len(content) > MAX_LIST_BYTES:
        raise FileError(f"{path}: the JSON list is longer than {MAX_LIST_BYTES >> 20} MiB; write one session per line")
    try:
        entries = parse_json(content.decode())
    except ValueError as error:
        raise FileError(f"{path}: not a valid JSON list ({error}); write one JSON object per line") from None
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or "role" in entry:
            raise FileError(
                f"{path}, entry {number}: found {quote_json(entry)} instead of a session; write an object with task, "
                "rollout, reward and messages per session"
            )
        yield Record(path, number, entry, unit="entry")


def _read_sessions(records: Iterator[Record]) -> Iterator[RecordedCall]:
    sessions: dict[tuple[str | int, str | int], int] = {}
    unnamed: Counter[str | int] = Counter()
    for record in records:
        named, task = _find(record, ROLLOUT), _read_task(record)
        rollout = named[0].id(named[1]) if named else unnamed[task]
        unnamed[task] += 1
        scored = _find(record, REWARD)
        reward = float(scored[0].number(scored[1])) if scored else None
        make = partial(RecordedCall, task=task, rollout=rollout, reward=reward)
        if (asked := _find_request(record)) is not None:
            yield make(messages=_read_messages(asked, "messages"))
            continue
        before = sessions.setdefault((task, rollout), record.line)
        if before != record.line:
            raise record.error(
                named[1] if named else "rollout",
                f"is {quote_json(rollout)} as in {record.unit} {before}, for the same task",
                "give each session of a task its own rollout",
            )
        messages = _read_messages(record, record.first(MESSAGES) or "messages")
        asked_at = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        states = _read_states(record, len(asked_at))
        for place, state in zip(asked_at, states, strict=True):
            yield make(messages=messages[:place], state=state)


def _find(record: Record, names: Sequence[str]) -> tuple[Record, str] | None:
    """The object with one of these keys, and the key: the record or its metadata."""
    for place in (record, record.record("metadata")):
        for name in names if place is not None else ():
            if place is not None and place.fields.get(name) is not None:
                return place, name
    return None


def _read_task(record: Record) -> str | int:
    if (found := _find(record, TASK)) is not None:
        value = found[0].fields[found[1]]
        return value if type(value) in (str, int) else make_id(value)
    session = record.text("session_name") or record.text("session_id") or ""
    if ":" in session:  # rLLM names a session task:rollout:retry
        return session.partition(":")[0]
    raise record.error("task", "is missing", "name the task of each session: rollouts of one task are compared")


def _find_request(record: Record) -> Record | None:
    """The object with the messages of one call; None if the record is a whole session."""
    if "response_message" in record.fields:
        return record
    for asked, answered in (("request", "response"), ("input", "output")):
        if answered in record.fields and MESSAGES[0] not in record.fields:
            return record.record(asked)
    return None


def _read_messages(record: Record, name: str) -> list[dict[str, Any]]:
    messages = record.records(name)
    if not messages:
        raise record.error(name, "is missing or empty", "it takes the messages of the session, in OpenAI's chat form")
    return [_read_message(message) for message in messages]


def _read_message(message: Record) -> dict[str, Any]:
    role, content = message.text("role"), message.fields.get("content")
    if role not in ROLES:
        raise message.error("role", f"is {quote_json(message.fields.get('role'))}", f"it takes {', '.join(ROLES)}")
    if isinstance(content, list):
        for part in message.records("content"):
            if not isinstance(text := part.fields.get("text", ""), str):
                raise part.error("text", f"is {quote_json(text)}", "it takes text; leave a part without text out")
    elif content is not None and not isinstance(content, str):
        raise message.error("content", f"is {quote_json(content)}", "it takes text, null, or a list of parts")
    calls = [_read_call(call) for call in message.records("tool_calls")]
    return {**message.fields, "tool_calls": calls} if calls else message.fields


def _read_call(call: Record) -> dict[str, Any]:
    """A call in OpenAI's form; some programs write name and arguments without `function` around them."""
    function = call.record("function") or call
    name, arguments = function.text("name"), function.fields.get("arguments")
    if name is None:
        raise function.error("name", "is missing", "a call names its tool")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise function.error("arguments", f"is {quote_json(arguments)}", "it takes JSON text, or an object")
    return {"id": call.fields.get("id"), "function": {"name": name, "arguments": arguments}}


def _read_states(record: Record, num: int) -> Sequence[str | None]:
    name = record.first(STATES)
    states = record.fields[name] if name is not None else None
    if name is None or states is None:
        return [None] * num
    if not isinstance(states, list) or len(states) != num:
        found = f"has {len(states)} entries" if isinstance(states, list) else f"is {quote_json(states)}"
        raise record.error(name, f"{found}, and the session has {num} replies", "it takes one state per reply")
    return [None if state is None else make_id(state) for state in states]


# Rollouts files: an action is a call of the tool `act`, and the next observation is its result.


def _open_rollouts(path: Path) -> Sessions:
    file = open_rollouts(path)

    def read(progress: Progress | None) -> Iterator[RecordedCall]:
        rollouts: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
        for number, row in enumerate(file.rows(progress), start=1):
            if not isinstance(row.get("observation"), str) or not isinstance(row.get("action"), str):
                raise FileError(
                    f"{file.path}, row {number}: state rules read observation and action, and one is missing; record "
                    "them as text, or audit the recorded states without --state"
                )
            rollouts.setdefault((row.get("group", row["task"]), row["rollout"]), []).append(row)
        for (task, rollout), rows in rollouts.items():
            rows.sort(key=lambda row: row["step"])
            reward = rows[-1].get("outcome", sum(row["reward"] for row in rows))
            messages: list[dict[str, Any]] = [{"role": "user", "content": rows[0]["observation"]}]
            for row, following in zip(rows, [*rows[1:], None], strict=True):
                state = None if row.get("state") is None else make_id(row["state"])
                yield RecordedCall(task=task, rollout=rollout, messages=messages[:], reward=reward, state=state)
                if following is not None:
                    name = str(row["step"])
                    call = {"id": name, "function": {"name": ACT, "arguments": {"action": row["action"]}}}
                    messages += [
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": name, "content": following["observation"]},
                    ]

    return Sessions(file.size, (), read)
