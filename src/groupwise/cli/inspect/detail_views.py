"""What `groupwise inspect` shows below and beside the credit of a step: shaded tokens, further channels, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from groupwise.cli.terminal import screen
from groupwise.reports.explain.pairs import choose_pairs
from groupwise.reports.run.credited_tokens import choose_shade, find_reach, shade_tokens
from groupwise.reports.run.number_format import format_compact, format_signed
from groupwise.reports.run.response_text import TokenTexts
from groupwise.reports.run.update_groups import PlayedAttempt, PlayedGroup, PlayedStep

Palette = tuple[tuple[str, ...], tuple[str, ...]]
"""Styles of praise and of blame, from the weakest shade to the strongest."""

# Colour and ground are both given, so that a text can be read on a terminal of any ground.
MANY_COLOURS: Palette = (
    ("black on #dce9f8", "black on #b5d1f2", "black on #8ab6ea", "white on #2f6fbc", "white on #1a4f96"),
    ("black on #fbe6d2", "black on #f6c79c", "black on #efa565", "white on #b85209", "white on #8f3f06"),
)
SIXTEEN_COLOURS: Palette = (
    ("black on bright_blue",) * 2 + ("white on blue",) * 2 + ("bold white on blue",),
    ("black on bright_yellow",) * 2 + ("black on yellow",) * 2 + ("bold black on yellow",),
)
MAX_PAIRS = 12
"""Pairs of an attempt that are listed; more are counted."""


def choose_palette(console: Console) -> Palette | None:
    """The colours that a console can show; None where it shows none: signs and numbers take their place."""
    if not console.is_terminal or console.color_system is None or console.no_color:
        return None
    return MANY_COLOURS if console.color_system in ("256", "truecolor") else SIXTEEN_COLOURS


def find_token_reach(group: PlayedGroup) -> float:
    """The size of token credit that the strongest shade stands for: the largest in the group."""
    return find_reach(step.tokens for member in group.members for step in member.steps if step.tokens)


def describe_shades(reach: float, palette: Palette | None) -> Text:
    """What the shades of tokens mean."""
    if palette is None:
        return Text(
            "credit of tokens: its number stands before the tokens that have it, · before those that do not train"
        )
    praise, blame = palette
    scale = [*reversed(blame), "", *praise]
    ends = f" {format_signed(-reach)} ", f" {format_signed(reach)} "
    swatches = [("  " if style else " 0 ", style) for style in scale]
    return Text.assemble("credit of tokens", ends[0], *swatches, ends[1], ("  dim", "dim"), " does not train")


def lay_out_tokens(step: PlayedStep, texts: TokenTexts, reach: float, palette: Palette | None) -> list[Text]:
    """The response of a step, its tokens shaded by their credit, and how many of them train."""
    tokens = step.tokens
    if tokens is None or not tokens.ids:
        return []
    text = Text()
    for piece in shade_tokens(tokens, texts.cut(tokens.ids)):
        shown = screen.escape_recorded(piece.text)
        if palette is not None:
            text.append(shown, "dim" if piece.credit is None else _choose_style(piece.credit, reach, palette))
        else:
            number = "·" if piece.credit is None else format_signed(piece.credit)
            text.append(f"{' ' if text else ''}{number}«{shown.strip(' ')}»")
    return [text, Text(tokens.describe(), style="dim")]


def lay_out_channels(step: PlayedStep) -> list[Text]:
    """The credit of a step in each further channel."""
    return [Text(f"channel {name} {format_signed(credit)}") for name, credit in step.channels.items()]


def describe_pairs(group: PlayedGroup, attempt: PlayedAttempt) -> list[str]:
    """The pairs that an attempt is in, a line each; nothing where the loss reads none."""
    if group.pairs is None:
        return []
    own = choose_pairs(group.pairs, task=group.task, attempt=attempt.attempt)
    if not own:
        return [f"attempt {attempt.attempt} is in none of the {len(group.pairs)} pairs of the task"]
    more = [f"… and {len(own) - MAX_PAIRS} more pairs"] if len(own) > MAX_PAIRS else []
    return [*(f"pair: {pair.describe()}" for pair in own[:MAX_PAIRS]), *more]


def format_num_pairs(groups: Sequence[PlayedGroup]) -> list[str] | None:
    """How many pairs each group has; None where no loss reads any."""
    if all(group.pairs is None for group in groups):
        return None
    return [format_compact(len(group.pairs or ())) for group in groups]


def attempt_as_json(group: PlayedGroup, attempt: PlayedAttempt, texts: TokenTexts) -> dict[str, Any]:
    """An attempt as plain data: with its tokens, channels and pairs where there are any."""
    bare = replace(attempt, steps=tuple(replace(step, tokens=None) for step in attempt.steps))
    data: dict[str, Any] = {"attempt": asdict(bare)}
    for step, row in zip(attempt.steps, data["attempt"]["steps"], strict=True):
        del row["tokens"]
        if not step.channels:
            del row["channels"]
        if step.tokens is not None:
            row["tokens"] = step.tokens.as_json(texts.cut(step.tokens.ids))
    if group.pairs is not None:
        data["pairs"] = [asdict(pair) for pair in choose_pairs(group.pairs, task=group.task, attempt=attempt.attempt)]
    if group.details_missing:
        data["details_missing"] = group.details_missing
    return data


def _choose_style(credit: float, reach: float, palette: Palette) -> str:
    shade = choose_shade(credit, reach)
    return "" if not shade else palette[shade < 0][abs(shade) - 1]
