"""The keys of each state rule, on conversations that are small enough to derive them by hand."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.agents.state_rules import (
    ExchangeStateRule,
    LastToolResultStateRule,
    NoneStateRule,
    ResultsStateRule,
    ToolHistoryStateRule,
    ToolRule,
    WritesStateRule,
    canonical,
    shorten,
)
from groupwise.parts.part import Slot
from groupwise.system.errors import ConfigError
from tests.unit.agents.chats import Message, calls, exchange, result, says, user

OPENING = [{"role": "system", "content": "Help."}, user("Cancel order 7.")]
FOUND = exchange("find", '{"order": 7}', '{"status": "sent", "id": 7}')
CANCELLED = exchange("cancel_order", '{"order": 7}', "done")
SESSION = [*OPENING, *FOUND, says("Really?"), user("Yes."), *CANCELLED]
WRITES = ("cancel_*",)

FIND, FIND_DONE = '["find",{"order":7}]', '["find",{"order":7},{"id":7,"status":"sent"}]'
CANCEL, CANCEL_DONE = '["cancel_order",{"order":7}]', '["cancel_order",{"order":7},"done"]'


@pytest.mark.parametrize(
    ("rule", "messages", "key"),
    [
        (ExchangeStateRule(), OPENING, '{"writes":[],"calls":[],"user":[1]}'),
        (ExchangeStateRule(), [*OPENING, *FOUND], f'{{"writes":[],"calls":[{FIND_DONE}],"user":[0]}}'),
        (ExchangeStateRule(), SESSION[:-2], f'{{"writes":[],"calls":[{FIND_DONE}],"user":[1]}}'),
        (ExchangeStateRule(), SESSION, f'{{"writes":[],"calls":[{CANCEL_DONE}],"user":[0]}}'),
        (ExchangeStateRule(writes=WRITES), SESSION, f'{{"writes":[{CANCEL}],"calls":[{CANCEL_DONE}],"user":[0]}}'),
        (WritesStateRule(writes=WRITES), SESSION[:-2], '{"writes":[]}'),
        (WritesStateRule(writes=WRITES), SESSION, f'{{"writes":[{CANCEL}]}}'),
        (WritesStateRule(writes=WRITES), [*SESSION, *FOUND], f'{{"writes":[{CANCEL}]}}'),
        (WritesStateRule(writes=WRITES), [*SESSION, *CANCELLED], f'{{"writes":[{CANCEL},{CANCEL}]}}'),
        (ResultsStateRule(), OPENING, '{"known":[]}'),
        (ResultsStateRule(), SESSION, f'{{"known":[{CANCEL_DONE},{FIND_DONE}]}}'),
        (ResultsStateRule(), [*SESSION, *FOUND], f'{{"known":[{CANCEL_DONE},{FIND_DONE}]}}'),
        (ToolHistoryStateRule(), SESSION, f'{{"history":[[{FIND}],[{CANCEL}]]}}'),
        (LastToolResultStateRule(), OPENING, '{"results":[]}'),
        (LastToolResultStateRule(), SESSION, '{"results":["done"]}'),
        (NoneStateRule(), SESSION, None),
    ],
)
def test_the_key_of_each_rule(rule: Any, messages: list[Message], key: str | None) -> None:
    assert rule(messages) == key


@pytest.mark.parametrize(
    "answer",
    [
        "Error: user not found",
        " error 404",
        "Traceback (most recent call last):",
        "Nothing happens.",
        '{"error": "no such order"}',
        '{"isError": true, "content": []}',
        [{"type": "text", "text": "Failed to cancel"}],
    ],
)
def test_a_write_that_failed_changes_nothing(answer: Any) -> None:
    rule = WritesStateRule(writes=WRITES)
    failed = exchange("cancel_order", '{"order": 7}', answer)
    assert rule([*OPENING, *failed]) == rule(OPENING)


@pytest.mark.parametrize("marks", [{"is_error": True}, {"status": "error"}])
def test_a_write_that_is_marked_as_failed_changes_nothing(marks: dict[str, Any]) -> None:
    rule = WritesStateRule(writes=WRITES)
    assert rule([*OPENING, *exchange("cancel_order", "{}", "?", **marks)]) == rule(OPENING)


@pytest.mark.parametrize("answer", ["done", "", "no errors", '{"error": null}', "[]", None])
def test_other_results_of_a_write_are_successes(answer: Any) -> None:
    rule = WritesStateRule(writes=WRITES)
    assert rule([*OPENING, *exchange("cancel_order", "{}", answer)]) != rule(OPENING)


def test_a_write_without_a_result_does_not_count() -> None:
    rule = WritesStateRule(writes=WRITES)
    assert rule([*OPENING, calls(("cancel_order", "{}"))]) == rule(OPENING)


def test_failures_are_a_setting() -> None:
    rule = WritesStateRule(writes=WRITES, failures=("*not allowed*",))
    assert rule([*OPENING, *exchange("cancel_order", "{}", "This is NOT allowed.")]) == rule(OPENING)
    assert rule([*OPENING, *exchange("cancel_order", "{}", "Error")]) != rule(OPENING)


def test_parallel_calls_are_a_multiset() -> None:
    one, two = ("find", '{"order":1}'), ("find", '{"order":2}')
    there = [calls(one, two), result("a", 0), result("b", 1)]
    back = [calls(two, one), result("a", 1), result("b", 0)]  # the results come in another order too
    twice = [calls(one, one), result("a", 0), result("a", 1)]
    once = [calls(one), result("a", 0)]
    for rule in (ExchangeStateRule(), ResultsStateRule(), ToolHistoryStateRule(), LastToolResultStateRule()):
        assert rule(there) == rule(back)
    assert ExchangeStateRule()(twice) != ExchangeStateRule()(once)
    assert ToolHistoryStateRule()(twice) != ToolHistoryStateRule()(once)
    assert ResultsStateRule()(twice) == ResultsStateRule()(once)


def test_calls_with_one_id_get_their_results_in_order() -> None:
    """Some servers give every call the id ""."""
    same = calls(("find", "1"), ("find", "2"))
    for call in same["tool_calls"]:
        call["id"] = "id_0"
    assert ResultsStateRule()([same, result("a"), result("b")]) == '{"known":[["find","1","a"],["find","2","b"]]}'


def test_a_result_without_its_call_is_left_out() -> None:
    """After a compaction, the call may be gone."""
    assert ResultsStateRule()([user("Summary: ..."), result("late", 5)]) == '{"known":[]}'


def test_ignored_tools_leave_no_trace() -> None:
    thought = exchange("think", '{"thought": "The order was sent."}', "")
    for rule in (ExchangeStateRule(), ResultsStateRule(), ToolHistoryStateRule(), LastToolResultStateRule()):
        assert rule([*OPENING, *FOUND, *thought]) == rule([*OPENING, *FOUND])
        loud = rule.model_copy(update={"ignore": ("plan_*",)})
        assert loud([*OPENING, *FOUND, *thought]) != loud([*OPENING, *FOUND])
        assert loud([*OPENING, *FOUND, *exchange("plan_day", "{}", "ok")]) == loud([*OPENING, *FOUND])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 9b2d4567-e89b-12d3-a456-4266141740ff"),
        ("at 2026-01-02T03:04:05.678Z", "at 2026-02-03T04:05:06.789+01:00"),
        ("at 2026-01-02 03:04", "at 2026-01-02 05:06"),
        ("Nov 19 23:57:31 started", "Nov  2 01:02:03 started"),
        ("took 0.53s", "took 12.1 s"),
        ("12 ms", "7 ms"),
        ("real 0m0.5s", "real 2m1.25s"),
        ("wrote /tmp/tmpab12/out.txt", "wrote /tmp/tmpzz9/out.txt"),
        ("wrote /var/folders/ab/cd/T/x1", "wrote /var/folders/zz/cd/T/x2"),
        ("commit 3f2a91bc", "commit 9d04e7aa1"),
        ("<object at 0x7f3a1c>", "<object at 0x7FFF00>"),
        ("root@3f2a91bc:/# ", "root@worker:/# "),
        ("on ip-10-0-0-1.ec2.internal", "on ip-10-0-7-9.ec2.internal"),
        ("node-1.cluster.local is up", "node-27.cluster.local is up"),
        ("http://localhost:43211/", "http://127.0.0.1:8000/"),
        (
            '{"id": "123e4567-e89b-12d3-a456-426614174000", "n": 1}',
            '{"n":1, "id":"9b2d4567-e89b-12d3-a456-4266141740ff"}',
        ),
    ],
)
def test_what_differs_by_chance_is_left_out_of_results(first: str, second: str) -> None:
    rule = LastToolResultStateRule()
    assert rule(exchange("look", "{}", first)) == rule(exchange("look", "{}", second))
    exact = LastToolResultStateRule(normalise=False)
    assert exact(exchange("look", "{}", first)) != exact(exchange("look", "{}", second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("5 apples", "6 apples"),
        ("order #W2378156", "order #W2378157"),
        ("12345678", "12345679"),
        ("2026-01-02", "2026-01-03"),
        ("costs 12.50", "costs 12.5"),
        ("iPhone 5s", "iPhone 6s"),
        ("deadbeef", "beadfeed"),
        ("flight HAT001", "flight HAT002"),
        ("drawer 1", "drawer 2"),
        ("3 hours", "4 hours"),
    ],
)
def test_numbers_and_names_stay(first: str, second: str) -> None:
    rule = LastToolResultStateRule()
    assert rule(exchange("look", "{}", first)) != rule(exchange("look", "{}", second))


def test_times_in_arguments_are_the_choice_of_the_agent() -> None:
    rule = ToolHistoryStateRule()
    assert rule([calls(("book", '{"at": "10:30:00"}'))]) != rule([calls(("book", '{"at": "11:30:00"}'))])
    assert rule([calls(("read", '{"path": "/tmp/a1"}'))]) == rule([calls(("read", '{"path": "/tmp/b2"}'))])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"b": 1, "a": [ 2,3 ]}', '{"a":[2,3],"b":1}'),
        ("two  words\n", '"two words"'),
        ('{"broken": ', '"{\\"broken\\":"'),
        ("", '""'),
        ("7", '"7"'),
        ('say "hi"', '"say \\"hi\\""'),
    ],
)
def test_canonical_text(text: str, written: str) -> None:
    assert canonical(text, None) == written


def test_arguments_may_be_an_object_or_missing() -> None:
    def key(arguments: Any) -> str:
        call = {"id": "a", "type": "function", "function": {"name": "find", "arguments": arguments}}
        return ToolHistoryStateRule()([{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert key({"b": 1, "a": 2}) == key('{"a": 2, "b": 1}')
    assert key("") == key(None) == key("{}")


def test_a_long_text_becomes_its_beginning_and_a_digest() -> None:
    long, other = "x" * 201, "x" * 200 + "y"
    assert shorten("x" * 200) == "x" * 200
    assert len(shorten(long)) == 133
    assert shorten(long) != shorten(other)


def test_a_rule_is_a_part_of_the_slot_and_names_its_settings() -> None:
    rule = Slot("state_rule").fill({"kind": "exchange", "writes": ["send_*"], "ignore": ["think"]})
    assert isinstance(rule, ExchangeStateRule)
    assert rule.config()["kind"] == "exchange"
    assert Slot("state_rule").fill(rule.config()) == rule
    with pytest.raises(ConfigError, match="there is no state_rule 'exchnge'; did you mean 'exchange'"):
        Slot("state_rule").fill("exchnge")
    with pytest.raises(ConfigError, match="writes: it is missing"):
        Slot("state_rule").fill("writes")


class LastCall(ToolRule, slot="state_rule"):
    """A rule of one's own: the tools that were called last."""

    def __call__(self, messages: Any) -> str:
        return "+".join(call.name for reply in self.read(messages).replies[-1:] for call in reply)


def test_a_rule_from_outside_fills_the_slot() -> None:
    rule: Any = Slot("state_rule").fill(f"{__name__}:LastCall")
    assert rule(SESSION) == "cancel_order"
