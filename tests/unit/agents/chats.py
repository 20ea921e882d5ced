"""Messages of small conversations in OpenAI's chat form."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def calls(*asked: tuple[str, str], text: str | None = None) -> Message:
    """A reply with calls, each a tool's name and its arguments as text; the ids are `id_0`, `id_1`, ..."""
    tool_calls = [
        {"id": f"id_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(asked)
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}


def result(text: Any, number: int = 0, **marks: Any) -> Message:
    return {"role": "tool", "tool_call_id": f"id_{number}", "content": text, **marks}


def exchange(name: str, arguments: str, answer: Any, **marks: Any) -> list[Message]:
    return [calls((name, arguments)), result(answer, **marks)]
