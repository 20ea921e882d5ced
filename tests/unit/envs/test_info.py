"""Info of the environments: each tells what it lists and nothing else, of the types and laws of the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import pytest

from groupwise import ConfigError
from groupwise.envs import Outcome
from groupwise.envs.kit.info import list_named
from groupwise.envs.plain_records import to_plain_info
from groupwise.parts.part import load_catalogue
from tests.unit.envs.accepted_info import ACCEPTS

TELLING = [kind for kind, part in load_catalogue("env").items() if hasattr(part, "writes") and kind != "webshop"]
"""Kinds that tell info; webshop, which needs the publisher's files, is the storefront's shop."""
NUM_TASKS = 6
SUM, BUY_ANY = "the sum of the numbers", "buy whatever is found first"
"""Actions that depend on what is shown."""
OTHER_ACTIONS: dict[str, tuple[str, ...]] = {
    "countdown": ("no idea", "1 + 1", "(1", SUM),
    "worked_sums": ("no idea", "answer 7"),
    "search_qa": ("no idea", "<search>Kilburne</search>", "<answer>a mill</answer>", "<answer></answer>"),
    "storefront": ("no idea", "search[lamp]", "click[nowhere]", BUY_ANY),
    "bfcl": ("no idea", "pwd()", "nothing_of_the_kind(1, a=2)", "[]"),
    "ranked_lists": ("no idea", "egg ; ruby ; egg", "ant ; ;\n coal"),
    "lookup": ("no idea", "search boss of nobody", "search city", "answer atlantis"),
}
"""What is said beside the expert's actions: nonsense, what is not allowed, what is wrong."""


def play(environment: Any, choose: Callable[[int], str | None]) -> Iterator[tuple[str, Outcome]]:
    """Act until the rollout ends or there is nothing to say."""
    for number in range(50):
        action = choose(number)
        if action is None:
            return
        outcome = environment.act(action)
        yield action, outcome
        if outcome.ended:
            return


def choose_other(environment: Any, other: str, number: int) -> str | None:
    """The other action first, then the expert's."""
    shown = environment.observe()
    if other == BUY_ANY:
        products = [action for action in shown.admissible if re.fullmatch(r"click\[b0\w{8}\]", action)]
        return ("search[light]", *products[:1], "click[buy now]")[min(number, 1)]
    if number:
        advice: str | None = environment.expert()
        return advice
    return " + ".join(re.findall(r"[0-9]+", shown.text)[1:]) if other == SUM else other


@cache
def list_outcomes(kind: str) -> tuple[Outcome, ...]:
    """Outcomes of the expert, and of other actions before the expert's."""
    part: Any = load_catalogue("env")[kind]()
    outcomes = []
    try:
        for task in part.task_set("test")[:NUM_TASKS]:
            expert = part.open(task)
            outcomes += [outcome for _, outcome in play(expert, lambda _, it=expert: it.expert())]
            for other in OTHER_ACTIONS[kind]:
                mixed = part.open(task)
                outcomes += [outcome for _, outcome in play(mixed, partial(choose_other, mixed, other))]
    except ConfigError as error:
        pytest.skip(str(error))
    return tuple(outcomes)


@pytest.mark.parametrize("kind", TELLING)
def test_an_environment_tells_what_it_lists_and_nothing_else(kind: str) -> None:
    names = {name for outcome in list_outcomes(kind) for name in outcome.info}
    assert names == load_catalogue("env")[kind].writes  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", TELLING)
def test_info_are_of_their_types_and_pass_through_json(kind: str) -> None:
    for outcome in list_outcomes(kind):
        for name, value in outcome.info.items():
            assert ACCEPTS[name](value), (name, value)
        assert json.loads(json.dumps(outcome.info)) == outcome.info == to_plain_info(outcome.info)


@pytest.mark.parametrize("kind", [kind for kind in TELLING if {"exact"} <= load_catalogue("env")[kind].writes])  # type: ignore[attr-defined]
def test_an_answer_is_exact_where_it_is_the_gold_answer(kind: str) -> None:
    answered = [outcome for outcome in list_outcomes(kind) if "answer" in outcome.info]
    assert {outcome.info["exact"] for outcome in answered} == {True, False}
    for outcome in answered:
        info = outcome.info
        assert info["exact"] is (info["answer"] == info["gold_answer"]) is outcome.success


