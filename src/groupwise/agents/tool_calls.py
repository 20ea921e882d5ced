"""Tool calls in the text of a response, in the formats that models are trained to write.

A call is read only if it is whole and right: JSON without repairs, a name, and arguments that are an object. Else the
response is malformed, and its text is plain content. The text of the arguments stays as the model wrote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from groupwise.rollout.actions import Action, Admissible
from groupwise.system.json_text import parse_json, to_canonical_json

Format = Literal["tool_call", "llama", "mistral"]
"""`tool_call`: JSON between `<tool_call>` tags (Qwen, Hermes). `llama`: the whole response is a JSON object with name
and parameters. `mistral`: after `[TOOL_CALLS]`, a JSON list, or names with `[ARGS]`."""
Call = tuple[str, str]
"""The name of a tool, and its arguments as the text that the model wrote."""

OPENING, CLOSING = "<tool_call>", "</tool_call>"
LLAMA_TAG = "<|python_tag|>"
MISTRAL_TAG, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")


def find_format(chat_template: str | None) -> Format:
    """The format that a chat template shows a model; `tool_call` if it shows none."""
    template = chat_template or ""
    if MISTRAL_TAG in template:
        return "mistral"
    if OPENING not in template and (LLAMA_TAG in template or '"parameters": dictionary' in template):
        return "llama"
    return "tool_call"


class ToolCallParser:
    """The action parser of agents: an action is the assistant message of a response, as JSON text."""

    def __init__(self, form: Format) -> None:
        self.form = form

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        try:
            content, calls = _READERS[self.form](text)
        except (ValueError, RecursionError):
            return Action(to_canonical_json({"role": "assistant", "content": text}), False)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
            message["tool_calls"] = [{"type": "function", "function": function} for function in functions]
        return Action(to_canonical_json(message), stopped and bool(text))

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return action


def _read_tagged(text: str) -> tuple[str, list[Call]]:
    content, calls, place = list[str](), list[Call](), 0
    while (begin := text.find(OPENING, place)) >= 0:
        content.append(text[place:begin])
        fields, end = _split_object(text, begin + len(OPENING))
        end = _skip_space(text, end)
        if not text.startswith(CLOSING, end):
            raise ValueError("text follows the call before the closing tag")
        calls.append(_make_call(fields, "arguments"))
        place = end + len(CLOSING)
    content.append(text[place:])
    if CLOSING in content[-1]:
        raise ValueError("a closing tag has no opening one")
    return "".join(content).strip() if calls else text, calls


def _read_llama(text: str) -> tuple[str, list[Call]]:
    has_tag, body = text.startswith(LLAMA_TAG), text.removeprefix(LLAMA_TAG)
    try:
        fields, end = _split_object(body, 0)
        if set(fields) != {"name", "parameters"} or body[end:].strip():
            raise ValueError("the response is not a call alone")
        return "", [_make_call(fields, "parameters")]
    except ValueError:
        if has_tag or LLAMA_TAG in body:
            raise
        return text, []


def _read_mistral(text: str) -> tuple[str, list[Call]]:
    content, *bodies = text.split(MISTRAL_TAG)
    calls = list[Call]()
    for body in bodies:
        name, args, rest = body.partition(MISTRAL_ARGUMENTS)
        if args:
            begin = _skip_space(rest, 0)
            _, end = _DECODER.raw_decode(rest, begin)
            calls.append(_make_call({"name": json.dumps(name.strip()), "arguments": rest[begin:end]}, "arguments"))
        else:
            place, end = _skip_space(body, 0), 0
            if not body.startswith("[", place):
                raise ValueError("a list of calls is needed")
            while not body.startswith("]", place):
                fields, end = _split_object(body, place + 1)
                calls.append(_make_call(fields, "arguments"))
                place = _skip_space(body, end)
                if not body.startswith((",", "]"), place):
                    raise ValueError("a list of calls does not end")
            rest, end = body, place + 1
        if rest[end:].strip():
            raise ValueError("text follows a call")
    return content.strip() if calls else text, calls


_READERS: Mapping[Format, Callable[[str], tuple[str, list[Call]]]] = {
    "tool_call": _read_tagged,
    "llama": _read_llama,
    "mistral": _read_mistral,
}


def _make_call(fields: Mapping[str, str], arguments: str) -> Call:
    if not {"name", arguments} <= set(fields):
        raise ValueError("a call has a name and arguments")
    name, value = json.loads(fields["name"]), parse_json(fields[arguments])
    if not isinstance(name, str) or not name.strip() or not isinstance(value, dict):
        raise ValueError("the name is a text, and the arguments are an object")
    # Clients cannot read NaN, and half of a character cannot be written as UTF-8.
    json.dumps([name, json.loads(fields[arguments])], ensure_ascii=False, allow_nan=False).encode()
    return name, fields[arguments]


def _split_object(text: str, place: int) -> tuple[dict[str, str], int]:
    """The fields of the JSON object at a place, each as its own text, and where the object ends.

    >>> _split_object('{"name": "find", "arguments": {"n":  1}} and more', 0)
    ({'name': '"find"', 'arguments': '{"n":  1}'}, 40)
    """
    fields, place, separator = dict[str, str](), _skip_space(text, place), "{"
    while True:
        if not text.startswith(separator, place):
            raise ValueError("an object is needed")
        key, end = _DECODER.raw_decode(text, _skip_space(text, place + 1))
        colon = _skip_space(text, end)
        if not isinstance(key, str) or key in fields or not text.startswith(":", colon):
            raise ValueError("a field has a name of its own, and a value")
        begin = _skip_space(text, colon + 1)
        _, end = _DECODER.raw_decode(text, begin)
        fields[key], place, separator = text[begin:end], _skip_space(text, end), ","
        if text.startswith("}", place):
            return fields, place + 1


def _skip_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    assert match is not None, "an empty match is one too"
    return match.end()
