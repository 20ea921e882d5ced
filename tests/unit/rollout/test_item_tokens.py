"""The tokens of a list's items, whatever the tokenizer: words, pieces with white space, halves of characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import RecordError, Step, Task, Trajectory
from groupwise.envs.small.ranked_lists import read_list
from groupwise.methods.rank_grpo import ItemTokens

END = 0


@dataclass
class Pieces:
    """Tools whose token n says the n-th piece; `joined_by` stands between them, as a word tokenizer puts a space."""

    listed: Sequence[bytes]
    joined_by: bytes = b""
    stop_ids: tuple[int, ...] = (END,)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return ["" if token == END else self.listed[token].decode(errors="replace") for token in ids]

    def text(self, ids: Sequence[int]) -> str:
        said = self.joined_by.join(self.listed[token] for token in ids if token != END)
        return said.decode(errors="replace").strip()


def measure(
    listed: Sequence[str | bytes],
    *,
    action: str | None = None,
    forced: int = 0,
    joined_by: str = "",
    ended: bool = True,
) -> dict[str, Any]:
    """What is measured of a response that says these pieces one after the other."""
    tools: Any = Pieces([b"", *(p.encode() if isinstance(p, str) else p for p in listed)], joined_by.encode())
    ids = (*range(1, len(listed) + 1), *([END] if ended else []))
    said = tools.text(ids) if action is None else action
    spans = [list(span) for span in read_list(said, {}).spans]
    step = Step(index=0, action=said, response_ids=ids, forced=forced, info={"item_spans": spans})
    rollout = Trajectory(id="a", task=Task(id="t"), rollout=0, steps=(step,))

    def draw(*_: object) -> np.random.Generator:
        raise AssertionError("nothing is drawn")

    [[[info]]] = ItemTokens()([[rollout]], tools, draw=draw)
    assert set(info) == ItemTokens.writes
    return dict(info)


@pytest.mark.parametrize(
    ("pieces", "options", "places", "end"),
    [
        (["fire", "engine", ";", "egg"], {"joined_by": " "}, [[0, 3], [3, 4]], 4),  # words
        (["Fire", " eng", "ine", "\n", "egg", "\n"], {}, [[0, 4], [4, 6]], 6),  # a new line belongs to what it ends
        (["fire engine;", "\n\n", " egg"], {}, [[0, 2], [2, 3]], 3),
        (["a\nb", "c", "\n", "d"], {}, [[0, 1], [1, 3], [3, 4]], 4),  # a token that reaches into two
        (["a;b;c"], {}, [[0, 1], [1, 1], [1, 1]], 1),  # all in one token
        (["  ", "egg"], {}, [[0, 2]], 2),  # white space before the list
        (["egg", ";", "pea"], {"joined_by": " ", "ended": False}, [[0, 2], [2, 3]], None),  # cut off
        (["a", ";", "b", ";", "c"], {"forced": 3}, [[0, 0], [0, 1], [1, 2]], 2),  # the first and a half were given
        (["<think>egg</think>", "<do>", "Egg", ";", "pea", "</do>"], {"action": "egg;pea"}, [[2, 4], [4, 5]], 6),
        ([], {}, [], 0),
        (["a", "\u00e9".encode()[:1], "\u00e9".encode()[1:], ";", "b"], {}, [[0, 4], [4, 5]], 5),  # halves of a letter
    ],
)  # fmt: skip
def test_items_are_found_among_the_tokens(
    pieces: list[str | bytes], options: dict[str, Any], places: list[list[int]], end: int | None
) -> None:
    assert measure(pieces, **options) == {"item_tokens": places, "end_token": end}


@given(pieces=st.lists(st.text(alphabet="ab;\n ", min_size=1, max_size=4), max_size=12))
def test_every_token_of_a_whole_answer_belongs_to_one_item(pieces: list[str]) -> None:
    info = measure(pieces)
    places, said = info["item_tokens"], "".join(pieces)
    covered = [token for begin, end in places for token in range(begin, end)]
    assert covered == (list(range(len(pieces))) if any(mark in said for mark in "ab") else [])
    assert info["end_token"] == len(pieces)
    # Where no token reaches into two items, each item is said by the pieces that it spells.
    spans = read_list(said.strip(), {}).spans
    texts = ["".join(said.strip()[begin:end].split()) for begin, end in spans]
    ours = ["".join("".join(pieces[begin:end]).split()) for begin, end in places]
    assert ours == texts or any(mark in piece[:-1] for piece in pieces for mark in ";\n")


def test_what_cannot_be_found_is_refused() -> None:
    with pytest.raises(RecordError) as raised:
        measure(["2"], action="egg")
    assert str(raised.value) == (
        "task 't', rollout 0, step 0: the response does not contain its action, so no token belongs to an item; "
        "use an action_parser that takes the action out of the response"
    )
    bare = Trajectory(id="a", task=Task(id="t"), rollout=0, steps=(Step(index=0, action="egg", response_ids=(1,)),))
    tools: Any = Pieces([b"", b"egg"])
    with pytest.raises(
        RecordError, match="the environment says no 'item_spans', which item_tokens reads; use one that"
    ):
        ItemTokens()([[bare]], tools, draw=lambda *_: np.random.default_rng(0))
