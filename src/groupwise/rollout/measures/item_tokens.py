"""Which tokens of a response say which item of a list: spans of text, found again among the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Step, Trajectory
from groupwise.rollout.measures.tools import Tools

SPANS = "item_spans"


class ItemTokens(Part, slot="measure"):
    """Find the tokens of each item of a list, for any tokenizer; no model is asked.

    It reads the fact `item_spans` of the environment (where each item begins and ends in the action, in characters) and
    writes the facts `item_tokens` (where it begins and ends among the sampled tokens) and `end_token` (the place of the
    token that ends the response; None where it was cut off). The token credit `rank_credit` reads them.

    Source: ours; Rank-GRPO's release (yaochenzhu/Rank-GRPO) cuts at tokens that hold a new line. **Choices.** Text is
    compared without white space, which tokenizers take liberties with. A token belongs to the item in which it begins,
    one of white space alone to the item that it ends. An item that was forced on the policy, or that a token of another
    item says too, has no token. An action that does not stand in its response (a number that chooses one) is refused.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"item_tokens", "end_token"})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The tokens of each item of each step."""
        return [
            [[_measure_step(trajectory, step, tools) for step in trajectory.steps] for trajectory in group]
            for group in groups
        ]


def _measure_step(trajectory: Trajectory, step: Step, tools: Tools) -> dict[str, Any]:
    where = f"task {trajectory.task.id!r}, attempt {trajectory.attempt}, step {step.index}"
    spans = step.facts.get(SPANS)
    if spans is None:
        raise RecordError(
            f"{where}: the environment says no {SPANS!r}, which item_tokens reads; use one that does, such as "
            "ranked_lists"
        )
    num, num_forced, action = len(step.response_ids), step.forced, step.action or ""
    has_end = num > num_forced and step.response_ids[-1] in tools.stop_ids
    starts = _count_before(step.response_ids[: num - has_end], tools)
    said = _strip_spaces(tools.text(step.response_ids))
    first = _find(_strip_spaces(action), said)
    if first < 0:
        raise RecordError(
            f"{where}: its action does not stand in its response, so that no token can be said to be of an item; use "
            "an action_rule that takes the action out of the response"
        )
    # A token without a character of its own belongs where the one before it does.
    keys = [before if after > before else max(before - 1, first) for before, after in pairwise(starts)]
    placed: list[list[int]] = []
    for begin, end in spans:
        low, high = (first + len(_strip_spaces(action[:place])) for place in (begin, end))
        own = [place - num_forced for place, key in enumerate(keys) if low <= key < high and place >= num_forced]
        after_last = placed[-1][1] if placed else 0
        placed.append([own[0], own[-1] + 1] if own else [after_last, after_last])
    return {"item_tokens": placed, "end_token": num - num_forced - 1 if has_end else None}


def _count_before(ids: Sequence[int], tools: Tools) -> list[int]:
    """Characters before each token and after the last, white space left out."""
    pieces = [_strip_spaces(piece) for piece in tools.pieces(ids)]
    if "".join(pieces) == _strip_spaces(tools.text(ids)):
        return [0, *accumulate(len(piece) for piece in pieces)]
    # Tokens that are no whole characters: what they say shows together with their neighbours only.
    lengths = (len(_strip_spaces(tools.text(ids[:num]))) for num in range(len(ids) + 1))
    return list(accumulate(lengths, max))


def _find(action: str, said: str) -> int:
    """Where an action stands in what was said, at its end if it stands there twice; -1 where it does not."""
    place = said.rfind(action)
    return place if place >= 0 or len(said.lower()) != len(said) else said.lower().rfind(action.lower())


def _strip_spaces(text: str) -> str:
    return "".join(text.split())
