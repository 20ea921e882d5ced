"""The parser `tagged` with `reference` reads every response as GiGPO's release does."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.rollout import Tagged
from tests.oracles.released_tags import read_action

PIECES = (
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    "<THINK>",
    "</Think>",
    "<Action>",
    "go",
    " ",
    "\n",
    "我",
    "İ",
    "<",
)
RESPONSES = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)


@given(RESPONSES, st.integers(1, 30))
@example("<THINK>a</THINK><action>b</action>", 30)
@example("</action><think>a</think><action>go</action>", 30)
@example("</think><think><action> Go </action>", 20)
def test_the_released_parser_is_that_of_the_description(response: str, fallback: int) -> None:
    parser = Tagged(reference=True, fallback=fallback)
    assert parser.read(response, stopped=True) == read_action(response, fallback=fallback)


@pytest.mark.parametrize(
    ("response", "released", "ours"),
    [
        ("<THINK>a</THINK><action>b</action>", ("b", False), ("b", True)),
        ("</action><think>a</think><action>go</action>", ("", True), ("go", True)),
        ("</think>a<think><action>go</action>", ("go", True), ("go", False)),
        ("<think>a</think><action>go</action><action>no</action>", ("go", True), ("go", True)),
        ("<think>a</think><action>GO", ("ion>go", False), ("ion>go", False)),
        ("I take the mug\n", ("e mug\n", False), ("e mug", False)),
    ],
)
def test_where_the_release_and_the_default_differ(
    response: str, released: tuple[str, bool], ours: tuple[str, bool]
) -> None:
    assert Tagged(reference=True, fallback=6).read(response, stopped=True) == released
    assert Tagged(fallback=6).read(response, stopped=True) == ours


def test_an_action_is_written_so_that_the_release_reads_it() -> None:
    parser = Tagged(reference=True)
    assert parser.read(parser.say("open drawer 1"), stopped=True) == ("open drawer 1", True)
