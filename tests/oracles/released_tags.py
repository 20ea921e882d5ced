"""How GiGPO's release reads an action, one character after the other, from the description in words.

The response is lower-cased for the action alone. The action is what lies between the first opening action tag and the
first closing one of the whole response, whichever comes first: if the closing tag does, nothing lies between. Without
one of the two, the last characters of the lower-cased response are sent. A response is well formed if it has both
action tags, has both think tags as they are spelled and in any order, and has no Chinese character.
"""

from __future__ import annotations


def first_place(text: str, tag: str) -> int | None:
    for place in range(len(text)):
        if text[place : place + len(tag)] == tag:
            return place
    return None


def read_action(response: str, *, fallback: int) -> tuple[str, bool]:
    """The action that is sent, and whether the response is well formed."""
    small = response.lower()
    opens, closes = first_place(small, "<action>"), first_place(small, "</action>")
    if opens is None or closes is None:
        return "".join(small[place] for place in range(max(0, len(small) - fallback), len(small))), False
    between = [small[place] for place in range(opens + len("<action>"), closes)]
    while between and between[0].isspace():
        between = between[1:]
    while between and between[-1].isspace():
        between = between[:-1]
    thinks = first_place(response, "<think>") is not None and first_place(response, "</think>") is not None
    is_chinese = any(0x4E00 <= ord(character) <= 0x9FFF for character in response)
    return "".join(between), thinks and not is_chinese
