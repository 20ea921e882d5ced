"""Markup by construction: text is escaped unless it is markup already, so nothing recorded can become a tag."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from groupwise.system.secrets import redact
from groupwise.system.text import escape_controls

VOID = frozenset({"meta", "rect", "circle", "line", "path", "polyline", "br", "input"})
"""Elements that hold nothing."""


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Content = str | Iterable["str | Html"] | None


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Html:
    """An element. Attributes are named as in Python (`class_`, `aria_label`); None and False leave one out.

    >>> tag("p", "1 < 2", tag("b", "yes"), class_="note")
    '<p class="note">1 &lt; 2<b>yes</b></p>'
    """
    opening = f"<{name}{''.join(_render_attribute(key, value) for key, value in attributes.items())}"
    if name in VOID:
        assert not content, f"<{name}> holds nothing"
        return Html(f"{opening}/>")
    return Html(f"{opening}>{join(*content)}</{name}>")


def join(*content: Content) -> Html:
    """Pieces one after another, those that are not markup escaped."""
    return Html("".join(_render_piece(piece) for piece in content))


def cut_text(value: str, max_characters: int) -> Html:
    """A text of whatever length, cut where it is too long, with the number of characters left out."""
    cut = len(value) - max_characters
    if cut <= 0:
        return join(value)
    return join(value[:max_characters], tag("span", f" … {cut:,} more characters", class_="cut"))


def _render_piece(piece: Content) -> str:
    if piece is None:
        return ""
    if isinstance(piece, Html):
        return piece
    if isinstance(piece, str):
        return _escape(piece)
    return "".join(_render_piece(inner) for inner in piece)


def _render_attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
    return f' {name}="{_escape(shown)}"'


def _escape(value: str) -> str:
    # No control character is one of HTML, and a mark of direction would show a text in another order than it has.
    return escape(escape_controls(redact(value)))
