"""Parts of a response between tags, found in one pass whatever the response is made of.

A pattern that looks from every opening tag for a closing one reads the rest of the text each time; a model that repeats
an opening tag makes that quadratic.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache


def find_tagged_parts(text: str, *names: str) -> Iterator[tuple[str, str]]:
    """The parts between an opening tag of one of the names and the next closing tag of the same, from the left.

    Names are in lower case, tags in any. A word-level tokenizer puts spaces between signs, so they are allowed there.

    >>> list(find_tagged_parts("<b>x <i>y</ i > z</b> <i>w</i>", "i"))
    [('i', 'y'), ('i', 'w')]
    """
    # Folded, not only lowered: a pattern without case takes the long s of old prints for an s.
    tags = [(match[2].casefold(), bool(match[1]), match.start(), match.end()) for match in _tags(names).finditer(text)]
    closing: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for name, closes, start, end in tags:
        if closes:
            closing[name].append((start, end))
    done = 0
    for name, closes, start, end in tags:
        if closes or start < done:
            continue
        following = bisect_left(closing[name], (end, end))
        if following < len(closing[name]):
            stop, done = closing[name][following]
            yield name, text[end:stop]


@cache
def _tags(names: tuple[str, ...]) -> re.Pattern[str]:
    # Possessive: spaces that were passed over once are not tried again.
    return re.compile(rf"<\s*+(/\s*+)?({'|'.join(names)})\s*+>", re.IGNORECASE)
