"""HTML: text is escaped unless it is `Html`, so recorded text can never become a tag.

Pages are jinja2 templates in `templates/`; drawings are made of `tag`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from groupwise.report import number_format
from groupwise.system.secrets import redact
from groupwise.system.text import escape_controls

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "groupwise.report"
VOID = frozenset({"meta", "rect", "circle", "line", "path", "polyline", "br", "input"})
"""Elements that hold nothing."""


class Html(str):
    """Text that is markup."""

    __slots__ = ()

    def __html__(self) -> str:
        """Tell jinja2 that this is markup."""
        return self


Content = str | Iterable["str | Html"] | None


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Html:
    """An element. Attributes have Python names (`class_`, `aria_label`); None and False omit them.

    >>> tag("p", "1 < 2", tag("b", "yes"), class_="note")
    '<p class="note">1 &lt; 2<b>yes</b></p>'
    """
    opening = f"<{name}{''.join(_render_attribute(key, value) for key, value in attributes.items())}"
    if name in VOID:
        assert not content, f"<{name}> holds nothing"
        return Html(f"{opening}/>")
    return Html(f"{opening}>{join(*content)}</{name}>")


def join(*content: Content) -> Html:
    """Join pieces; text is escaped."""
    return Html("".join(_escape(piece) if isinstance(piece, str | None) else join(*piece) for piece in content))


def cut_text(value: str, max_characters: int) -> Html:
    """A text, cut if it is too long, with the number of characters left out."""
    cut = len(value) - max_characters
    if cut <= 0:
        return _escape(value)
    return join(value[:max_characters], tag("span", f" … {cut:,} more characters", class_="cut"))


def render(template: str, **values: Any) -> Html:
    return Html(_open_templates().get_template(template).render(values))


FILTERS: dict[str, Callable[..., Any]] = {
    "compact": number_format.format_compact,
    "count": number_format.format_count,
    "cut": cut_text,
    "number": number_format.format_number,
    "percent": number_format.format_percent,
    "score": number_format.format_score,
    "bounds": number_format.format_bounds,
    "seconds": number_format.format_seconds,
    "signed": number_format.format_signed,
}
"""Filters of the templates."""


@cache
def _open_templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # slow; only pages need it

    def read(name: str) -> str:  # without line breaks and indentation, a page is half as large
        return re.sub(r"\n\s*", "", resources.files(PACKAGE).joinpath("templates", name).read_text(encoding="utf-8"))

    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(read), finalize=_escape)
    environment.filters |= FILTERS
    environment.globals["no_number"] = number_format.NO_NUMBER
    return environment


def _render_attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
    return f' {name}="{_escape(shown)}"'


def _escape(value: Any) -> Html:
    if hasattr(value, "__html__"):
        return Html(value.__html__())
    # HTML has no control characters, and a direction mark would change the order of a text.
    return Html("" if value is None else escape(escape_controls(redact(str(value)))))
