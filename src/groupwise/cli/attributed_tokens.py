"""Tokens in the terminal, coloured by their origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from groupwise.cli import screen
from groupwise.report.prompts import RecordedPrompt

Colours = TypeVar("Colours")
RESPONSE = "response"

# Text colour and background are both set, so the text is readable on any terminal.
STYLES = {
    "system": "white on #6b3fa0",
    "instruction": "black on #d9c7f2",
    "hint": "black on #f2c7e3",
    "task": "black on #f6c79c",
    "history": "black on #dddddd",
    "observation": "black on #b5d1f2",
    "template": "dim",
    "response": "black on #bfe3bf",
}
SIXTEEN_STYLES = {
    "system": "white on magenta",
    "instruction": "black on bright_magenta",
    "hint": "black on magenta",
    "task": "black on yellow",
    "history": "black on white",
    "observation": "black on bright_cyan",
    "template": "dim",
    "response": "black on green",
}


def choose_colours(console: Console, many: Colours, sixteen: Colours) -> Colours | None:
    """The colours that a console supports; None if it shows none, then words or numbers replace them."""
    if not console.is_terminal or console.color_system is None or console.no_color:
        return None
    return many if console.color_system in ("256", "truecolor") else sixteen


def choose_styles(console: Console) -> dict[str, str] | None:
    return choose_colours(console, STYLES, SIXTEEN_STYLES)


def describe_colours(origins: Sequence[str], styles: dict[str, str] | None) -> Text:
    if styles is None:
        return Text("the origin of each piece of text is printed before it")
    return Text("  ").join(Text(f" {origin} ", style=styles[origin]) for origin in styles if origin in origins)


def lay_out_text(texts: Sequence[str], origins: Sequence[str], styles: dict[str, str] | None) -> Text:
    """Colour each piece by its origin; without colours, print the origin before it."""
    text = Text()
    for origin, shown in join_stretches(texts, origins):
        escaped = screen.escape_recorded(shown)
        if styles is not None:
            text.append(escaped, styles[origin])
        elif escaped:
            text.append(f"{' ' if text else ''}{origin}«{escaped}»")
    return text


def join_stretches(texts: Sequence[str], origins: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Join neighbouring texts with the same origin.

    >>> list(join_stretches(["a", "b", "c"], ["task", "task", "history"]))
    [('task', 'ab'), ('history', 'c')]
    """
    for origin, pairs in groupby(zip(origins, texts, strict=True), key=lambda pair: pair[0]):
        yield origin, "".join(shown for _, shown in pairs)


def count_origins(origins: Sequence[str], *, cut: int = 0) -> str:
    """Count the tokens of each origin, the most frequent first, and those that the limit on prompts removed.

    >>> count_origins(["task", "template", "task"], cut=5)
    '3 tokens: task 2, template 1; 5 more removed by rollout.max_prompt_tokens'
    """
    counted = ", ".join(f"{origin} {count}" for origin, count in Counter(map(str, origins)).most_common())
    removed = f"; {cut} more removed by rollout.max_prompt_tokens" if cut else ""
    return f"{len(origins)} tokens: {counted}{removed}" if origins else "0 tokens"


def print_recorded_prompt(console: Console, recorded: RecordedPrompt, *, title: str) -> None:
    """Print a recorded prompt and its response, coloured by origin, then every token."""
    styles, responses = choose_styles(console), [RESPONSE] * len(recorded.response_ids)
    console.print(f"[bold]{escape(title)}[/]  {count_origins(recorded.origins, cut=recorded.cut)}", soft_wrap=True)
    console.print(describe_colours([*recorded.origins, RESPONSE], styles))
    console.print(lay_out_text(recorded.prompt_texts, recorded.origins, styles), soft_wrap=True)
    console.print(lay_out_text(recorded.response_texts, responses, styles), soft_wrap=True)
    ids, texts = (*recorded.prompt_ids, *recorded.response_ids), (*recorded.prompt_texts, *recorded.response_texts)
    console.print(make_token_table(ids, texts, [*recorded.origins, *responses]))


def make_token_table(ids: Sequence[int], texts: Sequence[str], origins: Sequence[str]) -> Table:
    table = screen.make_table("place", "id", "token", "origin", align="rrl")
    for place, (number, shown, origin) in enumerate(zip(ids, texts, origins, strict=True)):
        table.add_row(str(place), str(number), Text(repr(screen.escape_recorded(shown))), str(origin))
    return table
