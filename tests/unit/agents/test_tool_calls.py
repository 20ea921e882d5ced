"""Calls in responses: whole and right ones are read, anything else stays text and is malformed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groupwise.agents.tool_calls import Format, ToolCallParser, find_format

CALL = '{"name": "find", "arguments": {"q":  "a b", "n": 1.0}}'


def read(form: Format, text: str, *, stopped: bool = True) -> tuple[dict[str, Any], bool]:
    action = ToolCallParser(form).read(text, stopped=stopped)
    return json.loads(action.text), action.well_formed


@pytest.mark.parametrize(
    ("form", "text", "content", "names"),
    [
        ("tool_call", "Hello.", "Hello.", []),
        ("tool_call", f"<tool_call>\n{CALL}\n</tool_call>", "", ["find"]),
        ("tool_call", f"Let me see. <tool_call>{CALL}</tool_call>", "Let me see.", ["find"]),
        ("tool_call", f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call> Done.", "Done.", ["find"] * 2),
        ("tool_call", '<tool_call>{"name": "say", "arguments": {"t": "</tool_call>"}}</tool_call>', "", ["say"]),
        ("tool_call", CALL, CALL, []),
        ("llama", '{"name": "find", "parameters": {"q": "a"}}', "", ["find"]),
        ("llama", '<|python_tag|>{"name": "find", "parameters": {"q": "a"}}', "", ["find"]),
        ("llama", '{"answer": 42}', '{"answer": 42}', []),
        ("llama", "The answer is 42.", "The answer is 42.", []),
        ("mistral", "Hello.", "Hello.", []),
        ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", "", ["find", "find"]),
        ("mistral", 'See: [TOOL_CALLS]find[ARGS]{"q": "a"}[TOOL_CALLS]read[ARGS]{}', "See:", ["find", "read"]),
    ],
)
def test_responses_with_and_without_calls(form: Format, text: str, content: str, names: list[str]) -> None:
    message, well_formed = read(form, text)
    assert well_formed
    assert message["content"] == content
    assert [call["function"]["name"] for call in message.get("tool_calls", [])] == names


def test_arguments_stay_as_they_were_written() -> None:
    message, _ = read("tool_call", f"<tool_call>{CALL}</tool_call>")
    assert message["tool_calls"][0]["function"]["arguments"] == '{"q":  "a b", "n": 1.0}'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("tool_call", "<tool_call>"),
        ("tool_call", f"<tool_call>{CALL}"),
        ("tool_call", f"{CALL}</tool_call>"),
        ("tool_call", f"<tool_call>{CALL}}}</tool_call>"),
        ("tool_call", f"<tool_call>{CALL[:-2]}</tool_call>"),
        ("tool_call", '<tool_call>{"name": "find"}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "find", "arguments": "{}"}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "find", "arguments": [1]}</tool_call>'),
        ("tool_call", '<tool_call>{"name": 3, "arguments": {}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": " ", "arguments": {}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "find", "arguments": {"n": NaN}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "find", "arguments": {"n": "\\ud800"}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "find", "arguments": {"n": 1, "n": 2}}</tool_call>'),
        ("tool_call", '<tool_call>{"name": "a", "name": "find", "arguments": {}}</tool_call>'),
        ("tool_call", "<tool_call>{'name': 'find', 'arguments': {}}</tool_call>"),
        ("tool_call", f"<tool_call>{CALL}</tool_call><tool_call>find</tool_call>"),
        ("tool_call", '<tool_call>{"name": "f", "arguments": ' + '{"a": ' * 5000),
        ("llama", "<|python_tag|>print(1)"),
        ("mistral", "[TOOL_CALLS] find"),
        ("mistral", f"[TOOL_CALLS] [{CALL}"),
        ("mistral", f"[TOOL_CALLS] [{CALL}] and more"),
        ("mistral", "[TOOL_CALLS]find[ARGS]{"),
    ],
)
def test_malformed_calls_are_plain_content(form: Format, text: str) -> None:
    message, well_formed = read(form, text)
    assert not well_formed
    assert message == {"role": "assistant", "content": text}


def test_a_response_that_was_cut_off_is_malformed_also_with_a_whole_call() -> None:
    message, well_formed = read("tool_call", f"<tool_call>{CALL}</tool_call>", stopped=False)
    assert not well_formed
    assert len(message["tool_calls"]) == 1


def test_an_empty_response_is_malformed() -> None:
    assert read("tool_call", "") == ({"role": "assistant", "content": ""}, False)


def test_the_chat_template_says_the_format() -> None:
    assert find_format("... <tool_call> ...") == "tool_call"
    assert find_format("... [TOOL_CALLS] ...") == "mistral"
    assert find_format("... <|python_tag|> ...") == "llama"
    assert find_format(None) == "tool_call"
