"""Calls in a response: what is read, what is not, and that nothing is evaluated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs.bfcl.services import MAX_RESPONSE_CHARACTERS, Call, read_calls

NAMES = st.from_regex(r"[a-z][a-z_0-9]{0,8}x", fullmatch=True)  # ends in x: no word of Python's does
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(
    Call,
    name=NAMES,
    values=st.lists(VALUES, max_size=2).map(tuple),
    named=st.dictionaries(NAMES, VALUES, max_size=3),
)


def write_call(call: Call) -> str:
    parts = [repr(each) for each in call.values] + [f"{name}={each!r}" for name, each in call.named.items()]
    return f"{call.name}({', '.join(parts)})"


@given(st.lists(CALLS, max_size=3))
def test_what_is_written_as_python_is_read(calls: list[Call]) -> None:
    assert read_calls(f" [{', '.join(map(write_call, calls))}]\n") == tuple(calls)
    for call in calls:
        assert read_calls(write_call(call)) == (call,)


@given(st.lists(CALLS, max_size=3))
def test_what_is_written_as_json_is_read(calls: list[Call]) -> None:
    parts = [{"name": call.name, "arguments": dict(call.named)} for call in calls]
    assert read_calls(json.dumps(parts)) == tuple(Call(name=call.name, named=call.named) for call in calls)


@given(st.text() | st.text(st.sampled_from("[](){}:,='\"ab1 \n")))
def test_any_text_can_be_read(text: str) -> None:
    """Most of it holds no calls; what is read of the rest is read again from how it is written."""
    calls = read_calls(text)
    assert calls is None or read_calls(f"[{', '.join(map(write_call, calls))}]") == calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "I have moved the file.",
        "ls",
        "ls()()",
        "os.system('true')",
        "ls(open('notes'))",
        "ls(a=1 if True else 2)",
        "ls(*[1])",
        "ls(**{'a': 1})",
        "[ls(), 3]",
        "ls(); ls()",
        "ls()\nls()",
        "lambda: ls()",
        "{}",
        '{"name": "ls"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "ls", "arguments": []}',
        "(" * 5000,
        "[" * 5000,
        "ls(" + "-" * 5000 + "1)",
        "ls(" + "9" * 6000 + ")",
        "\x00",
        f"echo(content='{'a' * MAX_RESPONSE_CHARACTERS}')",
    ],
)
def test_everything_else_is_no_call(text: str) -> None:
    assert read_calls(text) is None


def test_the_empty_list_is_read_and_holds_no_call() -> None:
    assert read_calls("[ ]") == ()
