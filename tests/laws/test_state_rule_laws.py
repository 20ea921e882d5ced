"""Laws of state rules, for random conversations: what a key must not depend on, and what it must."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from groupwise.agents.state_rules import (
    ExchangeStateRule,
    LastToolResultStateRule,
    ResultsStateRule,
    ToolHistoryStateRule,
    ToolRule,
    WritesStateRule,
)
from tests.unit.agents.chats import Message, calls, result, says, user

RULES: dict[str, ToolRule] = {
    "exchange": ExchangeStateRule(writes=("set_*",)),
    "writes": WritesStateRule(writes=("set_*",)),
    "results": ResultsStateRule(),
    "tool_history": ToolHistoryStateRule(),
    "last_tool_result": LastToolResultStateRule(),
}
EVERY_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)

_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_VALUES = st.recursive(
    st.one_of(st.integers(-999, 999), st.booleans(), st.none(), _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(_WORDS, _VALUES, max_size=4)
_CALL = st.tuples(st.sampled_from(("get_order", "set_order", "think")), _ARGUMENTS.map(json.dumps), _WORDS)
_REPLY = st.lists(_CALL, min_size=1, max_size=3).map(
    lambda made: [
        calls(*((name, arguments) for name, arguments, _ in made)),
        *(result(answer, number) for number, (_, _, answer) in enumerate(made)),
    ]
)
_TALK = st.just([says("Which order?"), user("The last one.")])
CHATS = st.lists(st.one_of(_REPLY, _TALK), max_size=5).map(
    lambda turns: [user("Help me."), *(message for turn in turns for message in turn)]
)


@EVERY_RULE
@given(chat=CHATS, seed=st.integers(0, 99))
def test_key_order_and_white_space_of_arguments_change_nothing(rule: Any, chat: list[Message], seed: int) -> None:
    rng, other = random.Random(seed), copy.deepcopy(chat)
    for message in other:
        for call in message.get("tool_calls", ()):
            entries = list(json.loads(call["function"]["arguments"]).items())
            rng.shuffle(entries)
            indent = rng.choice((None, 0, 3))
            call["function"]["arguments"] = json.dumps(dict(entries), indent=indent, ensure_ascii=rng.random() < 0.5)
    assert rule(other) == rule(chat)


@EVERY_RULE
@given(chat=CHATS, seed=st.integers(0, 99))
def test_the_order_of_parallel_calls_and_of_their_results_changes_nothing(
    rule: Any, chat: list[Message], seed: int
) -> None:
    rng, other = random.Random(seed), list[Message]()
    for message in copy.deepcopy(chat):
        if message.get("tool_calls"):
            rng.shuffle(message["tool_calls"])
        if message["role"] == "tool" and other[-1]["role"] == "tool" and rng.random() < 0.5:
            other.insert(-1, message)
        else:
            other.append(message)
    assert rule(other) == rule(chat)


@EVERY_RULE
@given(chat=CHATS, words=st.lists(_WORDS, min_size=20, max_size=20))
def test_prose_changes_nothing(rule: Any, chat: list[Message], words: list[str]) -> None:
    other = copy.deepcopy(chat)
    for message, text in zip(other, words, strict=False):
        if message["role"] != "tool":
            message["content"] = text
    system = {"role": "system", "content": words[-1]}
    assert rule([system, *other]) == rule(chat)


@EVERY_RULE
@given(chat=CHATS)
def test_a_rule_changes_no_message_and_repeats(rule: Any, chat: list[Message]) -> None:
    before = copy.deepcopy(chat)
    assert rule(chat) == rule(before)
    assert chat == before


@pytest.mark.parametrize("name", ["exchange", "writes", "results", "tool_history"])
@given(chat=CHATS, number=st.integers(0, 10**12), other=st.integers(0, 10**12))
def test_numbers_in_arguments_matter(name: str, chat: list[Message], number: int, other: int) -> None:
    rule: Any = RULES[name]
    keys = {
        rule([*chat, calls(("set_order", json.dumps({"order": value}))), result("done")]) for value in (number, other)
    }
    assert len(keys) == len({number, other})


@pytest.mark.parametrize("name", ["exchange", "results", "last_tool_result"])
@given(chat=CHATS, number=st.integers(0, 10**12), other=st.integers(0, 10**12))
def test_numbers_in_results_matter(name: str, chat: list[Message], number: int, other: int) -> None:
    rule: Any = RULES[name]
    keys = {rule([*chat, calls(("look", "{}")), result(f"{value} left")]) for value in (number, other)}
    assert len(keys) == len({number, other})


@EVERY_RULE
@given(chat=CHATS)
def test_thinking_changes_nothing(rule: Any, chat: list[Message]) -> None:
    assert rule([*chat, calls(("think", '{"thought": "Hm."}')), result("")]) == rule(chat)