@pytest.mark.parametrize("kind", [kind for kind in TELLING if {"checks"} <= load_catalogue("env")[kind].writes])  # type: ignore[attr-defined]
def test_the_stages_agree_with_the_outcome(kind: str) -> None:
    outcomes = list_outcomes(kind)
    for outcome in outcomes:
        checks = outcome.info["checks"]
        assert outcome.accepted is (checks["read"] and checks["fits"])
        if outcome.terminated and "right" in checks:
            assert checks["right"] is outcome.success
    stages = {(stage, passed) for outcome in outcomes for stage, passed in outcome.info["checks"].items()}
    assert {("read", True), ("read", False), ("fits", True), ("right", True), ("right", False)} <= stages


@pytest.mark.parametrize("kind", [kind for kind in TELLING if {"calls"} <= load_catalogue("env")[kind].writes])  # type: ignore[attr-defined]
def test_calls_are_counted(kind: str) -> None:
    counts = set()
    for outcome in list_outcomes(kind):
        assert outcome.info["num_calls"] == len(outcome.info["calls"])
        counts.add(outcome.info["num_calls"])
    assert {0, 1} <= counts


@pytest.mark.parametrize("kind", [kind for kind in TELLING if {"gold_calls"} <= load_catalogue("env")[kind].writes])  # type: ignore[attr-defined]
def test_the_expert_makes_the_gold_calls(kind: str) -> None:
    part: Any = load_catalogue("env")[kind]()
    try:
        task = part.task_set("test")[0]
    except ConfigError as error:
        pytest.skip(str(error))
    environment = part.open(task)
    outcomes = [outcome for _, outcome in play(environment, lambda _: environment.expert())]
    made = [call for outcome in outcomes for call in outcome.info["calls"]]
    by_turn = {outcome.info.get("turn", 0): outcome.info["gold_calls"] for outcome in outcomes}
    assert made == [call for calls in by_turn.values() for call in calls]
    assert made, "an expert that calls nothing shows nothing"


def test_every_info_key_of_the_table_is_told_by_some_environment() -> None:
    assert {name for kind in TELLING for name in load_catalogue("env")[kind].writes} == ACCEPTS.keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("answer", None),
        ("exact", 1),
        ("graded_match", 1.5),
        ("calls", [{"name": "search"}]),
        ("num_calls", -1),
        ("checks", {}),
        ("checks", {"fits": True}),
        ("checks", {"read": False, "fits": True}),
        ("match_parts", {"price": 2}),
        ("entities", ["ben", 3]),
    ],
)
def test_a_value_of_another_type_is_seen(name: str, value: object) -> None:
    assert not ACCEPTS[name](value)


def test_names_are_found_word_by_word() -> None:
    assert list_named(["ben", "oslo", "ann"], "Search the city of Ben; anna") == ["ben"]
    assert list_named(["Lower Bridge"], "<search>lower  bridge</search>") == ["Lower Bridge"]


ODD_ACTIONS = {
    "ranked_lists": ("x;" * 150_000, "\ud800 ; egg", "ant ; " * 9_000),
    "countdown": ("1" * 300_000, "(" * 199),
    "worked_sums": ("answer " + "1" * 300_000,),
    "lookup": ("answer " + "x" * 300_000, "search \ud800 of \udfff", "answer \ud800"),
    "search_qa": ("<answer>" + "x" * 300_000 + "</answer>", "<search>\ud800</search>", "<answer>\udfff</answer>"),
    "storefront": ("search[" + "x" * 9_000 + "]", "click[\ud800]", "click[]"),
    "bfcl": ("f(" + "[" * 15 + "]" * 15 + ")", "f({1, 2}, ...)", '{"name": "\\ud800", "arguments": {"a": 1e999}}'),
}
ALWAYS_ODD = ("", "x" * 300_000, "\ud800 \udfff", "1 , " * 1_000)
"""What no agent should say, and what must not end a rollout by an info value that cannot be written."""


@pytest.mark.parametrize("kind", TELLING)
def test_whatever_is_said_can_be_written_as_info(kind: str) -> None:
    part: Any = load_catalogue("env")[kind]()
    try:
        task = part.task_set("test")[0]
        outcomes = [part.open(task).act(action) for action in (*ODD_ACTIONS.get(kind, ()), *ALWAYS_ODD)]
    except ConfigError as error:
        pytest.skip(str(error))
    for outcome in outcomes:
        info = to_plain_info(outcome.info)
        assert all(ACCEPTS[name](value) for name, value in info.items())
        assert len(json.dumps(info)) < 20_000
