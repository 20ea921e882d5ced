"""What a model says is read in a time that grows with its length, not with its square, and never raises."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from groupwise.envs.kit.answers import find_tagged_parts
from groupwise.envs.math import READERS
from groupwise.rollout.actions import Choice, Tagged

PIECES = ("<action>", "</action>", "<think>", "</think>", "<ACTION>", "<", ">", "/", "a", " ", "\n", "İ")
TAGS = (
    "<search>",
    "</search>",
    "< answer >",
    "</answer>",
    "< / SEARCH >",
    "<",
    "/",
    "search",
    " ",
    "\n",
    "x",
)
CHAT = ("Solve the following math problem", "\n", "\n\n", "Remember to put your answer", "x", " ")


def first_part(text: str) -> tuple[str, str] | None:
    """The search or the answer that a response says."""
    return next(find_tagged_parts(text, "search", "answer"), None)


def text_of(pieces: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@settings(max_examples=500)
@given(text=text_of(PIECES))
def test_actions_between_tags_are_those_that_the_published_expressions_find(text: str) -> None:
    said = text.lower()
    action = re.search(r"<action>(.*?)</action>", said, re.DOTALL)
    thought = re.search(r"<think>.*?</think>", said, re.DOTALL)
    reading = Tagged().read(text, stopped=True)
    if action is None:
        assert reading == (said[max(0, len(said) - 30) :].strip(), False)
    else:
        assert reading == (action[1].strip(), thought is not None)


@settings(max_examples=500)
@given(text=text_of(TAGS))
def test_searches_and_answers_are_those_that_the_expression_finds(text: str) -> None:
    read = re.search(r"<\s*(search|answer)\s*>(.*?)<\s*/\s*\1\s*>", text, re.DOTALL | re.IGNORECASE)
    assert first_part(text) == (None if read is None else (read[1].lower(), read[2]))


def test_letters_that_count_as_others_without_case_are_no_fault() -> None:
    assert first_part("<\u017fearch>amber</search>") == ("search", "amber")
    assert first_part("<an\u017fwer>") is None


@settings(max_examples=500)
@given(text=text_of(CHAT), begins=st.booleans())
def test_problems_in_chats_are_those_that_the_expression_finds(text: str, begins: bool) -> None:
    text = CHAT[0] + text if begins else text
    asked = re.fullmatch(
        r"Solve the following math problem.*?\n\n(.*)\n\nRemember to put your answer.*", text, re.DOTALL
    )
    row = {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": "4"}}
    assert READERS["chat"](row) == (asked[1] if asked else text, "4")


@given(digits=st.text("0123456789", max_size=6), listed=st.integers(0, 120))
def test_choices_are_those_that_their_number_says(digits: str, listed: int) -> None:
    actions = [f"action {number}" for number in range(1, listed + 1)]
    number = int(digits) if digits else 0
    valid = 1 <= number <= listed
    expected = (actions[number - 1], True) if valid else (digits, False)
    assert Choice().read(digits, stopped=True, admissible=actions) == expected


@pytest.mark.parametrize("text", ["9" * 5000, "0" * 5000, "²", "\u0661", "1_0", "+1", " 1", "1e3", ""])
def test_a_choice_that_is_no_number_of_an_action_is_sent_as_it_is(text: str) -> None:
    assert Choice().read(text, stopped=True, admissible=["go"]) == (text, False)


def test_a_choice_may_have_zeros_before_it() -> None:
    assert Choice().read("0" * 5000 + "1", stopped=True, admissible=["go"]) == ("go", True)


@pytest.mark.parametrize(
    ("read", "piece"),
    [
        (lambda text: Tagged().read(text, stopped=True), "<action>"),
        (lambda text: Tagged().read(text, stopped=True), "<action></action><think>"),
        (first_part, "<search>"),
        (first_part, "<answer></search>"),
        (first_part, "< \t"),
    ],
)
def test_a_response_that_repeats_its_tags_is_read_at_once(read: Callable[[str], object], piece: str) -> None:
    text = piece * (800_000 // len(piece))  # the old expressions took minutes
    before = time.process_time()
    read(text)
    assert time.process_time() - before < 3.0
