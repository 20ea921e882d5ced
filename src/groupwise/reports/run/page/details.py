"""What the page shows below and beside the credit of a step: responses shaded by token credit, channels, pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from groupwise.reports.run.credited_tokens import (
    NUM_SHADES,
    CreditedTokens,
    ShadedText,
    choose_shade,
    find_reach,
    shade_tokens,
)
from groupwise.reports.run.number_format import format_count, format_signed
from groupwise.reports.run.page.marks import draw_credit_bar
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.response_text import TokenTexts
from groupwise.reports.run.update_groups import PlayedGroup, PlayedStep

MAX_TOKENS = 240
"""Tokens of a response that are shown: the first and the last of them."""
MAX_TOKENS_OF_ATTEMPT = 2400
"""Tokens of an attempt that are shaded; responses after them are shown without shades, so that a page stays small."""
MAX_PAIRS = 12
"""Pairs of a group that are listed; more are counted."""

SHADES_MEANING = (
    "Blue with a line below makes a token likelier, orange with a line above less likely. Point at a text to read its "
    "number; groupwise explain --token explains it."
)


class TokenShades:
    """Shades the responses that a page shows; the strongest shade is the largest credit among them."""

    def __init__(self, texts: TokenTexts, groups: Sequence[PlayedGroup]) -> None:
        self._texts = texts
        shown = [step.tokens for group in groups for attempt in (group.best(), group.worst()) for step in attempt.steps]
        self._reach = find_reach(tokens for tokens in shown if tokens is not None)
        self.has_tokens = any(tokens is not None for tokens in shown)
        """Whether any response is shaded."""

    def write_legend(self) -> Html:
        """What the shades mean."""
        low, high = format_signed(-self._reach), format_signed(self._reach)
        swatches = [tag("i", class_=f"shade {name_shade(shade)}") for shade in range(-NUM_SHADES, NUM_SHADES + 1)]
        return tag(
            "p",
            tag("span", "Credit of tokens"),
            tag("span", f"{low} ", swatches, f" {high}", class_="scale"),
            tag("span", "does not train", class_="untrained"),
            tag("span", SHADES_MEANING, class_="meaning"),
            class_="shades",
        )

    def choose_steps(self, steps: Sequence[PlayedStep]) -> set[int]:
        """The indices of an attempt's steps that are shaded: from the first on, until their tokens are too many."""
        chosen, shown = set(), 0
        for step in steps:
            shown += 0 if step.tokens is None else min(len(step.tokens.ids), MAX_TOKENS)
            if shown > MAX_TOKENS_OF_ATTEMPT:
                break
            chosen.add(step.index)
        return chosen

    def write_response(self, tokens: CreditedTokens) -> Html:
        """A response, shaded, and how many of its tokens train with what credit."""
        return join(
            tag("p", list(self._write_pieces(tokens)), class_="said shaded"),
            tag("p", tokens.describe(), class_="meaning"),
        )

    def _write_pieces(self, tokens: CreditedTokens) -> Iterator[Html]:
        num, half, texts = len(tokens.ids), MAX_TOKENS // 2, self._texts.cut(tokens.ids)
        if num <= MAX_TOKENS:
            yield from map(self._write_piece, shade_tokens(tokens, texts))
            return
        yield from map(self._write_piece, shade_tokens(tokens, texts, end=half))
        yield tag("span", f" … {num - 2 * half:,} tokens left out … ", class_="cut")
        yield from map(self._write_piece, shade_tokens(tokens, texts, first=num - half))

    def _write_piece(self, piece: ShadedText) -> Html:
        kind = "untrained" if piece.credit is None else name_shade(choose_shade(piece.credit, self._reach))
        return tag("span", piece.text, class_=kind, title=piece.meaning)


def name_shade(shade: int) -> str:
    """The class of a shade: p1 to p5 for praise, m1 to m5 for blame, p0 for neither."""
    return f"m{-shade}" if shade < 0 else f"p{shade}"


def write_channels(step: PlayedStep, reaches: dict[str, float]) -> Html | None:
    """The credit of a step in each further channel, as bars."""
    if not step.channels:
        return None
    return tag(
        "dl",
        [
            join(tag("dt", f"channel {name}"), tag("dd", draw_credit_bar(credit, reaches.get(name, 0.0))))
            for name, credit in step.channels.items()
        ],
        class_="channels",
    )


def find_channel_reaches(groups: Iterable[PlayedGroup]) -> dict[str, float]:
    """The largest credit of each channel: what a full bar stands for."""
    reaches: dict[str, float] = {}
    for group in groups:
        for attempt in group.members:
            for step in attempt.steps:
                for name, credit in step.channels.items():
                    reaches[name] = max(reaches.get(name, 0.0), abs(credit))
    return reaches


def write_pairs(group: PlayedGroup) -> Html | None:
    """The pairs of a group: who is held against whom, why, and by what margin; None where the loss reads none."""
    if group.pairs is None:
        return None
    if not group.pairs:
        return tag("p", "The loss reads pairs, and these attempts make none.", class_="meaning pairs")
    names = ("over", "why", "margin", "weight")
    head = tag("tr", tag("th", "better", scope="col"), [tag("th", name, scope="col") for name in names])
    rows = [
        tag(
            "tr",
            tag("th", _name_member(pair.winner, pair.winner_step), scope="row"),
            tag("td", _name_member(pair.loser, pair.loser_step)),
            tag("td", pair.why),
            tag("td", f"{pair.gap:.4g}"),
            tag("td", f"{pair.weight:.4g}"),
        )
        for pair in group.pairs[:MAX_PAIRS]
    ]
    more = len(group.pairs) - MAX_PAIRS
    return tag(
        "details",
        tag(
            "summary",
            tag("span", "pairs", class_="name"),
            tag("span", format_count(len(group.pairs), "pair"), class_="meaning"),
        ),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows), class_="pairs"), class_="scroll"),
        tag("p", f"{more:,} more are not listed; `groupwise inspect` has them.".replace("`", ""), class_="meaning more")
        if more > 0
        else None,
    )


def has_details(groups: Iterable[PlayedGroup]) -> bool:
    """Whether any group has token credit, channels or pairs to show."""
    return any(
        group.pairs is not None
        or any(step.tokens is not None or step.channels for attempt in group.members for step in attempt.steps)
        for group in groups
    )


def _name_member(attempt: str | int, step: int | None) -> str:
    return f"attempt {attempt}" if step is None else f"attempt {attempt}, step {step}"
