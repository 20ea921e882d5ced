"""Text from outside is stored, shown and quoted without what it would do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupwise.system.text import escape_controls, escape_surrogates, quote_line

HALVES = st.integers(0xD800, 0xDFFF).map(chr)
ANY_TEXT = st.lists(st.characters() | HALVES, max_size=60).map("".join)
"""With halves of characters (lone surrogates) too, which `st.text` all but never draws."""


@given(ANY_TEXT)
def test_what_is_stored_can_be_written(text: str) -> None:
    halves = {character for character in text if 0xD800 <= ord(character) <= 0xDFFF}
    expected = text
    for half in halves:
        expected = expected.replace(half, f"\\u{ord(half):04x}")
    assert escape_surrogates(text).encode("utf-8") == expected.encode("utf-8")


@given(st.text(max_size=60))
def test_text_without_surrogates_is_stored_as_it_is(text: str) -> None:
    assert escape_surrogates(text) == text


@given(ANY_TEXT)
def test_nothing_that_is_shown_steers_a_terminal(text: str) -> None:
    shown = escape_controls(text)
    shown.encode("utf-8")
    assert all(ord(character) >= 0x20 or character in "\n\t" for character in shown)
    assert not set(shown) & set("\x1b\x07\x9b\x7f\r\u202e\u2066\u200f")


def test_a_clipboard_write_and_a_reversed_name_are_shown() -> None:
    assert escape_controls("\x1b]52;c;cm0=\x07") == r"\x1b]52;c;cm0=\x07"
    assert escape_controls("invoice\u202efdp.exe") == r"invoice\u202efdp.exe"
    assert escape_controls("plain é 漢 🙂\n\tline") == "plain é 漢 🙂\n\tline"


@given(ANY_TEXT, st.integers(2, 80))
def test_a_quoted_line_is_one_short_line(text: str, limit: int) -> None:
    line = quote_line(text, limit=limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_a_long_line_is_cut() -> None:
    assert quote_line("x" * 10_000_000) == "x" * 499 + "…"
    assert quote_line("first\nsecond") == "first"
