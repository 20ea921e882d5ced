"""What a request may say, and the sentence for each that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.chat import check_request
from groupwise.agents.sessions import RefusedCall
from tests.unit.agents.scripted_calls import TOOLS

CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}


def check(**fields: Any) -> dict[str, Any]:
    return check_request({"model": "policy", "messages": [{"role": "user", "content": "Hi."}], **fields})


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ({"role": "user", "content": "Hi."}, {"role": "user", "content": "Hi."}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        ({"role": "assistant"}, {"role": "assistant", "content": ""}),
        ({"role": "developer", "content": "Be short."}, {"role": "system", "content": "Be short."}),
        (
            {"role": "user", "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you."}]},
            {"role": "user", "content": "Hi you."},
        ),
        ({"role": "user", "content": []}, {"role": "user", "content": ""}),
        (
            {"role": "tool", "tool_call_id": "1", "content": "3 things", "unknown": 1},
            {"role": "tool", "tool_call_id": "1", "content": "3 things"},
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{**CALL, "function": {"name": "find", "arguments": {"q": 1}}}],
            },
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": "not JSON"}}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "", "type": "function", "function": {"name": "find", "arguments": "not JSON"}},
                ],
            },
        ),
    ],
)
def test_messages_as_clients_send_them(message: Any, read: Any) -> None:
    assert check(messages=[message])["messages"] == [read]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "find"}}},
        {"response_format": {"type": "json_object"}},
        {"temperature": 0.1},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"parallel_tool_calls": False},
        {"something": {"new": [1]}},
    ],
)
def test_what_is_not_ours_to_decide_is_accepted_and_recorded(fields: dict[str, Any]) -> None:
    assert check(**fields)["asked"] == fields


def test_fields_that_ask_for_nothing_are_accepted() -> None:
    read = check(n=1, logit_bias={}, tools=None, stop=None, functions=None, temperature=None, stream=True)
    assert (read["tools"], read["stop"], read["asked"]) == ([], [], {})


def test_tools_and_stop_texts() -> None:
    read = check(tools=[{**TOOLS[0], "strict": True}], stop="\n")
    assert read["tools"][0]["function"]["name"] == "find"
    assert read["stop"] == ["\n"]


@pytest.mark.parametrize(
    ("fields", "sentence", "code"),
    [
        ({"n": 2}, "n: a call has one answer, which is one step; leave n out, and call again for another answer", None),
        (
            {"logit_bias": {"50256": -100}},
            "logit_bias: it would change the distribution that is trained; leave it out",
            None,
        ),
        (
            {"model": "gpt-5"},
            "model: found 'gpt-5', but this endpoint serves 'policy' alone; ask another endpoint for other models",
            "model_not_found",
        ),
        ({"functions": [{"name": "f"}]}, "functions: this form is of 2023; use tools and tool_choice", None),
        ({"messages": []}, "messages: expected a list of at least one message", None),
        ({"messages": "Hi."}, "messages: expected a list of at least one message", None),
        (
            {"messages": [{"role": "wizard"}]},
            "messages[0]: expected an object with a role, one of system, developer, user, assistant, tool",
            None,
        ),
        (
            {"messages": ["Hi."]},
            "messages[0]: expected an object with a role, one of system, developer, user, assistant, tool",
            None,
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content: expected text, null, or a list of parts with text; images and sound are not read",
            None,
        ),
        (
            {"messages": [{"role": "user", "content": 3}]},
            "messages[0].content: expected text, null, or a list of parts with text; images and sound are not read",
            None,
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "find"}]}]},
            'messages[0].tool_calls[0]: expected {"id": ..., "type": "function", "function": '
            '{"name": ..., "arguments": ...}}',
            None,
        ),
        (
            {"tools": [{"name": "find"}]},
            'tools: expected a list of {"type": "function", "function": {"name": ...}}',
            None,
        ),
        ({"stop": [3]}, "stop: expected a text or a list of texts", None),
    ],
)
def test_refused_requests(fields: dict[str, Any], sentence: str, code: str | None) -> None:
    with pytest.raises(RefusedCall) as refused:
        check(**fields)
    assert str(refused.value) == sentence
    assert refused.value.code == code
    assert refused.value.status == (404 if code else 400)
