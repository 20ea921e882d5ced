"""Reading actions out of responses."""

from __future__ import annotations

import pytest

from groupwise.rollout import Choice, Tagged, WholeResponse
from groupwise.rollout.actions import continue_thought


def test_the_whole_response_is_the_action() -> None:
    assert WholeResponse().read("go to desk 1", stopped=True) == ("go to desk 1", True)


@pytest.mark.parametrize(("text", "stopped"), [("go to desk", False), ("", True)])
def test_a_response_that_was_cut_off_or_is_empty_is_malformed(text: str, stopped: bool) -> None:
    assert WholeResponse().read(text, stopped=stopped) == (text, False)


def test_a_tagged_action_needs_thoughts_to_be_well_formed() -> None:
    rule = Tagged()
    assert rule.read("<think>Hm.</think><action> Open Drawer 1 </action>", stopped=True) == ("open drawer 1", True)
    assert rule.read("<action>open drawer 1</action>", stopped=True) == ("open drawer 1", False)


def test_without_a_tag_the_last_characters_are_sent_and_the_response_is_malformed() -> None:
    assert Tagged(fallback=6).read("I will OPEN it", stopped=True) == ("pen it", False)
    assert Tagged(fallback=30).read("short", stopped=True) == ("short", False)
    assert Tagged(fallback=0).read("short", stopped=True) == ("", False)


def test_a_response_with_chinese_characters_is_malformed_as_in_the_release_unless_they_are_allowed() -> None:
    said = "<think>\u6211 open it.</think><action>open drawer 1</action>"
    assert Tagged().read(said, stopped=True) == ("open drawer 1", False)
    assert Tagged(allows_chinese=True).read(said, stopped=True) == ("open drawer 1", True)
    assert Tagged().read(said.replace("\u6211", "\u00fc"), stopped=True) == ("open drawer 1", True)


LISTED = ("go to desk 1", "open drawer 1")


def test_a_choice_is_a_number_of_the_list() -> None:
    rule = Choice()
    assert rule.read("2", stopped=True, admissible=LISTED) == ("open drawer 1", True)
    assert rule.read("2", stopped=False, admissible=LISTED) == ("open drawer 1", False)
    for wrong in ("0", "3", "-1", "two", "", "2 2", "²"):
        assert rule.read(wrong, stopped=True, admissible=LISTED) == (wrong, False), wrong
    assert rule.read("1", stopped=True) == ("1", False), "there is no list"


@pytest.mark.parametrize("rule", [WholeResponse(), Choice(), Tagged()])
def test_what_a_rule_says_it_reads(rule: WholeResponse | Choice | Tagged) -> None:
    for action in LISTED:
        said = rule.say(action, admissible=LISTED)
        assert rule.read(said, stopped=True, admissible=LISTED) == (action, True)


def test_an_action_that_is_not_listed_is_said_as_it_is() -> None:
    assert Choice().say("close drawer 1", admissible=LISTED) == "close drawer 1"


def test_a_thought_that_the_prompt_opens_counts_for_tagged_responses() -> None:
    parser = continue_thought(Tagged(), "<think>")
    assert parser.read("Hm.</think><action>Go</action>", stopped=True) == ("go", True)
    assert Tagged().read("Hm.</think><action>Go</action>", stopped=True) == ("go", False)
    assert parser.read("Hm.<action>Go</action>", stopped=True) == ("go", False), "the thought does not end"
    assert parser.say("go") == "</think><action>go</action>"
    assert parser.read(parser.say("go"), stopped=True) == ("go", True)


@pytest.mark.parametrize(
    ("parser", "opened"), [(Tagged(), ""), (Tagged(), "<reasoning>"), (WholeResponse(), "<think>")]
)
def test_other_parsers_and_tags_stay_as_they_are(parser: Tagged | WholeResponse, opened: str) -> None:
    assert continue_thought(parser, opened) is parser
