"""Reading actions out of responses."""

from __future__ import annotations

import pytest

from groupwise.rollout import Tagged, WholeResponse


def test_the_whole_response_is_the_action() -> None:
    assert WholeResponse().read("go to desk 1", stopped=True) == ("go to desk 1", True)


@pytest.mark.parametrize(("text", "stopped"), [("go to desk", False), ("", True)])
def test_a_response_that_was_cut_off_or_is_empty_is_invalid(text: str, stopped: bool) -> None:
    assert WholeResponse().read(text, stopped=stopped) == (text, False)


def test_a_tagged_action_needs_thoughts_to_be_valid() -> None:
    rule = Tagged()
    assert rule.read("<think>Hm.</think><action> Open Drawer 1 </action>", stopped=True) == ("open drawer 1", True)
    assert rule.read("<action>open drawer 1</action>", stopped=True) == ("open drawer 1", False)


def test_without_a_tag_the_last_characters_are_sent_and_the_step_is_invalid() -> None:
    assert Tagged(fallback=6).read("I will OPEN it", stopped=True) == ("pen it", False)
    assert Tagged(fallback=30).read("short", stopped=True) == ("short", False)
    assert Tagged(fallback=0).read("short", stopped=True) == ("", False)
